import type { OpenOptions } from "./manager.js";

/**
 * Locks in the shape and by the rules of
 * [`navigator.locks`](https://developer.mozilla.org/en-US/docs/Web/API/LockManager), over the leases of a store: code that
 * was written for the one runs unchanged on the other, also in insecure contexts and where the platform has none. It is
 * {@link LeaseManager.locks}, or what {@link install} puts in place.
 *
 * On purpose it differs in this: a lock that its holder can no longer be sure of, because the page was frozen or stood in
 * the back/forward cache, because the store was cleared or did not answer for a whole lease, is lost. Then `request()`
 * rejects with a {@link LeaseError} whose `code` is `LeaseLost`, whose `name` is `AbortError` and whose `reason` says why,
 * before anybody else has the lock by its silence; the callback goes on, as after a theft. Once the callback has ended under
 * its lock, its value or error counts, whatever becomes of the release. All differences are in `docs/web-locks.md`.
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

  /** What is held and what waits at one moment, after all that this context asked for before. */
  query(): Promise<LockManagerSnapshot>;
}

/** A lock as it is held. */
export class Lock {
  private constructor();
  /** The name that was asked for. */
  readonly name: string;
  /** The mode that was asked for. */
  readonly mode: LockMode;
}

/** How a lock is held: by one alone, or together with others who share it. */
export type LockMode = "exclusive" | "shared";

/** What {@link LockManager.request} takes. What else there is in it is not looked at. */
export interface LockOptions {
  /** With others of the same mode, or alone; `"exclusive"` unless chosen. */
  mode?: LockMode;
  /** Calls back with `null` at once if the lock is held or waited for. */
  ifAvailable?: boolean;
  /** Robs whoever holds it: their requests reject with `AbortError`, their callbacks go on. Exclusive only. */
  steal?: boolean;
  /** Gives up waiting when it aborts, at once. Once the callback was called, it does nothing. */
  signal?: AbortSignal;
}

/** A lock in a {@link LockManagerSnapshot}. */
export interface LockInfo {
  /** The lock's name. */
  name: string;
  /** How it is held, or is to be. */
  mode: LockMode;
  /** The context's, as `navigator.locks` calls it; where there is none, what its {@link LeaseManager.holder} was at first. */
  clientId: string;
}

/** What {@link LockManager.query} brings: what waits stands in its order, name by name. */
export interface LockManagerSnapshot {
  /** What is held, in no order. */
  held: LockInfo[];
  /** What waits. */
  pending: LockInfo[];
}

/**
 * Puts a {@link LockManager} on `navigator.locks` where the platform has none, such as in an insecure context. Nothing is
 * loaded or opened before it is first asked; what is asked for until that is done happens in its order, and rejects if it
 * fails. What is there already is left alone.
 *
 * @returns Whether it did.
 * @throws {LeaseError} `InvalidOptions`.
 * @example
 * ```js
 * import { install } from "leasehold";
 *
 * install();
 * await navigator.locks.request("notes", async () => localStorage.setItem("notes", "changed"));
 * ```
 */
export function install(options?: OpenOptions): boolean;
