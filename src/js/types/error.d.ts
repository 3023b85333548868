import type { LostReason } from "./lease.js";
import type { HolderStatus } from "./status.js";

/**
 * What went wrong. The `name` of the error is the DOM's where the DOM has one, else `LeaseError`:
 *
 * | code | name | |
 * | --- | --- | --- |
 * | `Timeout` | `TimeoutError` | the time-out passed before the grant: others held the key, this manager itself did, or the store had not answered yet. If the store failed and nobody was seen to hold the key, the code is `Store` |
 * | `Closed` | `InvalidStateError` | the manager was closed |
 * | `InstanceInUse` | | another living context with the same `instance` holds the key: give each context an `instance` of its own |
 * | `UpgradeConflict` | | another holder or guard upgrades the key, or has upgraded it; release this lease and acquire the key again; if an earlier call on this lease upgrades it, await that call |
 * | `InUse` | | a lease or a lock that {@link LeaseManager.delete} was to delete is held |
 * | `InvalidKey` | | the key is empty, too long, or not well-formed text |
 * | `InvalidOptions` | | an unknown option, or a value that does not fit |
 * | `FormatTooNew` | | a newer version of this package wrote the record; it was left as it is |
 * | `Unsupported` | `NotSupportedError` | there is no IndexedDB here, or it is forbidden |
 * | `Quota` | `QuotaExceededError` | the store is full: delete data of this site, or free disk space |
 * | `Store` | | the store failed; the message says whether trying again may help |
 * | `LeaseLost` | | the lease is lost. {@link Lease.signal} aborts with this error, and calls that need the lease reject with it. After you have released a lease, such calls reject with this code, too, without a `reason` |
 * | `InitConflict` | `InvalidStateError` | `init()` named another wasm than the one that was chosen before |
 * | `InitFailed` | | the wasm did not load |
 * | `Internal` | | a bug |
 */
export type LeaseErrorCode =
  | "Timeout"
  | "Closed"
  | "InstanceInUse"
  | "UpgradeConflict"
  | "InUse"
  | "InvalidKey"
  | "InvalidOptions"
  | "FormatTooNew"
  | "Unsupported"
  | "Quota"
  | "Store"
  | "LeaseLost"
  | "InitConflict"
  | "InitFailed"
  | "Internal";

/** A `DOMException`, but for its `code`, which is a number there. Tools such as typescript-eslint look for `Error` among its bases. */
interface DOMExceptionWithoutCode extends Omit<DOMException, "code" | "name" | "message">, Error {
  /** As in the table of {@link LeaseErrorCode}. */
  readonly name: string;
  /** What went wrong, and what to do about it. */
  readonly message: string;
}
declare const DOMExceptionWithoutCode: { new (message?: string, name?: string): DOMExceptionWithoutCode };

/** Every error of this package. It is a `DOMException`; its `code` tells what went wrong. */
export class LeaseError extends DOMExceptionWithoutCode {
  private constructor();

  /** What went wrong. */
  readonly code: LeaseErrorCode;
  /** Of `LeaseLost`: why the lease was lost. Absent if you have released it. */
  readonly reason?: LostReason;
  /**
   * Of `LeaseLost` and `Timeout`: the key, if the error is about one key. Absent if a request for several keys got no answer from the
   * store.
   */
  readonly key?: string;
  /** Of `Timeout`: how long the request waited, in ms. */
  readonly waitedMs?: number;
  /** Of `Timeout`: who held the key right after the time had passed, if the store answered in time. `own` means this manager. */
  readonly holder?: HolderStatus;
  /** Of `LeaseLost`: the token of the lease, if there was one. */
  readonly token?: number;
  /** Of `InitFailed`, `Internal`, and options that throw when they are read: the underlying error. */
  readonly cause?: unknown;
}

/**
 * Whether a value is a {@link LeaseError}, from any copy of this package. A structured clone, such as `postMessage` delivers,
 * is not one, because it loses the code: send `{ code, message }` instead.
 *
 * @example
 * ```js
 * const lease = await leases.acquire("notes", { timeoutMs: 500 }).catch((error) => {
 *   if (isLeaseError(error) && error.code === "Timeout") return null;
 *   throw error;
 * });
 * ```
 */
export function isLeaseError(value: unknown): value is LeaseError;

export {};
