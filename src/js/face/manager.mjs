// @ts-check
// The manager, which connects a context to the leases of a store.
import { LeaseManager as Wasm } from "./leasehold.js";
import { deleteDatabase, rawDatabase } from "./database.mjs";
import { INTERNAL, LeaseError, ask, checkMaker, detached, disposes, refuseClones } from "./error.mjs";
import { HAPPENINGS, LeaseEvent } from "./event.mjs";
import { LeaseGroup, giveBack, itemsOf } from "./group.mjs";
import { Lease } from "./lease.mjs";
import { init } from "./loading.mjs";
import { LockManager } from "./locks.mjs";
import * as kinds from "./options.mjs";
import { check, checkKey, isObject, quiet, read, show, warn } from "./options.mjs";
import { OF_SEVERAL, OWN_WAIT, warnOfOwnWait } from "./own-wait.mjs";
import { follow, isOver, stoppable } from "./signal.mjs";
import { end, unlessLost, worked } from "./work.mjs";

/** The bits that tell the wasm how to open a store. */
const IN_MEMORY = 1;
const WITHOUT_BEACON = 2;
/** The bits that tell it how to request a lease. */
const SHARED = 1;
const TOGETHER = 2;
const STEAL = 4;
const WITHOUT_RENEWAL = 8;

/** How long a time-out may be delayed to find out who holds the key, in ms. */
const LOOK_LIMIT_MS = 250;

export class LeaseManager extends EventTarget {
  #wasm;
  #name;
  #closed;
  #listens = false;
  #locks;

  constructor(internal, wasm, name, options) {
    // The options are missing if a subclass does not pass them on.
    checkMaker(options && internal, "a manager is made by `await LeaseManager.open(name)`; a subclass passes all arguments to super()");
    super();
    refuseClones(this, "close");
    this.#wasm = wasm;
    this.#name = name;
    // Not frozen, because some engines store their data about listeners in the object.
    if (options.debug) this.#debug();
  }

