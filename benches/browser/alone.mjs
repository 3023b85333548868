// Turns that nobody contends for. All programs take turns, round by round, so that a slow moment of the machine meets
// them all.
import { inTime } from "./wait.mjs";

// Samples in ms by name, and why those who have none failed.
export async function alone(programs, contestants, rounds) {
  const all = { ...programs };
  for (const [name, { alone, take }] of Object.entries(contestants)) {
    all[name] = { each: alone, turn: async () => (await take("alone"))() };
  }
  const samples = Object.fromEntries(Object.keys(all).map((name) => [name, []]));
  const failures = {};
  // Round 0 warms them up: connections are open then, beacons stand.
  for (let round = 0; round <= rounds; round++) {
    for (const [name, program] of Object.entries(all)) {
      if (failures[name]) continue;
      const due = round === 0 ? 1 : dueIn(round, program.each);
      const taken = await measure(program, due).catch((error) => void (failures[name] = String(error)));
      if (round > 0 && taken) samples[name].push(...taken);
    }
  }
  return { samples, failures };
}

// Who is slow gets less than one turn a round.
const dueIn = (round, each) => Math.floor(round * each) - Math.floor((round - 1) * each);

// What is over in microseconds is done `batch` times for one sample: the clock is coarse. As many go before: at the first
// of them nothing lingers yet, and the 65th of a tenure waits for more tokens, as only each 1024th does from then on.
async function measure({ turn, batch = 1 }, times) {
  const samples = [];
  for (let i = 0; i < times; i++) {
    if (batch > 1) await inTime(repeat(turn, batch));
    const started = performance.now();
    await inTime(repeat(turn, batch));
    samples.push((performance.now() - started) / batch);
  }
  return samples;
}

// Takes this many turns in a row, while a program outside of the page measures them.
export const repeated = (turn, times) => inTime(repeat(turn, times), 120_000);

async function repeat(turn, times) {
  for (let i = 0; i < times; i++) await turn();
}
