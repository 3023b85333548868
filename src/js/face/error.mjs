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

/** Calls the wasm. Brings what is there at once, else a promise. What goes wrong there becomes a LeaseError. */
export function ask(call) {
  try {
    const answer = call();
    return answer instanceof Promise ? answer.catch(fail) : answer;
  } catch (cause) {
    return fail(cause);
  }
}

function fail(cause) {
  // What is no string is a bug, such as a trap.
  if (typeof cause !== "string") throw new LeaseError("Internal", `a bug in leasehold: ${cause}`, { cause });
  const [code] = cause.split(" ", 1);
  throw new LeaseError(code, cause.slice(code.length + 1));
}

/** A loss, as `lease.signal` tells it. */
export function lossOf({ key, token }, reason) {
  const message = `the lease of ${JSON.stringify(key)} was lost: ${reason}`;
  return new LeaseError("LeaseLost", message, { reason, key, token });
}
