// @ts-check
// `leases.locks`: the shape and the rules of navigator.locks, over leases. Each rule has a test of its name, WL1 to WL31.
import { INTERNAL, LeaseError, ask, checkMaker, refuseClones } from "./error.mjs";
import { LeaseManager } from "./manager.mjs";
import { KINDS, OPEN, isObject, misfit, read } from "./options.mjs";
import { isOver, listen } from "./signal.mjs";

/** The prefix that the wasm adds to the name of a lock to form its key. */
const PREFIX = "\0lock:";

const error = (name, sentence) => new DOMException(sentence, name);

/** UTF-8 has no halves of surrogate pairs. They are written as digits after a mark, and the mark itself is doubled. */
const escape = (name) =>
  name.replace(/[\p{Cs}~]/gu, (unit) => (unit === "~" ? "~~" : `~${unit.charCodeAt(0).toString(16)}`));

const nameOf = (key) =>
  key.slice(PREFIX.length).replace(/~(~|.{4})/g, (_, code) => (code === "~" ? code : String.fromCharCode(parseInt(code, 16))));

/** The client id that the browser's locks give this context. They reveal it only to a holder of a lock. */
let clientId;

async function askClientId() {
  try {
    /** @type {any} */
    const { locks } = navigator;
    const name = `leasehold:${Math.random()}`;
    // The platform's are inherited; those of a polyfill or of `install()` are not.
    if (!Object.hasOwn(navigator, "locks")) {
      return await locks.request(name, async () => (await locks.query()).held.find((held) => held.name === name).clientId);
    }
  } catch {
    // There are none here.
  }
}

/** If the document is no longer shown, the platform's storage and locks do not work. */
function checkActive() {
  let gone = false;
  try {
    gone = closed || !document.defaultView;
  } catch {
    // A worker.
  }
  if (gone) throw error("InvalidStateError", "the document is not fully active");
}

let hasStorage = false;

/** A sandboxed frame, for example, has no storage. The call itself shows it, and is harmless: no database has this name. */
function checkStorage() {
  try {
    const { indexedDB, origin } = globalThis;
    hasStorage ||= (indexedDB && origin !== "null") || !!indexedDB.deleteDatabase("leasehold:");
  } catch {
    throw error("SecurityError", "IndexedDB is forbidden here, or missing");
  }
}

/** Refuses a value by a TypeError, as the browser's own locks do. */
function checkType(what, kind, value) {
  const [mustBe, fits] = KINDS[kind];
  if (!fits(value)) throw new TypeError(misfit(what, mustBe, value));
}

/** Reads options as WebIDL reads a dictionary: in the order of their names, and without reading unknown ones. */
function wishOf(name, options) {
  if (options != null && Object(options) !== options) throw new TypeError(misfit("what holds the options", "an object", options));
  const ifAvailable = !!options?.ifAvailable;
  const given = options?.mode;
  const mode = given === undefined ? "exclusive" : `${given}`;
  checkType("the mode", "mode", mode);
  const signal = options?.signal;
  if (signal !== undefined) checkType("the signal", "signal", signal);
  const steal = !!options?.steal;
  return { name, key: escape(name), ifAvailable, mode, shared: mode === "shared", signal, steal };
}

function checkWish({ name, ifAvailable, mode, signal, steal }) {
  const refusal =
    (name[0] === "-" && 'a name must not begin with "-"') ||
    (steal && ifAvailable && "`steal` and `ifAvailable` exclude each other") ||
    (steal && mode === "shared" && "`steal` is for exclusive locks") ||
    (signal && (steal || ifAvailable) && "`signal` is for requests that wait");
  if (refusal) throw error("NotSupportedError", refusal);
  if (signal?.aborted) throw signal.reason;
}

/** A lock that is held. */
export class Lock {
  constructor(internal, name, mode) {
    checkMaker(internal, "a lock comes to the callback of `leases.locks.request(name, callback)`");
    this.name = name;
    this.mode = mode;
    // A property of the class's own prototype: where Object.prototype is frozen, no object may be assigned one of its methods.
    refuseClones(this, "constructor");
    Object.freeze(this);
  }

  get [Symbol.toStringTag]() {
    return "Lock";
  }
}

/** The locks of a store. */
export class LockManager {
  #source;
  #checkSource;
  #wasm;
  #clientId;
  /** Why there is no wasm. */
  #failure;
  /** Requests that come while this exists wait for it, so that the requests of a context run in order. */
  #gate;

  constructor(internal, source, checkSource) {
    checkMaker(internal, "the locks of a manager are `leases.locks`");
    this.#source = source;
    this.#checkSource = checkSource;
    refuseClones(this, "query");
  }

  get [Symbol.toStringTag]() {
    return "LockManager";
  }

