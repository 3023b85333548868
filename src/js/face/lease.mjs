// @ts-check
// A lease that is held.
import { rawTransaction } from "./database.mjs";
import { ask, checkMaker, detached, disposes, lossOf, refuseClones } from "./error.mjs";
import { FENCE, UPGRADE, check, isObject, quiet, read } from "./options.mjs";
import { follow, stoppable } from "./signal.mjs";

export class Lease {
  /** Until the release is over. */
  #wasm;
  /** Its key, token and mode, which the error of its signal shows, even to code that keeps only the signal. */
  #name;
  #released;
  /** Why it was lost, if the release said that it was. */
  #reason;
  #lost;
  #signal;
  /** Aborts when the work under the lease must stop although the lease is held. */
  #stopped;

  constructor(internal, wasm, key, stopped) {
    checkMaker(internal, "a lease is made by `await leases.acquire(key)`");
    this.#wasm = wasm;
    this.#stopped = stopped;
    this.key = key;
    refuseClones(this, "release");
    this.#name = { key };
    Object.freeze(this);
  }

  /** Token and mode change when the lease is upgraded or downgraded. They stay when the lease has ended. */
  #look() {
    const wasm = this.#wasm;
    return wasm ? Object.assign(this.#name, { token: wasm.token, mode: wasm.shared ? "shared" : "exclusive" }) : this.#name;
  }

  get token() {
    return Lease.#read(this, "token").#look().token;
  }

  get mode() {
    return Lease.#read(this, "mode").#look().mode;
  }

  // These two are created only when they are first read: for a lease that lingered, they cost more than everything else.
  get lost() {
    return (Lease.#read(this, "lost").#lost ??= Promise.resolve(this.#wasm?.lost ?? new Promise(() => {})));
  }

  get signal() {
    return (Lease.#read(this, "signal").#signal ??= signalOf(this.#reason ?? this.#wasm?.reason, this.lost, this.#look(), this.#stopped));
  }

  get changedHands() {
    return Lease.#read(this, "changedHands").#wasm?.changedHands ?? false;
  }

  clearChanged() {
    Lease.#check(this, "clearChanged");
    this.#wasm?.clearChanged();
  }

  get remainingMs() {
    return Lease.#read(this, "remainingMs").#wasm?.remainingMs ?? 0;
  }

  get valid() {
    return Lease.#read(this, "valid").remainingMs > 0;
  }

  get expiresAt() {
    return Date.now() + Lease.#read(this, "expiresAt").remainingMs;
  }

  /** For every method, which may be called without its lease. */
  static #check(lease, name, isRead = false) {
    if (!(isObject(lease) && #name in lease)) throw detached("lease", name, isRead);
    return lease;
  }

  /** For every property, which may be read on a proxy. */
  static #read = (lease, name) => Lease.#check(lease, name, true);

  async verify() {
    Lease.#check(this, "verify");
    const wasm = this.#wasm;
    return wasm && !this.#released ? (await ask(() => wasm.verify())) && !this.#isOver(wasm) : false;
  }

  async extend(ms) {
    Lease.#check(this, "extend");
    check("InvalidOptions", "the time", "hold", ms);
    await this.#ask((wasm) => wasm.extend(ms));
  }

  async upgrade(options) {
    Lease.#check(this, "upgrade");
    const { signal } = read(options, UPGRADE);
    const ask = (stopped) => this.#ask((wasm) => wasm.upgrade(stopped));
    try {
      await (signal ? stoppable(signal, ask) : ask());
    } finally {
      this.#look();
    }
  }

  async downgrade() {
    Lease.#check(this, "downgrade");
    await this.#ask((wasm) => wasm.downgrade());
  }

  /** For calls that need a lease which was not released. */
  async #ask(call) {
    const wasm = this.#held();
    const answer = await ask(() => call(wasm), this);
    return this.#isOver(wasm) ? this.#throwLoss() : answer;
  }

  /** Whether the lease is lost or released by now. */
  #isOver(wasm) {
    return this.#released || wasm.reason !== undefined;
  }

  /** The wasm's lease, unless it was released. */
  #held() {
    const wasm = this.#wasm;
    return wasm && !this.#released ? wasm : this.#throwLoss();
  }

  #throwLoss() {
    throw lossOf(this, this.#reason ?? this.#wasm?.reason);
  }

  fence(transaction, options) {
    // Never a throw.
    let raw, fenced;
    try {
      Lease.#check(this, "fence");
      raw = rawTransaction(transaction);
      const { renew = false } = read(options, FENCE);
      const wasm = this.#held();
      // If the wasm refuses a transaction, it aborts it.
      fenced = ask(() => wasm.fence(raw, renew), this);
    } catch (error) {
      // A transaction that cannot be checked must not write. Aborting one that is over throws.
      quiet(() => raw?.abort());
      fenced = Promise.reject(error);
    }
    // A caller that does not wait for the verdict need not learn of it: nothing was written.
    fenced.catch(() => {});
    return fenced;
  }

  release() {
    // Never a throw, and the same promise each time.
    return isObject(this) && #name in this ? (this.#released ??= this.#giveBack()) : Promise.reject(detached("lease", "release"));
  }

  async #giveBack() {
    const wasm = this.#wasm;
    try {
      const answer = ask(() => wasm.release());
      if (answer instanceof Promise ? await answer : answer) return "released";
      // A later call gets the same answer.
      this.#lost ??= Promise.resolve(wasm.lost);
      return "lost";
    } finally {
      this.#look();
      this.#reason = wasm.reason;
      this.#wasm = undefined;
      wasm.free();
    }
  }
}

/** This does not hold the lease itself, which may be collected. */
function signalOf(reason, lost, name, stopped) {
  const controller = new AbortController();
  if (stopped) follow(stopped, controller);
  const abort = (reason) => controller.abort(lossOf(name, reason));
  if (reason === undefined) lost.then(abort);
  else abort(reason);
  return controller.signal;
}

disposes(Lease, "release");
