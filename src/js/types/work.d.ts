import type { Lease, LostReason } from "./lease.js";
import type { AcquireAllOptions, AcquireOptions, TryAcquireOptions } from "./manager.js";

/** Work under a lease. The lease is released when what the work returns has settled. */
export type Work<T> = (lease: Lease) => T | PromiseLike<T>;

/**
 * What happens to the work when the lease is lost: `lease.signal` aborts, and nothing else (`"notify"`); or the promise
 * also rejects at once, and the outcome of the work is ignored (`"abort"`).
 */
export type OnLost = "notify" | "abort";

/** What {@link LeaseManager.run} takes. */
export interface RunOptions extends AcquireOptions {
  /** What the loss of the lease does to the work: by default `"notify"`. */
  onLost?: OnLost | undefined;
}

/** What {@link LeaseManager.tryRun} takes. */
export interface TryRunOptions extends TryAcquireOptions {
  /** What the loss of the lease does to the work: by default `"notify"`. */
  onLost?: OnLost | undefined;
}

/** What {@link LeaseManager.tryRun} resolves with. */
export type TryRunOutcome<T> =
  | {
      /** The key was taken. */
      ran: false;
    }
  | {
      /** The work was done. */
      ran: true;
      /** What it returned. */
      value: T;
      /** Why the lease was lost before the work had ended; `null` if it was not. */
      lost: LostReason | null;
    };

/** What {@link LeaseManager.elect} takes. */
export interface ElectOptions extends Omit<AcquireAllOptions, "timeoutMs"> {
  /** Gives up the campaign or the lead when it aborts. */
  signal?: AbortSignal | undefined;
}
