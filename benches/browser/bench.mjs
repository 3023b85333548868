// The page of the benchmark. It measures; the program that drives it computes and judges.
import { alone, repeated } from "./alone.mjs";
import { contestants } from "./contestants.mjs";
import { crowd } from "./crowd.mjs";
import { writes } from "./fence.mjs";
import { hits } from "./hits.mjs";
import { endWorker, live, startWorker, takeOver, waiting } from "./life.mjs";
import { handOffs, pings, serve } from "./pair.mjs";
import { openRaw } from "./raw.mjs";

const locks = await contestants();
const raw = await openRaw();

// Other ways to ask for a lease, which do as much in the store.
function ways() {
  const { leases } = locks.leasehold;
  return {
    run: { each: 10, turn: () => leases.run("alone", () => {}) },
    locks_request: { each: 10, turn: () => leases.locks.request("alone", () => {}) },
  };
}

window.bench = {
  alone: async (rounds) => alone({ raw: { each: 10, turn: raw }, ...ways(), ...(await hits()), ...(await writes()) }, locks, rounds),
  repeated: ({ name, turns }) => repeated(name === "raw" ? raw : async () => (await locks[name].take("alone"))(), turns),
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
