import type { LeaseMode } from "./lease.js";

/** A snapshot of a key, as the store has it: one holder or waiter for each context and mode, not one for each request. */
export interface LeaseStatus {
  /** The key. */
  key: string;
  /** The last token that was ever reserved; 0 if none was. */
  lastToken: number;
  /**
   * Who holds it: one exclusively, or several who share it. A context that keeps an unused lease for `lingerMs` is shown, too;
   * the manager that you ask releases its own first.
   */
  holders: HolderStatus[];
  /** Who waits, in order. Requests that wait for a lease of their own context are not shown. */
  queue: WaiterStatus[];
  /**
   * How many entries of `queue` are ahead of that of this manager. `null` if it has none: its requests wait for nothing, or only for a
   * lease of its own.
   */
  position: number | null;
}

/** A context that holds a key or waits for it. */
export interface ContextStatus {
  /** The {@link LeaseManager.holder} of its manager. */
  holder: string;
  /** Whether it is the context of the manager that reads the status. */
  own: boolean;
  /** The context's `instance` name; empty if it has none. */
  instance: string;
  /** How it holds the key, or will. */
  mode: LeaseMode;
  /**
   * The `info` of the request that the store received. If the context passes the lease to its next request, or steals a key that it already
   * waits for, this does not change.
   */
  info: string;
}

/** A context that waits for a key. */
export interface WaiterStatus extends ContextStatus {
  /** Its priority in the queue: larger ones go first. */
  priority: number;
}

/** A context that holds a key. */
export interface HolderStatus extends ContextStatus {
  /** The first token of its grant. */
  token: number;
  /** When the lease expires unless it is renewed, in ms since 1970 by the holder's clock: for display only. */
  expiresAt: number;
}

/** What a manager has done since it was opened. */
export interface LeaseStats {
  /** Leases that were granted. */
  granted: number;
  /**
   * How often a request had to queue in the store. A request that queues again, because its context has passed the lease on, counts again.
   */
  waited: number;
  /** Renewals that were sent. */
  renewed: number;
  /** Leases that were released. */
  released: number;
  /** Leases that were lost. */
  lost: number;
  /** Transactions of the store. */
  transactions: number;
}
