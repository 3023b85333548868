// The page of the benchmark. It measures; the program that drives it computes and judges.
import { contestants } from "./contestants.mjs";
import { handOffs, live, pings, serve, takeOver } from "./pair.mjs";
import { openRaw } from "./raw.mjs";

const locks = await contestants();
const raw = await openRaw();

// Turns that nobody contends for. The contestants take turns too, round by round, so that a slow moment of the machine
// meets them all. Brings each one's samples in ms.
async function alone(rounds) {
  const programs = { raw: { each: 10, turn: raw } };
  for (const [name, { each, take }] of Object.entries(locks)) {
    programs[name] = { each, turn: async () => (await take())() };
  }
  const samples = Object.fromEntries(Object.keys(programs).map((name) => [name, []]));
  await round(programs, samples);
  // That one warmed them up: connections are open, beacons stand.
  for (const name in samples) samples[name] = [];
  for (let i = 0; i < rounds; i++) await round(programs, samples);
  return samples;
}

async function round(programs, samples) {
  for (const [name, { each, turn }] of Object.entries(programs)) {
    for (let i = 0; i < each; i++) {
      const started = performance.now();
      await turn();
      samples[name].push(performance.now() - started);
    }
  }
}

window.bench = {
  alone,
  pings,
  serve: () => serve(locks),
  handOffs: (name, count) => handOffs(locks, name, count),
  live: () => live(locks.leasehold),
  takeOver: () => takeOver(locks.leasehold),
  queued: async () => (await locks.leasehold.leases.status("life")).queue.length > 0,
};
window.ready = true;
