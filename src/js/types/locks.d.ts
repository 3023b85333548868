import type { OpenOptions } from "./manager.js";

/**
 * Locks in the shape and by the rules of
 * [`navigator.locks`](https://developer.mozilla.org/en-US/docs/Web/API/LockManager), over the leases of a store: code that
 * was written for the one runs unchanged on the other, also in insecure contexts and where the platform has none. It is
 * {@link LeaseManager.locks}, or what {@link install} puts in place.
 *
 * It differs on purpose in this: a lock is lost when its holder can no longer be sure of it, because the page was frozen or
 * put into the back/forward cache, or because the store was cleared or did not answer for a whole lease. Then `request()`
 * rejects with a {@link LeaseError} whose `code` is `LeaseLost`, whose `name` is `AbortError` and whose `reason` says why.
 * It rejects before a waiter gets the lock of a silent holder, unless the page itself did not run. The callback goes on, as
 * after a theft. Once the callback has ended under its lock, its value or error counts, even if the release fails. All
 * differences are in `docs/web-locks.md`.
 */
export class LockManager {
  private constructor();

  /**
   * Waits for the lock, calls back while it is held, and releases it when what the callback returned has settled.
   *
   * @param name Any string: also an empty one, and any UTF-16. One that begins with `-` is refused.
   * @throws {TypeError} and `DOMException`s as `navigator.locks` does, in its order: `InvalidStateError`,
   * `NotSupportedError`, `SecurityError` (after {@link install}); the signal's own reason; `AbortError` if the lock was
   * stolen; and {@link LeaseError} where it was lost, or the store failed, or the manager was closed.
   * @example
   * ```js
   * const kept = await leases.locks.request("notes", { mode: "shared" }, async (lock) => {
   *   console.log(`${lock.name} is mine, ${lock.mode}`);
   *   return sessionStorage.getItem("notes");
   * });
   * ```
   */
  request<T>(name: string, callback: (lock: Lock) => T): Promise<Awaited<T>>;
  request<T>(name: string, options: LockOptions & { ifAvailable?: false }, callback: (lock: Lock) => T): Promise<Awaited<T>>;
  request<T>(name: string, options: LockOptions, callback: (lock: Lock | null) => T): Promise<Awaited<T>>;

  /** A snapshot of the locks that are held and of the requests that wait, taken after everything that this context requested before. */
  query(): Promise<LockManagerSnapshot>;
}

/** A lock that is held. */
export class Lock {
  private constructor();
  /** The name that was requested. */
  readonly name: string;
  /** The mode that was requested. */
  readonly mode: LockMode;
}

/** How a lock is held: by one holder alone, or together with others that share it. */
export type LockMode = "exclusive" | "shared";

/** What {@link LockManager.request} takes. Other properties are ignored. */
export interface LockOptions {
  /** How to hold the lock; by default `"exclusive"`. */
  mode?: LockMode | undefined;
  /** Calls back with `null` if the lock is held or waited for: at once if its holder answers, else after up to 280 ms. */
  ifAvailable?: boolean | undefined;
  /** Takes the lock from its holders: their requests reject with `AbortError`, their callbacks go on. Exclusive only. */
  steal?: boolean | undefined;
  /** Gives up waiting as soon as it aborts. Once the callback was called, it does nothing. */
  signal?: AbortSignal | undefined;
}

/** A lock in a {@link LockManagerSnapshot}. */
export interface LockInfo {
  /** The lock's name. */
  name: string;
  /** How it is held, or is requested. */
  mode: LockMode;
  /** The id of its context, as in `navigator.locks`; without Web Locks, the first {@link LeaseManager.holder} of its manager. */
  clientId: string;
}

/** What {@link LockManager.query} resolves with. */
export interface LockManagerSnapshot {
  /** The locks that are held, in no particular order. */
  held: LockInfo[];
  /** The requests that wait: name by name, in the order of the queue. */
  pending: LockInfo[];
}

/**
 * Puts a {@link LockManager} on `navigator.locks` where the platform has none, such as in an insecure context. Nothing is
 * loaded or opened before the first request. Requests that are made until the store is open run in their order, and reject
 * if it does not open. An existing `navigator.locks` is left alone.
 *
 * @returns Whether it put one there.
 * @throws {LeaseError} `InvalidOptions` for an unknown option or a value of the wrong type. `install` does not check the range of
 * times: if one is out of range, each request rejects.
 * @example
 * ```js
 * import { install } from "leasehold";
 *
 * install();
 * await navigator.locks.request("notes", async () => localStorage.setItem("notes", "changed"));
 * ```
 */
export function install(options?: OpenOptions): boolean;
