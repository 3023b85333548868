/// <reference lib="esnext.disposable" />

/**
 * A lease that is held.
 *
 * The object does not prove that the lease is still held: if a page is paused for longer than its lease, another context may take over.
 * {@link fence Fence} what two holders must never both write, or send the {@link token} with it to a server that refuses smaller tokens.
 *
 * A lease stays in its context: `postMessage()` and `structuredClone()` refuse it by a `DataCloneError`. Send its {@link key} and
 * its {@link token} instead, and let the context that holds it renew and release it.
 */
export class Lease {
  private constructor();

  /** The key that is leased. */
  readonly key: string;

  /**
   * The fencing token: larger than that of every lease of the key that had ended when this one was granted. A safe integer. An
   * {@link upgrade} brings a new one.
   */
  readonly token: number;

  /** How the key is held. */
  readonly mode: LeaseMode;

  /** Whether the lease is held, by this page's own clock and with a margin. This does not ask the store. */
  readonly valid: boolean;

  /** How long the lease is certain to last unless it is renewed; 0 if it is lost, released or in doubt. */
  readonly remainingMs: number;

  /** When the lease expires unless it is renewed, in ms since 1970; the current time if it is not {@link valid}. */
  readonly expiresAt: number;

  /**
   * Aborts when the lease is lost. Its reason is a {@link LeaseError} of code `LeaseLost`. Under {@link LeaseManager.elect}
   * it also aborts when the `signal` of the election does, with the same reason.
   *
   * @example
   * ```js
   * await fetch(url, { method: "PUT", body, signal: lease.signal });
   * ```
   */
  readonly signal: AbortSignal;

  /**
   * Resolves with the reason when the lease is lost; pending for ever after a normal release. Never rejects. In
   * Node.js, a lease that is held and this promise do not keep the process alive. A method's pending promise does, except while your
   * work runs.
   */
  readonly lost: Promise<LostReason>;

  /**
   * Whether another context has held the key exclusively since this one did, so that a cache of what the key guards may be
   * out of date. It stays `true`, also for this manager's later leases, until {@link clearChanged}. `false` after the
   * release. Usually `false` for the manager's first lease of a key, too, so always read again what you read before you first
   * held the key. A manager that has used more than 256 keys says `true` for a key that it does not remember.
   *
   * @example
   * ```js
   * if (cache.isEmpty || lease.changedHands) {
   *   cache.reload();
   *   lease.clearChanged();
   * }
   * ```
   */
  readonly changedHands: boolean;

  /** Sets {@link changedHands} to `false`. Call it when you have read the data again. Does nothing after the release. */
  clearChanged(): void;

  /**
   * Asks the store whether the lease is still held, and renews it. Resolves with `false` if the lease is lost.
   *
   * @throws {LeaseError} `Closed`, `Unsupported`, `Quota`, `Store`: then it is unknown whether the lease is held, and its state does not
   * change, unless the store refuses the renewal for good. Then all leases of the manager are lost: for `Quota` as `StoreFull`, else as
   * `StoreFailed`.
   */
  verify(): Promise<boolean>;

  /**
   * Makes the lease last at least this long from now, regardless of other renewals. `maxHoldMs` still ends it. A manager renews all its
   * leases together, to the same time. So until this one is released, the others last as long, too.
   *
   * If the page is then paused for more than one or two heartbeats (5 s to 10 s with the default times), the manager cannot tell whether
   * its clock stopped as well. So {@link valid} is `false` right after the pause, although the lease is held, until the store has answered,
   * about a millisecond later. Call `await lease.verify()` there.
   *
   * @param ms More than 0, up to 24 h; rounded up to whole ms.
   * @throws {LeaseError} `LeaseLost` if the lease is lost or released; `InvalidOptions`; `Closed`, `Quota`, `Store`: then
   * the outcome is unknown, and the lease stays as it is, unless the store refuses for good: see {@link verify}.
   * @example
   * ```js
   * await lease.extend(60_000); // a long pause is to come
   * ```
   */
  extend(ms: number): Promise<void>;

  /**
   * Turns a shared lease into an exclusive one: waits until all others who share the key have released it, ahead of everybody in the queue.
   * Meanwhile the lease stays shared. Then it gets a new, larger {@link token}. An exclusive lease stays as it is; if another lease of this
   * manager has joined it, the call rejects. If the lease was requested with `share: true`, later shared requests of this manager that also
   * set it join the lease even after the upgrade.
   *
   * When `signal` aborts, the promise rejects with its reason, and the lease stays shared, as it does when the upgrade
   * fails.
   *
   * The upgrade also waits for other leases of the key that this manager itself holds. If your code releases one of them only after the
   * upgrade, the upgrade waits for ever: it has no time limit, and the console does not warn. Only `signal` ends such a wait. Pass
   * `AbortSignal.timeout(ms)` where that may happen.
   *
   * @throws {LeaseError} `UpgradeConflict` if another holder that shares the key is already upgrading: both would wait for ever.
   * {@link release} this lease, so that the other holder can continue. The code is the same if another lease of this manager has joined this
   * one, which is already exclusive; and if an earlier `upgrade()` of this lease is still under way: await that one. `LeaseLost`;
   * `InvalidOptions`, `Closed`, `Quota`, `Store`.
   * @example
   * ```js
   * const lease = await leases.acquire("notes", { mode: "shared" });
   * if (await needsRepair()) {
   *   await lease.upgrade({ signal: AbortSignal.timeout(5_000) });
   *   await repair(lease.token);
   *   await lease.downgrade();
   * }
   * ```
   */
  upgrade(options?: UpgradeOptions): Promise<void>;

