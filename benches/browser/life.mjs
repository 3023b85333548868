// The holder goes, and a waiter in another tab gets its turn. How long that took is seen by the waiter alone, so that no
// two clocks are compared: from the holder's last sign of life to the grant. There is a sign every 1 to 4 ms.
import { sleep } from "./wait.mjs";

const signs = new BroadcastChannel("bench-signs");

// Takes the locks with these names, and lives.
export async function live(locks, names, key) {
  for (const name of names) await locks[name].take(key);
  setInterval(() => signs.postMessage(key), 1);
}

// The same in a worker, which has only what works there: leasehold and Web Locks.
let worker;

export function startWorker(key) {
  worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
  return new Promise((resolve, reject) => {
    worker.onmessage = resolve;
    worker.onerror = (event) => reject(Error(event.message));
    worker.postMessage(key);
  });
}

export const endWorker = () => worker.terminate();

// Keys whose waiters all stand in their queues.
const waits = new Set();
export const waiting = (key) => waits.has(key);

// A holder may give back what it has before it shows its last sign of life, but not long before.
const EARLY_MS = 100;

// Waits for all of these locks at once. Brings the time each took, in ms; none for who had it long before its holder
// ended, or has none yet after half a minute.
export async function takeOver(locks, names, key) {
  let lastSign;
  const listen = ({ data }) => {
    if (data === key) lastSign = performance.now();
  };
  signs.addEventListener("message", listen);
  const grants = names.map(async (name) => {
    const giveBack = await locks[name].take(key);
    const granted = performance.now();
    return { name, granted, giveBack };
  });
  await Promise.all(names.map((name) => locks[name].queued(key)));
  waits.add(key);
  const taken = await Promise.all(grants.map((grant) => Promise.race([grant, sleep(30_000)])));
  waits.delete(key);
  signs.removeEventListener("message", listen);
  await Promise.all(taken.map((grant) => grant?.giveBack()));
  const fair = taken.filter((grant) => grant?.granted > lastSign - EARLY_MS);
  return Object.fromEntries(fair.map(({ name, granted }) => [name, Math.max(0, granted - lastSign)]));
}
