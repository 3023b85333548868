// @ts-check
// What goes wrong, as the user learns it.

/** By this, copies of the package know each other's errors. */
const BRAND = Symbol.for("leasehold.LeaseError");

/** Only the package makes leases, managers and events. */
export const INTERNAL = Symbol();

/** The DOM's names for what goes wrong, where it has one. */
const DOM_NAMES = {
  Timeout: "TimeoutError",
  Closed: "InvalidStateError",
  InitConflict: "InvalidStateError",
  Unsupported: "NotSupportedError",
  Quota: "QuotaExceededError",
};

/** To TypeScript, the `code` of a DOMException is a number. @type {any} */
const Base = DOMException;

/** Any failure; `code` says which. */
export class LeaseError extends Base {
  constructor(code, message, details) {
    super(message, DOM_NAMES[code] ?? "LeaseError");
    for (const [name, value] of Object.entries({ code, ...details })) {
      // Assigned, it would meet the DOM's own `code`, which is read-only.
      Object.defineProperty(this, name, { value, enumerable: true });
    }
  }

  get [BRAND]() {
    return true;
  }
}

export function isLeaseError(value) {
  return typeof value === "object" && value !== null && BRAND in value;
}

/** Calls the wasm. Brings what is there at once, else a promise. What goes wrong there becomes a LeaseError, a loss one of
 *  this lease. */
export function ask(call, lease = {}) {
  try {
    const answer = call();
    return answer instanceof Promise ? answer.catch((cause) => fail(cause, lease)) : answer;
  } catch (cause) {
    return fail(cause, lease);
  }
}

function fail(cause, lease) {
  // What is no string is a bug, such as a trap.
  if (typeof cause !== "string") throw new LeaseError("Internal", `a bug in leasehold: ${cause}`, { cause });
  const [code] = cause.split(" ", 1);
  const said = cause.slice(code.length + 1);
  throw code === "LeaseLost" ? lossOf(lease, said) : new LeaseError(code, said);
}

/** A loss, as `lease.signal` tells it. */
export function lossOf({ key, token }, reason, what = `was lost: ${reason}`) {
  return new LeaseError("LeaseLost", `the lease of ${key === undefined ? "a key" : JSON.stringify(key)} ${what}`, { reason, key, token });
}

/** Asks for what stops when the signal aborts: then its reason is thrown as it is, and what came in that moment is
 *  undone, if it can be. */
export async function stoppable(signal, call, undo) {
  if (signal.aborted) throw signal.reason;
  let stop;
  const stopped = new Promise((resolve) => (stop = () => resolve(undefined)));
  signal.addEventListener("abort", stop);
  try {
    const answer = await call(stopped);
    if (answer !== undefined) {
      if (!undo || !signal.aborted) return answer;
      undo(answer);
    }
    throw signal.reason;
  } finally {
    signal.removeEventListener("abort", stop);
    // The wasm waits for this promise, too.
    stop();
  }
}

/** The same of what cannot be stopped: it is left behind, and what comes of it is undone. */
export function unlessStopped(signal, call, undo) {
  return stoppable(signal, async (stopped) => {
    const called = call();
    const answer = await Promise.race([called, stopped]);
    if (!signal.aborted) return answer;
    called.then(undo, () => {});
  });
}