  /**
   * Turns an exclusive lease into a shared one, at once: {@link mode} is `"shared"` from the call on. A shared lease stays as it is.
   *
   * @throws {LeaseError} `LeaseLost`. Or `Closed`, `Quota`, `Store`: this lease is then shared, but others may not be able to share the key
   * yet.
   */
  downgrade(): Promise<void>;

  /**
   * Lets a transaction commit only if the lease is still current *in that transaction*: a page that was paused and overtaken
   * writes nothing. Otherwise the transaction is aborted, and the returned promise rejects. Only this promise says why:
   * `transaction.error` is `null`, as after any `abort()`. Your requests that are still pending in it fail with `AbortError`;
   * a write that has already succeeded is undone. If the manager knows of the loss already, it aborts the transaction during
   * the call: what you ask of it next, such as `transaction.objectStore()`, throws `InvalidStateError`.
   *
   * Call `fence` before `commit()`. A fence cannot stop a transaction that already commits or has ended: the promise rejects with
   * `InvalidOptions`, and what the transaction committed stays written.
   *
   * The check begins at the call, before any request that you make afterwards in the transaction. If you await it, you can go on in the
   * same transaction. If you do not, your writes are still undone when the lease is not current, but your code may fail with that
   * `InvalidStateError` before it learns of `LeaseLost`. You may release the lease before the transaction has ended: the browser runs the
   * transaction first, then the release. Keep the transaction short, under a third of the lease: renewals wait behind it. The transaction's
   * own `commit()` waits for the check, and until then the transaction still accepts requests.
   * `IDBTransaction.prototype.commit.call(transaction)` does not wait: what is written under a lease that is no longer current may then be
   * committed.
   *
   * @param transaction A `readwrite` transaction of the database that the manager was {@link LeaseManager.attach attached}
   * to, with `"leasehold"` among its object stores.
   * @throws {LeaseError} `LeaseLost`; `InvalidOptions` for a transaction that cannot be fenced, which is aborted too unless it already
   * commits or has ended; `Store` if the transaction ended between the call and the check. None of these rejections is reported as
   * unhandled.
   * @example
   * ```js
   * const tx = db.transaction(["notes", "leasehold"], "readwrite");
   * await lease.fence(tx);
   * tx.objectStore("notes").put(note, id);
   * ```
   */
  fence(transaction: OpenTransaction, options?: FenceOptions): Promise<void>;

  /**
   * Releases the lease, and tells whether it was still held. The release begins at the call. A second call gives the same answer.
   *
   * @throws {LeaseError} `Store` if the store does not answer; then the lease expires by itself. If the lease lingers (see `lingerMs`),
   * `release()` does not ask the store, so it does not throw `Store`. A loss is no error.
   */
  release(): Promise<ReleaseOutcome>;

  /** {@link release} in the background, for `using`. Where the engine lacks the symbol, its name is `Symbol.for("Symbol.dispose")`. */
  [Symbol.dispose](): void;

  /** {@link release}, for `await using`. Where the engine lacks the symbol, its name is `Symbol.for("Symbol.asyncDispose")`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** An `IDBDatabase`, as it is or as idb shows it; or a Dexie database. */
export type OpenDatabase = (EventTarget & { readonly name: string; close(): void }) | { backendDB(): IDBDatabase };

/** An `IDBTransaction`, as it is or as idb shows it; or a Dexie transaction. */
export type OpenTransaction = (EventTarget & { abort(): void }) | { readonly idbtrans: IDBTransaction };

/** What {@link Lease.upgrade} takes. */
export interface UpgradeOptions {
  /** Gives up waiting when it aborts. */
  signal?: AbortSignal | undefined;
}

/** What {@link Lease.fence} takes. */
export interface FenceOptions {
  /** Renew the lease in the same transaction: a page that writes often then needs no other renewal. */
  renew?: boolean | undefined;
}

/**
 * Makes the object store that {@link LeaseManager.attach} needs, unless it exists. Call it when the database is upgraded.
 * Dexie makes it by itself: declare `leasehold: ""` in `stores()`.
 *
 * @throws {LeaseError} `InvalidOptions` if `db` is not a database.
 * @throws {DOMException} the browser's own `InvalidStateError` if the object store is missing and the database is not being upgraded. Open
 * the database with a larger version then.
 * @example
 * ```js
 * request.onupgradeneeded = () => createStore(request.result);
 * ```
 */
export function createStore(db: OpenDatabase): void;

/** How a release ended. */
export type ReleaseOutcome = "released" | "lost";

/**
 * Why a lease was lost: it was not renewed in time, or `maxHoldMs` was over; another context stole it; the context was
 * suspended; another tab evicted it; the site's data was cleared; the store failed for good; the store is full; a newer
 * version of this package rewrote the record; the manager was closed.
 */
export type LostReason =
  | "Expired"
  | "Stolen"
  | "Suspended"
  | "Evicted"
  | "StoreCleared"
  | "StoreFailed"
  | "StoreFull"
  | "FormatTooNew"
  | "Closed";

/** How a key is held: by one context alone, or together with others that share it. */
export type LeaseMode = "exclusive" | "shared";
