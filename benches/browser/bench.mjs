// The page of the benchmark. It measures; the program that drives it computes and judges.
import { alone } from "./alone.mjs";
import { contestants } from "./contestants.mjs";
import { crowd } from "./crowd.mjs";
import { writes } from "./fence.mjs";
import { hits } from "./hits.mjs";
import { endWorker, live, startWorker, takeOver, waiting } from "./life.mjs";
import { handOffs, pings, serve } from "./pair.mjs";
import { openRaw } from "./raw.mjs";

const locks = await contestants();
const raw = await openRaw();

window.bench = {
  alone: async (rounds) => alone({ raw: { each: 10, turn: raw }, ...(await hits()), ...(await writes()) }, locks, rounds),
  pings,
  serve: () => serve(locks),
  handOffs: (rounds) => handOffs(locks, raw, rounds),
  live: ({ names, key }) => live(locks, names, key),
  takeOver: ({ names, key }) => takeOver(locks, names, key),
  waiting,
  startWorker,
  endWorker,
  crowd: (arg) => crowd(locks, arg),
};
window.ready = true;
