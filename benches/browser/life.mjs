// The holder goes, and a waiter in another tab gets its turn. How long that took is seen by the waiter alone, so that no
// two clocks are compared: from the holder's last sign of life to the grant. There is a sign every 1 to 4 ms.
import { inTime } from "./wait.mjs";

const signs = new BroadcastChannel("bench-signs");

// Calls `action` for each of these names, and returns the results. A name whose call fails or hangs has none, and `failures` says why.
async function each(names, failures, ms, action) {
  const results = {};
  const attempt = async (name) => {
    try {
      results[name] = await inTime(action(name), ms);
    } catch (error) {
      failures[name] = String(error);
    }
  };
  await Promise.all(names.map(attempt));
  return results;
}

// Takes the locks with these names, and lives. Returns why some could not be taken.
export async function live(locks, names, key) {
  const failures = {};
  for (const name of names) await each([name], failures, 20_000, () => locks[name].take(key));
  setInterval(() => signs.postMessage(key), 1);
  return failures;
}

// The same in a worker, which has only what works there: leasehold and Web Locks.
let worker;

export function startWorker(key) {
  worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
  const holds = new Promise((resolve, reject) => {
    worker.onmessage = resolve;
    worker.onerror = (event) => reject(Error(event.message));
    worker.postMessage(key);
  });
  return inTime(holds);
}

export const endWorker = () => worker.terminate();

// Keys whose waiters all stand in their queues.
const waits = new Set();
export const waiting = (key) => waits.has(key);

// A holder may give back what it has before it shows its last sign of life, but not long before.
const EARLY_MS = 100;

// Waits for all of these locks at once. Returns the time that each took, in ms, and why others failed. A lock that was granted long before
// the holder ended has neither.
export async function takeOver(locks, names, key) {
  const failures = {};
  let lastSign;
  const listen = ({ data }) => {
    if (data === key) lastSign = performance.now();
  };
  signs.addEventListener("message", listen);
  const taking = each(names, failures, 40_000, async (name) => {
    const giveBack = await locks[name].take(key);
    return { granted: performance.now(), giveBack };
  });
  await each(names, failures, 10_000, (name) => locks[name].queued(key));
  waits.add(key);
  const taken = await taking;
  waits.delete(key);
  signs.removeEventListener("message", listen);
  await each(Object.keys(taken), failures, 5_000, (name) => taken[name].giveBack());
  const fair = Object.entries(taken).filter(([, { granted }]) => granted > lastSign - EARLY_MS);
  return { samples: Object.fromEntries(fair.map(([name, { granted }]) => [name, Math.max(0, granted - lastSign)])), failures };
}
