// @ts-check
// Work under a lease. A promise cannot be dropped as in Rust: work that is left behind goes on, and nobody hears how it ends.

/** Does the work under a lease or the promise of one, and gives that back. What became of it. */
export async function worked(granted, aborts, work) {
  // Also for a lease that is there already: work never begins within the call that asks for it.
  const lease = await granted;
  let value;
  try {
    value = await (aborts ? unlessAborted([lease.signal], lease, work) : work(lease));
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

/** What the work gives, or the reason of the signal that aborts before. */
export function unlessAborted(signals, lease, work) {
  return new Promise((resolve, reject) => {
    const stops = new AbortController();
    for (const signal of signals) {
      if (signal.aborted) return reject(signal.reason);
      // Before the work hears of it, which may then fail in its own words.
      signal.addEventListener("abort", () => reject(signal.reason), { signal: stops.signal });
    }
    const working = (async () => work(lease))();
    working.then(resolve, reject).finally(() => stops.abort(null));
  });
}
