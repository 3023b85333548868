// @ts-check
// Checks what users pass in, before anything is done.
import { LeaseError } from "./error.mjs";

export const isObject = (value) => typeof value === "object" && value !== null;

/** By its looks: an object of another window is no instance of this one's class. */
export const isA = (type, value) => ({}).toString.call(value) === `[object ${type}]`;

/** Stricter than isA: the browser's own getter throws if the value is a proxy or an imitation. Neither must reach the wasm. */
const isReal = (type, getter, value) =>
  isA(type, value) && (Object.getOwnPropertyDescriptor(globalThis[type]?.prototype ?? {}, getter)?.get?.call(value), true);

/** Whether it is an object that can hold options. Otherwise a signal or a map in place of the options would be ignored. */
const isPlain = (value) => isObject(value) && isA("Object", value);

/** A wait needs both methods. If one of them failed in between, nobody would hold a lease that was granted meanwhile. */
const isHeard = (value) => typeof value.addEventListener === "function" && typeof value.removeEventListener === "function";

/** What a value must be, in words and as a test. @type {Record<string, [string, (value: any) => boolean]>} */
export const KINDS = {
  any: ["anything", () => true],
  object: ["", isPlain],
  list: ["an array of one or more { key, mode }", (value) => Array.isArray(value) && value.length > 0],
  work: ["a function", (value) => typeof value === "function"],
  source: ["a URL, bytes or a WebAssembly.Module", () => false],
  key: ["1 to 1024 UTF-16 units of well-formed text", (value) => KINDS.name[1](value) && value.length <= 1024],
  string: ["a string", (value) => typeof value === "string"],
  text: ["a string of well-formed text", (value) => KINDS.string[1](value) && /^\P{Cs}*$/u.test(value)],
  name: ["a string of well-formed text, not empty", (value) => KINDS.text[1](value) && value !== ""],
  span: ["a finite number of milliseconds, 0 or more", (value) => Number.isFinite(value) && value >= 0],
  hold: ["a number of milliseconds, more than 0, up to 86400000", (value) => typeof value === "number" && value > 0 && value <= 864e5],
  wait: ["a number of milliseconds, 0 or more, or Infinity", (value) => typeof value === "number" && value >= 0],
  rank: ["a whole number of 32 bits", (value) => typeof value === "number" && (value | 0) === value],
  choice: ["true or false", (value) => typeof value === "boolean"],
  mode: ['"exclusive" or "shared"', (value) => value === "exclusive" || value === "shared"],
  policy: ['"notify" or "abort"', (value) => value === "notify" || value === "abort"],
  database: ["an open IDBDatabase, or a database that idb or Dexie has opened", (value) => isReal("IDBDatabase", "name", value)],
  transaction: ["an IDBTransaction, or a transaction of idb or Dexie", (value) => isReal("IDBTransaction", "mode", value)],
  store: ['"indexeddb" or "memory"', (value) => ["indexeddb", "memory"].includes(value) || KINDS.work[1](value?.nextFault)],
  // By its looks: a signal of another window is no instance of this one's class.
  signal: ["an AbortSignal", (value) => typeof value?.aborted === "boolean" && isHeard(value)],
};

export const ATTACH = {
  leaseMs: "span",
  heartbeatMs: "span",
  storeTimeoutMs: "span",
  lingerMs: "span",
  beacon: "choice",
  instance: "name",
  debug: "choice",
};
export const OPEN = { ...ATTACH, store: "store" };
export const FENCE = { renew: "choice" };
export const UPGRADE = { signal: "signal" };
export const STEAL = { info: "text" };
export const ELECT = { signal: "signal", priority: "rank", info: "text" };
export const ACQUIRE_ALL = { timeoutMs: "wait", ...ELECT };
export const ITEM = { key: "any", mode: "mode" };
export const TRY_ACQUIRE = { mode: "mode", share: "choice", info: "text", maxHoldMs: "hold", autoRenew: "choice" };
export const TRY_RUN = { ...TRY_ACQUIRE, onLost: "policy" };
export const ACQUIRE = { ...TRY_ACQUIRE, ...ACQUIRE_ALL };
export const RUN = { ...ACQUIRE, onLost: "policy" };

/** Calls something that may throw because of the user's value, such as a getter or a proxy. */
export function harmless(code, what, look) {
  try {
    return look();
  } catch (cause) {
    throw cause instanceof LeaseError ? cause : new LeaseError(code, `${what} cannot be looked at: ${show(cause)}`, { cause });
  }
}

