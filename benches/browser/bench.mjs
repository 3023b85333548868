// The page of the benchmark. It measures; the program that drives it computes and judges.
import { alone, repeated } from "./alone.mjs";
import { contestants, old } from "./contestants.mjs";
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

// The same by the old build, if there is one.
async function oldWays() {
  if (!old) return {};
  const { hit } = await hits("bench-hits-old", old);
  const { plain_write, fenced_write } = await writes("bench-fence-old", old);
  return { old_hit: hit, old_plain_write: plain_write, old_fenced_write: fenced_write };
}

async function everyWay() {
  return { raw: { each: 10, turn: raw }, ...ways(), ...(await hits()), ...(await writes()), ...(await oldWays()) };
}

window.bench = {
  alone: async (rounds) => alone(await everyWay(), locks, rounds),
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
