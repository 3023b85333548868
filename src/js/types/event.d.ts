import type { LeaseMode, LostReason } from "./lease.js";

/** Something that happened to a lease, or to a request for one. Its type says which fields it has: {@link LeaseManagerEventMap}. */
export class LeaseEvent extends Event {
  private constructor();

  /** What happened. */
  readonly type: keyof LeaseManagerEventMap;
  /** The key. */
  readonly key: string;
  /** How the lease is held or requested at the time of the event. */
  readonly mode: LeaseMode;
  /** The lease's fencing token. */
  readonly token?: number;
  /**
   * How many holders and waiters of other contexts the store shows ahead of this one. It is 0 if the request waits only for a lease of this
   * manager.
   */
  readonly ahead?: number;
  /** The context that holds: the {@link LeaseManager.holder} of this manager. */
  readonly holder?: string;
  /** Why the lease was lost. */
  readonly reason?: LostReason;
  /** The time since the request, in ms. */
  readonly waitedMs?: number;
  /** The time since the grant, in ms. */
  readonly heldMs?: number;
}

/**
 * The events of a {@link LeaseManager}. Each lease emits one `granted`, then any number of `suspect`, each followed by `certain` unless the
 * lease ends first, then one `lost` or `released`. A lease that cannot be renewed is `suspect` before it is `lost`. Any lease is `lost`
 * without having been `suspect` if it is stolen, if the page is suspended or the manager closed, if its release finds that it is gone or
 * gets no answer, if the store fails for good (`StoreFailed`) or is full (`StoreFull`), if it reaches its `maxHoldMs`, or if it expires
 * without `autoRenew`.
 */
export interface LeaseManagerEventMap {
  /**
   * A request waits: others hold the key or came first, or leases of this manager hold it. With `ahead: 0` it waits only for a lease of
   * this manager. Work that waits for the lease under which it runs waits for ever, unless both requests have the same mode and say
   * `share: true`. A request that joins others of its manager in the queue emits nothing: they share one position. It is emitted again when
   * the requests take another position, at the end of the queue or after the page was frozen.
   */
  waiting: LeaseEvent & Required<Pick<LeaseEvent, "ahead">>;
  /** A request that emitted `waiting` got no lease: it timed out, was aborted, or was refused. */
  withdrawn: LeaseEvent & Required<Pick<LeaseEvent, "waitedMs">>;
  /** A request has its lease. */
  granted: LeaseEvent & Required<Pick<LeaseEvent, "token" | "holder" | "waitedMs">>;
  /** A lease is in doubt: not valid, and not lost. The manager asks the store. */
  suspect: LeaseEvent & Required<Pick<LeaseEvent, "token">>;
  /** A lease is valid again. */
  certain: LeaseEvent & Required<Pick<LeaseEvent, "token">>;
  /** A lease is lost for good. If its release got no answer, the reason is `StoreFailed`, and the lease expires by itself. */
  lost: LeaseEvent & Required<Pick<LeaseEvent, "token" | "reason" | "heldMs">>;
  /** A lease was released. */
  released: LeaseEvent & Required<Pick<LeaseEvent, "token" | "heldMs">>;
}
