// @ts-check
// A context's door to the leases of a store.
import { LeaseManager as Wasm } from "./leasehold.js";
import { deleteDatabase, rawDatabase } from "./database.mjs";
import { INTERNAL, LeaseError, ask, stoppable, unlessStopped } from "./error.mjs";
import { HAPPENINGS, LeaseEvent } from "./event.mjs";
import { LeaseGroup, giveBack, itemsOf, waitForAll } from "./group.mjs";
import { Lease } from "./lease.mjs";
import { init } from "./loading.mjs";
import { LockManager } from "./locks.mjs";
import * as kinds from "./options.mjs";
import { check, checkKey, read } from "./options.mjs";
import { end, unlessAborted, worked } from "./work.mjs";

/** The bits that say to the wasm how a store is opened. */
const IN_MEMORY = 1;
const WITHOUT_BEACON = 2;
/** The bits that say to it how a lease is asked for. */
const SHARED = 1;
const TOGETHER = 2;
const STEAL = 4;

export class LeaseManager extends EventTarget {
  #wasm;
  #instance;
  #closed;
  #listens = false;
  #locks;

  constructor(internal, wasm, name, options) {
    if (internal !== INTERNAL) throw new TypeError("a manager is made by `await LeaseManager.open(name)`");
    super();
    this.#wasm = wasm;
    this.#instance = options.instance;
    // Not frozen: some engines keep their notes on listeners in the object.
    if (!options.debug) return;
    for (const type of HAPPENINGS) {
      this.addEventListener(type, (event) => console.debug(`leasehold ${name}: ${type} ${JSON.stringify(event.key)}`, event));
    }
  }

  /** Another one after each suspension. */
  get holder() {
    return this.#wasm.holder;
  }

