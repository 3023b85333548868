// @ts-check
// The messages about a request that waits for a lease of its own manager.
import { warn } from "./options.mjs";

export const OWN_WAIT = "work that waits for the lease it runs under waits for ever, unless both requests use the same mode and { share: true }";

export const OF_SEVERAL = "release the lease first, or acquire all the keys in one call";

export const warnOfOwnWait = (what) => warn(`${what}; ${OWN_WAIT}; acquireAll() cannot share: ${OF_SEVERAL}`);

/** The wasm calls this. */
export const waitsLong = (key) =>
  warnOfOwnWait(`leasehold: a request for "${key}" has waited for a minute for a lease of its own manager`);
