// @ts-check
// The package's face. index.d.ts tells what is exported and its types; what happens to leases happens in the wasm.
import load, { LeaseManager as Wasm } from "./leasehold.js";

/** By this, copies of the package know each other's errors. */
const BRAND = Symbol.for("leasehold.LeaseError");

/** Only this file makes leases and managers. */
const INTERNAL = Symbol();

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
  return isObject(value) && BRAND in value;
}

/** Calls the wasm. Brings what is there at once, else a promise. What goes wrong there becomes a LeaseError. */
function ask(call) {
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

const isObject = (value) => typeof value === "object" && value !== null;

/** By its looks: an object of another window is no instance of this one's class. */
const isA = (type, value) => ({}).toString.call(value) === `[object ${type}]`;

/** What a value must be, in words and as a test. @type {Record<string, [string, (value: any) => boolean]>} */
const KINDS = {
  object: ["an object", isObject],
  source: ["a URL, bytes or a WebAssembly.Module", (value) => typeof value === "string"],
  text: ["a string", (value) => typeof value === "string"],
  prefix: ["a string of well-formed text", (value) => KINDS.text[1](value) && /^\P{Cs}*$/u.test(value)],
  name: ["a string of well-formed text, not empty", (value) => KINDS.text[1](value) && /^\P{Cs}+$/u.test(value)],
  span: ["a finite number of milliseconds, 0 or more", (value) => Number.isFinite(value) && value >= 0],
  wait: ["a number of milliseconds, 0 or more", (value) => typeof value === "number" && value >= 0],
  choice: ["true or false", (value) => typeof value === "boolean"],
  database: ["an open IDBDatabase, or a database that idb or Dexie has opened", (value) => isA("IDBDatabase", value)],
  transaction: ["an IDBTransaction, or a transaction of idb or Dexie", (value) => isA("IDBTransaction", value)],
  store: ['"indexeddb" or "memory"', (value) => value === "indexeddb" || value === "memory"],
  // By its looks: a signal of another window is no instance of this one's class.
  signal: ["an AbortSignal", (value) => isObject(value) && "aborted" in value && "addEventListener" in value],
};

const ATTACH = {
  leaseMs: "span",
  heartbeatMs: "span",
  storeTimeoutMs: "span",
  lingerMs: "span",
  beacon: "choice",
};
const OPEN = { ...ATTACH, store: "store" };
const FENCE = { renew: "choice" };
const ACQUIRE = { timeoutMs: "wait", signal: "signal", info: "text" };
const TRY_ACQUIRE = { info: "text" };

function check(code, what, kind, value) {
  const [mustBe, fits] = KINDS[kind];
  if (fits(value)) return;
  const shown = isObject(value) ? {}.toString.call(value) : typeof value === "string" ? JSON.stringify(value) : String(value);
  throw new LeaseError(code, `${what} must be ${mustBe}; it is ${shown}`);
}

const checkKey = (key) => check("InvalidKey", "the key", "text", key);

/** Reads each option once. Refuses names that are none of ours, and values that do not fit. */
function read(options, kinds) {
  check("InvalidOptions", "what holds the options", "object", options);
  const names = Object.keys(kinds);
  const stranger = Object.keys(options).find((name) => !names.includes(name));
  if (stranger !== undefined) {
    throw new LeaseError("InvalidOptions", `unknown option \`${stranger}\`; ${advice(stranger, names)}`);
  }
  const values = names.map((name) => {
    const value = options[name];
    if (value !== undefined) check("InvalidOptions", name, kinds[name], value);
    return [name, value];
  });
  return Object.fromEntries(values);
}

function advice(stranger, names) {
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

// The user's own database: raw, or as idb and Dexie show it.

/** What a wrapping of idb stands for: it calls functions on the object itself. (An event would show it too, but in WebKit a
 *  transaction that was shown one is active no more.) */
function unwrapped(value) {
  if (!isA("IDBDatabase", value) && !isA("IDBTransaction", value)) return value;
  let raw = value;
  value[UNWRAP] = function () {
    raw = this;
  };
  value[UNWRAP]();
  delete value[UNWRAP];
  return raw;
}

const UNWRAP = Symbol();

/** Dexie's has the browser's, once it is open. */
function rawDatabase(value) {
  const raw = unwrapped(typeof value?.backendDB === "function" ? value.backendDB() : value);
  check("InvalidOptions", "the database", "database", raw);
  return raw;
}

/** Dexie's has the browser's; one within another may leave that to the outer one. */
function rawTransaction(value) {
  let outer = value;
  while (isObject(outer) && !outer.idbtrans && isObject(outer.parent)) outer = outer.parent;
  return unwrapped(outer?.idbtrans ?? outer);
}

export function createStore(db) {
  const raw = rawDatabase(db);
  if (!raw.objectStoreNames.contains("leasehold")) raw.createObjectStore("leasehold");
}

// Where the wasm comes from.

/** The choice that counts: what identifies it, its name for people, and the loading. */
let chosen;

export function init(source) {
  if (source === undefined && chosen) return chosen.ready;
  try {
    const wasm = source ?? new URL("./leasehold_bg.wasm", import.meta.url);
    const [identity, name] = identify(wasm);
    chosen ??= { identity, name, ready: start(wasm, name) };
    if (chosen.identity === identity) return chosen.ready;
    throw new LeaseError("InitConflict", `init() with ${name} comes too late: ${chosen.name} was chosen before`);
  } catch (error) {
    return Promise.reject(error);
  }
}

function identify(source) {
  if (source instanceof WebAssembly.Module) return [source, "a WebAssembly.Module"];
  const bytes = source instanceof ArrayBuffer ? new DataView(source) : source;
  if (ArrayBuffer.isView(bytes)) {
    const { buffer, byteOffset, byteLength } = bytes;
    let hash = 0;
    for (const byte of new Uint8Array(buffer, byteOffset, byteLength)) hash = Math.imul(hash ^ byte, 0x01000193);
    const name = `${byteLength} bytes of hash ${hash}`;
    return [name, name];
  }
  if (!(source instanceof URL)) check("InvalidOptions", "what init() takes", "source", source);
  return [String(source), String(source)];
}

async function start(wasm, name) {
  try {
    const isUrl = typeof wasm === "string" || wasm instanceof URL;
    await load({ module_or_path: isUrl ? await download(wasm) : wasm });
  } catch (cause) {
    // Another try may succeed.
    chosen = undefined;
    const advice = "is it served, and does the Content-Security-Policy allow 'wasm-unsafe-eval'?";
    throw new LeaseError("InitFailed", `the wasm did not load from ${name}: ${cause}; ${advice}`, { cause });
  }
}

async function download(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`HTTP status ${response.status}`);
  // Of a response with another type, the glue would warn in the console.
  return response.headers.get("Content-Type") === "application/wasm" ? response : response.arrayBuffer();
}

// The leases.

/** The types of events. */
const HAPPENINGS = new Set(["waiting", "withdrawn", "granted", "suspect", "certain", "lost", "released"]);

/** Something that happened to a lease. */
export class LeaseEvent extends Event {
  constructor(internal, type, details) {
    if (internal !== INTERNAL) throw new TypeError("an event is made by what happens to a lease");
    super(type);
    for (const [name, value] of Object.entries(details)) Object.defineProperty(this, name, { value, enumerable: true });
  }
}

export class LeaseManager extends EventTarget {
  #wasm;
  #closed;
  #listens = false;

  constructor(internal, wasm) {
    if (internal !== INTERNAL) throw new TypeError("a manager is made by `await LeaseManager.open(name)`");
    super();
    this.#wasm = wasm;
    // Not frozen: some engines keep their notes on listeners in the object.
  }

  /** Another one after each suspension. */
  get holder() {
    return this.#wasm.holder;
  }

  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
    if (this.#listens || !HAPPENINGS.has(type)) return;
    this.#listens = true;
    this.#wasm.listen((type, details) => this.dispatchEvent(new LeaseEvent(INTERNAL, type, details)));
  }

  static async open(name, options = {}) {
    check("InvalidOptions", "the name", "name", name);
    const { leaseMs, heartbeatMs, storeTimeoutMs, lingerMs, beacon, store } = read(options, OPEN);
    await init();
    const inMemory = store === "memory";
    const wasm = await ask(() => Wasm.open(name, inMemory, leaseMs, heartbeatMs, storeTimeoutMs, lingerMs, beacon));
    return new LeaseManager(INTERNAL, wasm);
  }

  static async attach(db, options = {}) {
    const raw = rawDatabase(db);
    const { leaseMs, heartbeatMs, storeTimeoutMs, lingerMs, beacon } = read(options, ATTACH);
    await init();
    const wasm = await ask(() => Wasm.attach(raw, leaseMs, heartbeatMs, storeTimeoutMs, lingerMs, beacon));
    return new LeaseManager(INTERNAL, wasm);
  }

  async acquire(key, options = {}) {
    checkKey(key);
    const { timeoutMs, signal, info } = read(options, ACQUIRE);
    if (signal?.aborted) throw signal.reason;
    let stop = () => {};
    const stopped = signal && new Promise((resolve) => (stop = () => resolve(undefined)));
    signal?.addEventListener("abort", stop);
    try {
      const limitMs = timeoutMs === Infinity ? undefined : timeoutMs;
      const wasm = await ask(() => this.#wasm.acquire(key, info, limitMs, stopped));
      const lease = wasm && new Lease(INTERNAL, wasm, key);
      if (!signal?.aborted) return lease;
      // It may have been granted in that moment.
      lease?.release().catch(() => {});
      throw signal.reason;
    } finally {
      signal?.removeEventListener("abort", stop);
      // The wasm waits for this promise, too.
      stop();
    }
  }

  async tryAcquire(key, options = {}) {
    checkKey(key);
    const { info } = read(options, TRY_ACQUIRE);
    const wasm = await ask(() => this.#wasm.tryAcquire(key, info));
    return wasm ? new Lease(INTERNAL, wasm, key) : null;
  }

  async status(key) {
    checkKey(key);
    return ask(() => this.#wasm.status(key));
  }

  async list(prefix = "") {
    check("InvalidKey", "the prefix", "prefix", prefix);
    return ask(() => this.#wasm.list(prefix));
  }

  stats() {
    return this.#wasm.stats();
  }

  close() {
    return (this.#closed ??= this.#end());
  }

  async #end() {
    await ask(() => this.#wasm.close());
  }
}

function lossOf({ key, token }, reason) {
  const message = `the lease of ${JSON.stringify(key)} was lost: ${reason}`;
  return new LeaseError("LeaseLost", message, { reason, key, token });
}

/** What cannot be checked must not be written. */
function abort(transaction) {
  try {
    if (KINDS.transaction[1](transaction)) transaction.abort();
  } catch {
    // It is over.
  }
}

export class Lease {
  /** Until the release is over. */
  #wasm;
  #released;
  /** Why it was lost, if the release said that it was. */
  #reason;
  #lost;
  #signal;

  constructor(internal, wasm, key) {
    if (internal !== INTERNAL) throw new TypeError("a lease is made by `await leases.acquire(key)`");
    this.#wasm = wasm;
    this.key = key;
    this.token = wasm.token;
    Object.freeze(this);
  }

  // Neither of these two is made before somebody asks: they cost more than all else of a lease that lingered.
  get lost() {
    return (this.#lost ??= Promise.resolve(this.#wasm?.lost ?? new Promise(() => {})));
  }

  get signal() {
    const reason = this.#reason ?? this.#wasm?.reason;
    return (this.#signal ??= signalOf(reason, this.lost, this.key, this.token));
  }

  get remainingMs() {
    return this.#wasm?.remainingMs ?? 0;
  }

  get valid() {
    return this.remainingMs > 0;
  }

  get expiresAt() {
    return Date.now() + this.remainingMs;
  }

  async verify() {
    const wasm = this.#wasm;
    return wasm && !this.#released ? ask(() => wasm.verify()) : false;
  }

  fence(transaction, options = {}) {
    const fenced = this.#check(transaction, options);
    // Who does not wait for it need not hear: nothing was written.
    fenced.catch(() => {});
    return fenced;
  }

  async #check(transaction, options) {
    const raw = rawTransaction(transaction);
    try {
      check("InvalidOptions", "what is fenced", "transaction", raw);
      const { renew = false } = read(options, FENCE);
      const wasm = this.#wasm;
      if (!wasm) throw lossOf(this, this.#reason ?? "Expired");
      // Nothing was awaited so far: it is asked before whatever the caller asks next.
      await ask(() => wasm.fence(raw, renew));
    } catch (error) {
      abort(raw);
      throw error.code === "LeaseLost" && !error.reason ? lossOf(this, error.message) : error;
    }
  }

  release() {
    return (this.#released ??= this.#giveBack());
  }

  async #giveBack() {
    const wasm = this.#wasm;
    try {
      if (await ask(() => wasm.release())) return "released";
      // Who asks later is told all the same.
      this.#reason = wasm.reason;
      this.#lost ??= Promise.resolve(wasm.lost);
      return "lost";
    } finally {
      this.#wasm = undefined;
      wasm.free();
    }
  }
}

/** Without the lease itself: whoever keeps the signal alone is told, too. */
function signalOf(reason, lost, key, token) {
  const controller = new AbortController();
  const abort = (reason) => controller.abort(lossOf({ key, token }, reason));
  if (reason === undefined) lost.then(abort);
  else abort(reason);
  return controller.signal;
}

// Where an engine lacks the symbols, a computed name in the class would make a method called "undefined".
if (Symbol.asyncDispose) {
  LeaseManager.prototype[Symbol.asyncDispose] = LeaseManager.prototype.close;
  Lease.prototype[Symbol.asyncDispose] = Lease.prototype.release;
}
if (Symbol.dispose) {
  Lease.prototype[Symbol.dispose] = function () {
    this.release().catch(() => {});
  };
}