  #debug() {
    const told = new Set();
    for (const type of HAPPENINGS) {
      this.addEventListener(type, (event) => {
        const { key, ahead } = event;
        const said = `leasehold ${this.#name}: ${type} ${JSON.stringify(key)}`;
        quiet(() => console.debug(said, event));
        // Once for each key, because most such waits end.
        if (ahead !== 0 || told.has(key)) return;
        told.add(key);
        warnOfOwnWait(`${said} for this manager's own lease`);
      });
    }
  }

  /** For every method that does not begin with another one of them. */
  static #check(leases, name, isRead = false) {
    if (!(isObject(leases) && #wasm in leases)) throw detached("leases", name, isRead);
  }

  /** It differs after each suspension. */
  get holder() {
    LeaseManager.#check(this, "holder", true);
    return this.#wasm.holder;
  }

  get locks() {
    LeaseManager.#check(this, "locks", true);
    return (this.#locks ??= new LockManager(INTERNAL, () => this.#wasm));
  }

  addEventListener(type, listener, options) {
    LeaseManager.#check(this, "addEventListener");
    super.addEventListener(type, listener, options);
    // It may be an event of the user's own, but is more often a mistake.
    if (!HAPPENINGS.has(type)) return warn(`leasehold: no event ${type}: there are ${[...HAPPENINGS].join(", ")}`);
    if (this.#listens) return;
    this.#listens = true;
    this.#wasm.listen((type, details) => this.dispatchEvent(new LeaseEvent(INTERNAL, type, details)));
  }

  static async open(name, options) {
    check("InvalidOptions", "the name", "name", name);
    return opened(this, name, undefined, read(options, kinds.OPEN));
  }

  static async attach(db, options) {
    const raw = rawDatabase(db);
    return opened(this, raw.name, raw, read(options, kinds.ATTACH));
  }

  static async delete(name) {
    const leases = await LeaseManager.open(name, { lingerMs: 0 });
    try {
      // A holder that died does not count, which only a try can find out.
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
    LeaseManager.#check(this, "acquire");
    checkKey(key);
    return this.#patient(key, read(options, kinds.ACQUIRE));
  }

  async tryAcquire(key, options) {
    LeaseManager.#check(this, "tryAcquire");
    checkKey(key);
    return this.#try(key, read(options, kinds.TRY_ACQUIRE));
  }

  async steal(key, options) {
    LeaseManager.#check(this, "steal");
    checkKey(key);
    return this.#lease(key, read(options, kinds.STEAL), STEAL);
  }

  async acquireAll(keys, options) {
    LeaseManager.#check(this, "acquireAll");
    const items = itemsOf(keys);
    const wish = read(options, kinds.ACQUIRE_ALL);
    const leases = await this.#timed(() => this.#all(items, wish), wish, items);
    return new LeaseGroup(INTERNAL, leases);
  }

  /** All leases, in the order of the items. */
  async #all(items, { signal, priority, info, timeoutMs }) {
    const [keys, shared] = [items.map(({ key }) => key), items.map(({ mode }) => mode === "shared" || undefined)];
    const made = (all) => all.map((wasm, at) => new Lease(INTERNAL, wasm, keys[at]));
    const call = (stopped) =>
      ask(() => this.#wasm.requestAll(keys, shared, priority, info, bounded(timeoutMs), stopped), { keys });
    return made(await (signal ? stoppable(signal, call, (all) => giveBack(made(all))) : call()));
  }

  async run(key, options, work) {
    LeaseManager.#check(this, "run");
    const [wish, toDo] = given("run", kinds.RUN, key, options, work);
    return worked(this.#patient(key, wish), wish.onLost, toDo).then(({ value }) => value);
  }

  async tryRun(key, options, work) {
    LeaseManager.#check(this, "tryRun");
    const [wish, toDo] = given("tryRun", kinds.TRY_RUN, key, options, work);
    const lease = await this.#try(key, wish);
    return lease ? { ran: true, ...(await worked(lease, wish.onLost, toDo)) } : { ran: false };
  }

  async elect(key, options, work) {
    LeaseManager.#check(this, "elect");
    const [wish, toDo] = given("elect", kinds.ELECT, key, options, work);
    const causes = new Set();
    for (;;) {
      // Aborts with the user's signal, and stops listening to it when the lead ends.
      const stop = new AbortController();
      const lease = await this.#campaign(key, wish, stop.signal, causes);
      let unfollow;
      try {
        unfollow = wish.signal && follow(wish.signal, stop);
        return await unlessLost(lease, toDo);
      } catch (error) {
        const isLost = lease.signal.aborted && !(stop.signal.aborted && lease.signal.reason === stop.signal.reason);
        // A lead that was lost is won again, and never revived.
        if (!isLost) throw error;
      } finally {
        unfollow?.();
        await end(lease);
      }
    }
  }

  /** Campaigns until the lease is granted, also while the store fails, if trying again may help. The console warns once of each cause. */
  async #campaign(key, wish, stopped, causes) {
    for (;;) {
      try {
        return await this.#lease(key, wish, 0, stopped);
      } catch (error) {
        // A signal may have aborted with any value. Everything else is a LeaseError.
        if (isOver(wish.signal) || !mayPass(error)) throw error;
        if (!causes.has(error.message)) warn(`leasehold: the election for ${JSON.stringify(key)} waits: ${error.message}`);
        causes.add(error.message);
      }
    }
  }

  async leader(key) {
    LeaseManager.#check(this, "leader");
    const { holders } = await this.status(key);
    return holders.find(({ mode }) => mode === "exclusive") ?? null;
  }

  /** The lease, or a promise of it: to await what is there costs some engines more than the lease itself. The
   *  engine's promise is not an `instanceof Promise` if a library has replaced the global `Promise`. */
  #lease(key, wish, steal, stopped) {
    const made = (wasm) => new Lease(INTERNAL, wasm, key, stopped);
    const wasm = this.#request(key, wish, steal);
    return wasm.then ? wasm.then(made) : made(wasm);
  }

  /** The same, but a time-out names the holder of the key. */
  #patient(key, wish) {
    return wish.timeoutMs === undefined ? this.#lease(key, wish) : this.#timed(() => this.#lease(key, wish), wish);
  }

  async #timed(call, { timeoutMs, signal }, items = []) {
    const began = performance.now();
    try {
      return await call();
    } catch (error) {
      // The signal may have aborted with the time-out error of another request.
      if (error?.code !== "Timeout" || isOver(signal)) throw error;
      const waitedMs = performance.now() - began;
      // A try for several keys does not say which one is taken.
      const keys = error.key === undefined ? items.map(({ key }) => key) : [error.key];
      const holders = await Promise.all(keys.map((key) => this.#holderOf(key)));
      const at = holders.findIndex(Boolean);
      const holder = holders[at];
      const key = keys[at] ?? error.key;
      const message = lateness(error.message, key, timeoutMs, holder, items.length > 0);
      throw new LeaseError("Timeout", message, { key, waitedMs, holder });
    }
  }

  /** The holder of the key, if the store answers soon. Of several that share it, this manager if it is among them. */
  async #holderOf(key) {
    const looked = this.status(key).then(({ holders }) => holders.find(({ own }) => own) ?? holders[0], () => {});
    let timer;
    const limit = new Promise((resolve) => (timer = setTimeout(resolve, LOOK_LIMIT_MS)));
    return Promise.race([looked, limit]).finally(() => clearTimeout(timer));
  }

  /** The wasm's lease, or a promise of it. */
  #request(key, { timeoutMs, signal, mode, share, priority, info, maxHoldMs, autoRenew }, steal = 0) {
    const renewal = autoRenew === false ? WITHOUT_RENEWAL : 0;
    const how = steal | (mode === "shared" ? SHARED : 0) | (share ? TOGETHER : 0) | renewal;
    const call = (stopped) =>
      ask(() => this.#wasm.request(key, how, priority, info, bounded(timeoutMs), maxHoldMs, stopped), { key });
    // It may have been granted at that moment.
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
    LeaseManager.#check(this, "status");
    checkKey(key);
    return ask(() => this.#wasm.status(key));
  }

  async list(prefix = "") {
    LeaseManager.#check(this, "list");
    check("InvalidKey", "the prefix", "text", prefix);
    return ask(() => this.#wasm.list(prefix, false));
  }

  stats() {
    LeaseManager.#check(this, "stats");
    return this.#wasm.stats();
  }

  close() {
    // Never a throw, and the same promise each time.
    return isObject(this) && #wasm in this ? (this.#closed ??= this.#end()) : Promise.reject(detached("leases", "close"));
  }

  async #end() {
    await ask(() => this.#wasm.close());
    await reactions();
  }
}

/** Resolves after everything that waits only for promises which have settled by now, however long the chain of promises: the platform
 *  delivers a message only then. The wasm has refused every request that waited before, so by then their callers have heard of it. */
function reactions() {
  return new Promise((resolve) => {
    // Some simulated browsers have no channels.
    if (!globalThis.MessageChannel) return setTimeout(resolve);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => resolve(port1.close());
    port2.postMessage(0);
  });
}

/** Whether trying again may help. The wasm's message says so at its end: before that stands what the platform said, and names. */
const mayPass = (error) => error.code === "Store" && error.message.includes("may help)");

/** Opens a manager of the class whose method was called. For a time that was not chosen, the wasm gets NaN. */
async function opened(called, name, database, { leaseMs = NaN, heartbeatMs = NaN, storeTimeoutMs = NaN, lingerMs = NaN, ...rest }) {
  const { beacon, instance, store } = rest;
  await init();
  const how = (store === "memory" ? IN_MEMORY : 0) | (beacon === false ? WITHOUT_BEACON : 0);
  const fault = store?.nextFault && ((looks) => store.nextFault(looks));
  const open = () => Wasm.open(name, database, how, leaseMs, heartbeatMs, storeTimeoutMs, lingerMs, instance, fault);
  const wasm = await ask(open);
  // The method may have been taken off its class.
  const type = typeof called === "function" ? called : LeaseManager;
  return new type(INTERNAL, wasm, name, rest);
}

/** The arguments of a call with work. The options may be left out. */
function given(verb, names, key, options, work) {
  if (typeof options === "function") {
    if (work !== undefined) throw new LeaseError("InvalidOptions", `the work comes last, after the options: ${verb}(key, options, work)`);
    [options, work] = [undefined, options];
  }
  checkKey(key);
  const wish = read(options, names);
  check("InvalidOptions", "the work", "work", work);
  return [wish, work];
}

/** The wasm expects `undefined` for a wait without a limit. */
const bounded = (ms) => (ms === Infinity ? undefined : ms);

/** Quotes the names that a program gives itself, so that they stand out from the sentence. */
const nameOf = ({ holder, instance, info }) => (instance && `${show(instance)} `) + (info && `${show(info)} `) + holder;

function inUse({ key, holders }) {
  const names = holders.map(nameOf).join(", ");
  return new LeaseError("InUse", `${JSON.stringify(key)} is held by ${names || "somebody"}; nothing was deleted`);
}

/** The message of a time-out. If no holder is known, the message of the wasm tells what was in the way.
 *  @param {any} holder */
function lateness(message, key, timeoutMs, holder, isOfSeveral) {
  if (!holder && timeoutMs) return message;
  const what = key === undefined ? "one of the keys" : JSON.stringify(key);
  const late = timeoutMs ? `was not granted within the time-out of ${timeoutMs} ms` : "is taken";
  if (!holder) return `${what} ${late}`;
  const own = `this manager itself holds it; ${isOfSeveral ? OF_SEVERAL : OWN_WAIT}`;
  return `${what} ${late}: ${holder.own ? own : `${nameOf(holder)} holds it`}`;
}

disposes(LeaseManager, "close", true);
