// Samples of an operation of one tab.
import { inTime } from "../wait.mjs";
import { begin, end } from "./sample.mjs";

// `batch`: one sample repeats an operation of microseconds this many times.
export async function take({ turn, batch = 1 }, times) {
  const samples = [];
  // The first of each round is not counted: connections, beacons and caches may have gone to rest meanwhile.
  for (let i = 0; i <= times; i++) {
    // The same number of turns runs first, untimed: the first finds no lingering lease, and the 65th has to reserve more tokens.
    if (batch > 1) await inTime(repeat(turn, batch));
    begin();
    await inTime(repeat(turn, batch));
    const sample = end();
    if (i > 0) samples.push(sample);
  }
  return samples;
}

async function repeat(turn, times) {
  for (let i = 0; i < times; i++) await turn();
}