/** Calls something that may throw, where nobody needs to hear of the failure. */
export function quiet(call) {
  try {
    return call();
  } catch {
    // The caller goes on as if nothing had been called.
  }
}

/** Warns. If somebody replaced `console.warn` by a function that throws, as some tests do, the sentence goes to `console.error`. */
export function warn(sentence) {
  try {
    console.warn(sentence);
  } catch {
    quiet(() => console.error(sentence));
  }
}

/** An error shows only the beginning of a long text, such as the source of a function. */
const shortened = (text) => (text.length > 99 ? `${text.slice(0, 99)}…` : text);

export function show(value) {
  try {
    if (Array.isArray(value)) return `an array of length ${value.length}`;
    if (isObject(value) && !(value instanceof Error)) return {}.toString.call(value);
    return typeof value === "string" ? JSON.stringify(shortened(value)) : shortened(`${String(value)}${typeof value === "bigint" ? "n" : ""}`);
  } catch {
    return "something odd";
  }
}

export const misfit = (what, mustBe, value) => `${what} must be ${mustBe}; it is ${show(value)}`;

export function check(code, what, kind, value, example) {
  const [mustBe, fits] = KINDS[kind];
  if (harmless(code, what, () => fits(value))) return;
  const hint = example && typeof value === "function" ? "; only `run`, `tryRun` and `elect` take work" : "";
  throw new LeaseError(code, misfit(what, mustBe || `an object such as { ${example} }`, value) + hint);
}

/** The wasm checks the rest. It never sees halves of surrogate pairs: the conversion to UTF-8 replaces each by the same character. */
export function checkKey(key) {
  check("InvalidKey", "the key", "string", key);
  const at = key.search(/\p{Cs}/u);
  if (at >= 0) throw new LeaseError("InvalidKey", `the key has a lone surrogate at UTF-16 unit ${at}; use well-formed text`);
}

/** Reads each option once. Refuses unknown names, and values that do not fit. */
export function read(options, kinds, item = "") {
  if (options === undefined && !item) return {};
  const what = item || "what holds the options";
  const names = Object.keys(kinds);
  check("InvalidOptions", what, "object", options, item ? names.join(", ") : kinds.signal ?? names.at(-1));
  const where = item && `${item}.`;
  return harmless("InvalidOptions", what, () => {
    const stranger = Object.keys(options).find((name) => !names.includes(name));
    if (stranger !== undefined) {
      throw new LeaseError("InvalidOptions", `unknown option \`${where}${stranger}\`; ${advice(stranger, names)}`);
    }
    const values = {};
    for (const name of names) {
      const value = (values[name] = options[name]);
      if (value !== undefined) check("InvalidOptions", where + name, kinds[name], value);
    }
    return values;
  });
}

/** What other methods take, or other lock libraries request by an option. */
const METHODS = { steal: "use `steal(key)`", onLost: "it is an option of `run()`", ifAvailable: "use `tryAcquire(key)` or `tryRun(key, work)`" };

function advice(stranger, names) {
  if (stranger === "timeoutMs") {
    if (names.includes("share")) return "use `acquire` or `run`, which wait";
    if (names.includes("leaseMs")) return "it is an option of `leases.acquire()`";
    if (names[0] === "signal" && !names[1]) return "use `signal: AbortSignal.timeout(ms)`";
  }
  if (stranger === "shared" && names.includes("mode")) return 'use `mode: "shared"`';
  if (Object.hasOwn(OPEN, stranger)) return "it is an option of `LeaseManager.open()`";
  if (Object.hasOwn(METHODS, stranger)) return METHODS[stranger];
  const far = names.map((name) => distance(stranger.toLowerCase(), name.toLowerCase()));
  const least = Math.min(...far);
  const nearest = names[far.indexOf(least)];
  return least <= nearest.length / 2 ? `did you mean \`${nearest}\`?` : `there are ${names.join(", ")}`;
}

/** How many letters to change, add or drop to get from one word to the other. */
function distance(from, to) {
  let row = [...to, ""].map((_, column) => column);
  for (const letter of from) {
    const next = [row[0] + 1];
    for (let column = 0; column < to.length; column++) {
      next.push(Math.min(next[column] + 1, row[column + 1] + 1, row[column] + Number(letter !== to[column])));
    }
    row = next;
  }
  return row[to.length];
}