  get locks() {
    return (this.#locks ??= new LockManager(INTERNAL, () => this.#wasm));
  }

  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
    if (this.#listens || !HAPPENINGS.has(type)) return;
    this.#listens = true;
    this.#wasm.listen((type, details) => this.dispatchEvent(new LeaseEvent(INTERNAL, type, details)));
  }

  static async open(name, options) {
    check("InvalidOptions", "the name", "name", name);
    return opened(name, undefined, read(options, kinds.OPEN));
  }

  static async attach(db, options) {
    const raw = rawDatabase(db);
    return opened(raw.name, raw, read(options, kinds.ATTACH));
  }

  static async delete(name) {
    const leases = await LeaseManager.open(name, { lingerMs: 0 });
    try {
      // Whoever died holding is no holder: only a try can tell.
      for (const { key } of await leases.list()) {
        if (!(await leases.tryAcquire(key))) throw inUse(await leases.status(key));
      }
      for (const { name } of (await leases.locks.query()).held) {
        const isFree = await leases.locks.request(name, { ifAvailable: true }, Boolean);
        if (!isFree) throw inUse({ key: name, holders: [{ info: "a request for a lock" }] });
      }
    } finally {
      await leases.close();
    }
    await deleteDatabase(name);
  }

  async acquire(key, options) {
    checkKey(key);
    return this.#lease(key, read(options, kinds.ACQUIRE));
  }

  async tryAcquire(key, options) {
    checkKey(key);
    return this.#try(key, read(options, kinds.TRY_ACQUIRE));
  }

  async steal(key, options) {
    checkKey(key);
    return this.#lease(key, read(options, kinds.STEAL), STEAL);
  }

  async acquireAll(keys, options) {
    const items = itemsOf(keys);
    const wish = read(options, kinds.ACQUIRE_ALL);
    const tries = wish.timeoutMs === 0;
    return new LeaseGroup(INTERNAL, await (tries ? this.#tryAll(items, wish) : waitForAll(items, wish, this)));
  }

  async #tryAll(items, { signal, info }) {
    const [keys, shared] = [items.map(({ key }) => key), items.map(({ mode }) => Number(mode === "shared"))];
    const leases = (granted) => granted.map((wasm, at) => new Lease(INTERNAL, wasm, keys[at]));
    const call = async () => (await ask(() => this.#wasm.tryAll(keys, shared, info))) ?? null;
    const granted = await (signal ? unlessStopped(signal, call, (granted) => granted && giveBack(leases(granted))) : call());
    if (granted) return leases(granted);
    for (const { key, mode } of this.#instance ? items : []) {
      const isTwin = ({ own, instance }) => !own && instance === this.#instance;
      if (!(await this.status(key)).holders.some(isTwin)) continue;
      // A try for its key finds out whether it lives, and says so.
      const lease = await this.#try(key, { mode, signal });
      await lease?.release();
      if (lease) return this.#tryAll(items, { signal, info });
    }
    throw new LeaseError("Timeout", "one of the keys is taken");
  }

  async run(key, options, work) {
    [options, work] = split(options, work);
    checkKey(key);
    const { onLost, ...wish } = read(options, kinds.RUN);
    check("InvalidOptions", "the work", "work", work);
    return worked(this.#lease(key, wish), onLost === "abort", work).then(({ value }) => value);
  }

  async tryRun(key, options, work) {
    [options, work] = split(options, work);
    checkKey(key);
    const { onLost, ...wish } = read(options, kinds.TRY_RUN);
    check("InvalidOptions", "the work", "work", work);
    const lease = await this.#try(key, wish);
    return lease ? { ran: true, ...(await worked(lease, onLost === "abort", work)) } : { ran: false };
  }

  async elect(key, options, work) {
    [options, work] = split(options, work);
    checkKey(key);
    const wish = read(options, kinds.ELECT);
    check("InvalidOptions", "the work", "work", work);
    for (;;) {
      const lease = await this.#lease(key, wish);
      const signals = [lease.signal, wish.signal].filter(Boolean);
      try {
        return await unlessAborted(signals, lease, work);
      } catch (error) {
        // A lead that is lost is won anew, never revived.
        if (!lease.signal.aborted) throw error;
      } finally {
        await end(lease);
      }
    }
  }

  async leader(key) {
    const { holders } = await this.status(key);
    return holders.find(({ mode }) => mode === "exclusive") ?? null;
  }

  /** The lease, or a promise of it: to await what is there costs some engines more than the lease itself. */
  #lease(key, wish, steal) {
    const made = (wasm) => new Lease(INTERNAL, wasm, key);
    const wasm = this.#request(key, wish, steal);
    return wasm instanceof Promise ? wasm.then(made) : made(wasm);
  }

  /** The wasm's lease, or a promise of it. */
  #request(key, { timeoutMs, signal, mode, share, priority, info }, steal = 0) {
    const how = steal | (mode === "shared" ? SHARED : 0) | (share ? TOGETHER : 0);
    const call = (stopped) =>
      ask(() => this.#wasm.request(key, how, priority, info, bounded(timeoutMs), stopped), { key });
    // It may have been granted in that moment.
    return signal ? stoppable(signal, call, (wasm) => giveBack([new Lease(INTERNAL, wasm, key)])) : call();
  }

  async #try(key, wish) {
    try {
      return await this.#lease(key, { ...wish, timeoutMs: 0 });
    } catch (error) {
      if (error.code === "Timeout") return null;
      throw error;
    }
  }

  async status(key) {
    checkKey(key);
    return ask(() => this.#wasm.status(key));
  }

  async list(prefix = "") {
    check("InvalidKey", "the prefix", "text", prefix);
    return ask(() => this.#wasm.list(prefix, false));
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

/** Times that are not chosen are no numbers, to the wasm. */
async function opened(name, database, { leaseMs = NaN, heartbeatMs = NaN, storeTimeoutMs = NaN, lingerMs = NaN, ...rest }) {
  const { beacon, instance, store } = rest;
  await init();
  const how = (store === "memory" ? IN_MEMORY : 0) | (beacon === false ? WITHOUT_BEACON : 0);
  const times = [leaseMs, heartbeatMs, storeTimeoutMs, lingerMs];
  const fault = store?.nextFault && (() => store.nextFault());
  const wasm = await ask(() => Wasm.open(name, database, how, times, instance, fault));
  return new LeaseManager(INTERNAL, wasm, name, rest);
}

/** The options may be left out. */
const split = (options, work) => (typeof options === "function" && work === undefined ? [work, options] : [options, work]);

/** To the wasm, no time is for ever. */
const bounded = (ms) => (ms === Infinity ? undefined : ms);

function inUse({ key, holders }) {
  const names = holders.map(({ holder, instance, info }) => [instance, info, holder].filter(Boolean).join(" "));
  return new LeaseError("InUse", `${JSON.stringify(key)} is held by ${names.join(", ") || "somebody"}; nothing was deleted`);
}

// Where an engine lacks the symbol, a computed name in the class would make a method called "undefined".
if (Symbol.asyncDispose) LeaseManager.prototype[Symbol.asyncDispose] = LeaseManager.prototype.close;
