// @ts-check
// Work under a lease. A promise cannot be dropped as in Rust, so work that was given up goes on, and its outcome is ignored.

import { listen } from "./signal.mjs";

/** Does the work under a lease, or the promise of one, and releases the lease. Returns the outcome. */
export async function worked(granted, onLost, work) {
  // This also awaits a lease that exists already, so that work never begins within the call itself.
  const lease = await granted;
  let value;
  try {
    value = await (onLost === "abort" ? unlessLost(lease, work) : work(lease));
  } catch (error) {
    await end(lease);
    throw error;
  }
  // A release that got no answer does not tell whether the lease was held before.
  const lost = (await end(lease)) === "lost" ? await lease.lost : null;
  return { value, lost };
}

/** Releases a lease, and waits for that. If the lease is lost, this does not take long, whatever the store does. */
export const end = (lease) => lease.release().catch(() => {});

/** Returns what the work returns. If the lease's signal aborts before, rejects with the signal's reason. */
export function unlessLost(lease, work) {
  const { signal } = lease;
  return new Promise((resolve, reject) => {
    const lose = () => reject(signal.reason);
    if (signal.aborted) return lose();
    // This listener runs before those of the work, because the work may then fail with an error of its own.
    const unlisten = listen(signal, lose);
    const working = (async () => work(lease))();
    working.then(resolve, reject).finally(unlisten);
  });
}
