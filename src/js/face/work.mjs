// @ts-check
// Work under a lease. A promise cannot be dropped as in Rust: work that is left behind goes on, and nobody hears how it ends.

import { listen } from "./signal.mjs";

/** Does the work under a lease or the promise of one, and gives that back. What became of it. */
export async function worked(granted, onLost, work) {
  // Also for a lease that is there already: work never begins within the call that asks for it.
  const lease = await granted;
  let value;
  try {
    value = await (onLost === "abort" ? unlessLost(lease, work) : work(lease));
  } catch (error) {
    await end(lease);
    throw error;
  }
  // A release that got no answer says nothing of the time before it.
  const lost = (await end(lease)) === "lost" ? await lease.lost : null;
  return { value, lost };
}

/** Gives a lease back, and waits for that; not for long if it is lost, whatever the store does. */
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
