// @ts-check
// A lease that is held.
import { rawTransaction } from "./database.mjs";
import { INTERNAL, ask, lossOf } from "./error.mjs";
import { FENCE, KINDS, check, read } from "./options.mjs";

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

// As in manager.mjs.
if (Symbol.asyncDispose) Lease.prototype[Symbol.asyncDispose] = Lease.prototype.release;
if (Symbol.dispose) {
  Lease.prototype[Symbol.dispose] = function () {
    this.release().catch(() => {});
  };
}
