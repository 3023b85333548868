// @ts-check
// The errors that users see.

/** By this, copies of the package know each other's errors. */
const BRAND = Symbol.for("leasehold.LeaseError");

/** Shows that the package itself calls a constructor: only it creates leases, managers and events. */
export const INTERNAL = Symbol();

export function checkMaker(internal, sentence) {
  if (internal !== INTERNAL) throw new TypeError(sentence);
}

/** Gives an object properties that can be listed and not written. An assignment of `code` would fail: the DOM's own is read-only. */
export function show(object, values) {
  for (const [name, value] of Object.entries(values)) Object.defineProperty(object, name, { value, enumerable: true });
}

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

/** Not in every engine, and unknown to TypeScript. @type {any} */
const { captureStackTrace } = Error;

/** Every error of the package. Its `code` says what went wrong. */
export class LeaseError extends Base {
  constructor(code, message, details) {
    super(message, DOM_NAMES[code] ?? "LeaseError");
    // Chromium gives no stack to an error whose class extends that of the DOM.
    captureStackTrace?.(this);
    show(this, { code, ...details });
  }

  get [BRAND]() {
    return true;
  }
}

export function isLeaseError(value) {
  try {
    return typeof value === "object" && value !== null && BRAND in value;
  } catch {
    // A proxy may throw, or be revoked.
    return false;
  }
}

/** Calls the wasm. Brings what is there at once, else a promise. What goes wrong there becomes a LeaseError, a loss one of
 *  this lease, or of the one among several keys that the wasm names by its place. */
export function ask(call, lease = {}) {
  try {
    const answer = call();
    return answer instanceof Promise ? kept(answer).catch((cause) => fail(cause, lease)) : answer;
  } catch (cause) {
    return fail(cause, lease);
  }
}

function fail(cause, lease) {
  // What is no string is a bug, such as a trap.
  if (typeof cause !== "string") throw new LeaseError("Internal", `a bug in leasehold: ${cause}`, { cause });
  const [, place, code, said] = /^(?:(\d+) )?(\w+) (.*)$/s.exec(cause) ?? [];
  const about = place ? { key: lease.keys[place] } : lease;
  if (code === "LeaseLost") throw lossOf(about, said || undefined);
  throw new LeaseError(code, said, code === "Timeout" && { key: about.key });
}

/** The longest delay of a timer, in ms. */
const LONGEST_MS = 2 ** 31 - 1;

let waitedFor = 0;
let keeper;

/** Node.js ends when nothing is left that keeps it. The timers of the wasm do not: a lease that is held must not keep a
 *  program from ending. Whoever waits for an answer must be waited for, by a timer that does. */
function kept(answer) {
  if (waitedFor === 0) keeper = setTimeout(() => {}, LONGEST_MS);
  if (typeof keeper === "number") {
    // Not Node.js: nothing ends while somebody waits. It is not tried again.
    clearTimeout(keeper);
    waitedFor = keeper = null;
  }
  if (!keeper) return answer;
  waitedFor += 1;
  return answer.finally(() => {
    waitedFor -= 1;
    if (waitedFor === 0) clearTimeout(keeper);
  });
}

/** Structured cloning copies what an object owns and can be seen, and fails at a function: without one, a copy that is no lease
 *  would arrive elsewhere. It changes nothing else: the object has this method anyhow. */
export function refuseClones(object, method) {
  object[method] = object[method];
}

/** The symbol, or, where the engine lacks it, what `using` looks for after esbuild, Babel or SWC has compiled it. */
const symbol = (name) => Symbol[name] ?? Symbol.for(`Symbol.${name}`);

/** Has `using` and `await using` call a method of the object; with `mustWait`, only `await using`. */
export function disposes({ prototype }, method, mustWait = false) {
  prototype[symbol("asyncDispose")] = prototype[method];
  if (mustWait) return;
  prototype[symbol("dispose")] = function () {
    this[method]().catch(() => {});
  };
}

/** The error of a method that was taken off its object, or of a property that is read on another object. */
export function detached(object, name, isRead = false) {
  const called = `${name}() was called without its object, or on a proxy: call ${object}.${name}(…), or bind it`;
  const read = `${object}.${name} was read on a proxy: read it on the object itself`;
  return new LeaseError("InvalidOptions", isRead ? read : called);
}

/** A loss, as `lease.signal` tells it; without a reason, the lease was released. */
export function lossOf({ key, token }, reason) {
  const what = reason ? `was lost: ${reason}` : "was released";
  return new LeaseError("LeaseLost", `the lease of ${key === undefined ? "a key" : JSON.stringify(key)} ${what}`, { reason, key, token });
}