  request(name, options, callback = undefined) {
    try {
      LockManager.#check(this, "request");
      const count = arguments.length;
      if (count < 2) throw new TypeError(`call request(name, callback) or request(name, options, callback); arguments: ${count}`);
      name = `${name}`;
      if (count === 2) [options, callback] = [undefined, options];
      const wish = wishOf(name, options);
      checkType("the last argument, the callback,", "work", callback);
      checkActive();
      this.#checkSource?.();
      checkWish(wish);
      return this.#request(wish, callback);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  query() {
    try {
      LockManager.#check(this, "query");
      checkActive();
      this.#checkSource?.();
      return this.#query();
    } catch (error) {
      return Promise.reject(error);
    }
  }

  static #check(locks, name) {
    if (!(isObject(locks) && #source in locks)) throw new TypeError(`${name}() was called without its LockManager: call locks.${name}(…), or bind it`);
  }

  #request(wish, callback) {
    return new Promise((resolve, reject) => {
      const { signal } = wish;
      // Heard at once, whatever the store does. A query that was asked for before still finds the request.
      const abort = async () => {
        reject(signal.reason);
        while (this.#gate) await this.#gate;
        if (wish.request !== undefined) this.#wasm.cancelLock(wish.request);
      };
      const unlisten = signal && listen(signal, abort);
      this.#work(wish, callback, unlisten).then(resolve, reject);
    });
  }

  async #work(wish, callback, unlisten) {
    let lease;
    try {
      lease = await this.#grant(wish);
    } finally {
      unlisten?.();
    }
    if (isOver(wish.signal)) {
      // The cancellation releases it, too.
      if (lease) this.#release(lease).catch(() => {});
      throw wish.signal.reason;
    }
    return lease ? this.#hold(lease, wish, callback) : callback(null);
  }

  /** The outcome of the callback under the lock, or the loss of the lock. */
  #hold(lease, { name, mode }, callback) {
    const { token } = lease;
    // Once the callback has ended under the lock, only a theft still changes the outcome.
    let ended = false;
    const lose = (reason) => {
      if (!ended || reason === "Stolen") throw lossOf(name, reason, token);
    };
    const end = async () => {
      ended = lease.remainingMs > 0;
      const reason = await this.#release(lease).catch((error) => {
        if (!ended) throw error;
      });
      if (reason) lose(reason);
    };
    // A loss rejects at once. The callback goes on, and its outcome is ignored.
    const lost = Promise.resolve(lease.lost).then((reason) => lose(reason) ?? new Promise(() => {}));
    const work = new Promise((resolve) => resolve(callback(new Lock(INTERNAL, name, mode))));
    return Promise.race([lost, work.finally(end)]);
  }

  async #release(lease) {
    while (this.#gate) await this.#gate;
    return giveBack(lease);
  }

  /** The lease; none if the lock is taken, and the request does not wait, or nobody wants it any more. */
  async #grant(wish) {
    for (;;) {
      this.#begin();
      while (this.#gate) await this.#gate;
      if (!this.#wasm) throw this.#failure;
      wish.request = this.#wasm.requestLock(wish.key, wish.shared, !wish.ifAvailable, wish.steal, this.#clientId);
      const lease = await granted(this.#wasm, wish);
      if (lease !== null || isOver(wish.signal)) return lease;
    }
  }

  async #query() {
    this.#begin();
    while (this.#gate) await this.#gate;
    if (!this.#wasm) throw this.#failure;
    const listing = ask(() => this.#wasm.list(PREFIX, true));
    // Requests from now on must not show in the answer.
    if (listing instanceof Promise) this.#wait(listing.catch(() => {}));
    const held = [];
    const pending = [];
    for (const { key, holders, queue } of await listing) {
      const show = ({ mode, info }) => ({ name: nameOf(key), mode, clientId: info });
      held.push(...holders.map(show));
      pending.push(...queue.map(show));
    }
    return { held, pending };
  }

  #begin() {
    if (!this.#wasm && !this.#gate) this.#wait(this.#open());
  }

  /** Requests that wait continue in order, and before later ones, because they are the first to learn that the gate is open. */
  #wait(gate) {
    this.#gate = gate;
    gate.then(() => (this.#gate = undefined));
  }

  async #open() {
    try {
      const source = await this.#source();
      const wasm = source instanceof LockManager ? source.#source() : source;
      this.#clientId = (await (clientId ??= askClientId())) ?? wasm.holder;
      this.#wasm = wasm;
    } catch (cause) {
      this.#failure = cause.code === "Unsupported" ? error("SecurityError", cause.message) : cause;
    }
  }
}

/** The lease that was granted; `undefined` if it cannot be had, `null` if it must be requested again. */
async function granted(wasm, { name, ifAvailable, steal, signal }) {
  try {
    const lease = await ask(() => wasm.grantedLock());
    // A page may have been stopped meanwhile. A lock that was stolen by then counts as granted.
    if (!lease || lease.remainingMs > 0 || lease.reason === "Stolen") return lease;
    if (!lease.reason && (await ask(() => lease.verify()))) return lease;
    const { reason = "Expired" } = lease;
    giveBack(lease).catch(() => {});
    // A theft is not repeated: it would rob whoever has the lock by now.
    if (steal) throw lossOf(name, reason);
  } catch (error) {
    if (error.code !== "LeaseLost") {
      if (!isOver(signal)) throw error;
    } else if (ifAvailable || steal) {
      throw lossOf(name, error.reason);
    }
  }
  return null;
}

/** Brings why it was lost before, if it was. */
async function giveBack(lease) {
  try {
    if (!(await ask(() => lease.release()))) return lease.reason;
  } finally {
    lease.free();
  }
}

function lossOf(name, reason, token) {
  const message = `the lock ${JSON.stringify(name)} was lost: ${reason}`;
  if (reason === "Stolen") return error("AbortError", message);
  return new LeaseError("LeaseLost", message, { name: "AbortError", reason, key: name, token });
}

/** Puts these locks on `navigator` if the platform has none. Returns whether it did. */
export function install(options = {}) {
  read(options, OPEN);
  const { navigator } = globalThis;
  if (!navigator || navigator.locks) return false;
  const source = async () => (await LeaseManager.open("navigator.locks", options)).locks;
  const value = new LockManager(INTERNAL, source, (options.store ?? "indexeddb") === "indexeddb" ? checkStorage : undefined);
  Object.defineProperty(navigator, "locks", { value, configurable: true, enumerable: true });
  return true;
}
