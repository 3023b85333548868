// @ts-check
// A context's door to the leases of a store.
import { LeaseManager as Wasm } from "./leasehold.js";
import { rawDatabase } from "./database.mjs";
import { INTERNAL, ask } from "./error.mjs";
import { HAPPENINGS, LeaseEvent } from "./event.mjs";
import { Lease } from "./lease.mjs";
import { init } from "./loading.mjs";
import { ACQUIRE, ATTACH, OPEN, TRY_ACQUIRE, check, checkKey, read } from "./options.mjs";

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

// Where an engine lacks the symbol, a computed name in the class would make a method called "undefined".
if (Symbol.asyncDispose) LeaseManager.prototype[Symbol.asyncDispose] = LeaseManager.prototype.close;
