// Of `leasehold/testing`: all of the package, in a time of its own.
export * from "./index.js";
import type { TestStore } from "./manager.js";

/**
 * The time of everything that `leasehold/testing` exports. It stands still until it is told to pass: hours of heartbeats take
 * no time, and nothing runs out while a test thinks.
 *
 * @example
 * ```js
 * import { LeaseManager, clock } from "leasehold/testing";
 *
 * const leases = await LeaseManager.open("app", { store: "memory" });
 * const lease = await leases.acquire("notes");
 * await clock.advance(3_600_000);
 * console.log(lease.valid); // true: it was renewed all the while
 * ```
 */
export interface Clock {
  /** The monotonic clock, in ms. It starts at 0. */
  readonly nowMs: number;

  /**
   * Lets time pass, timer by timer, and after each lets everything happen that waits for no timer. Calls queue up.
   *
   * @param ms How long: a finite number, 0 or more. 0 only lets things happen.
   * @throws {TypeError} if it is no such number.
   */
  advance(ms: number): Promise<void>;

  /**
   * Sets the wall clock, as a user or a time server does: to a date, or to ms since 1970. It starts at 2025-01-01.
   *
   * @throws {TypeError} if it is neither.
   */
  setWall(time: Date | number): void;
}

/** The one clock of `leasehold/testing`. */
export const clock: Clock;

/**
 * What may go wrong with a transaction. It is not applied: `"refuse"`, another try may succeed; `"fail"`, none will; `"stall"`,
 * no answer ever comes. It is applied: `"loseReply"`, but its answer is lost; `"silence"`, but no answer ever comes.
 */
export type StoreFault = "refuse" | "fail" | "loseReply" | "silence" | "stall";

/**
 * A store in memory that fails on demand. Managers of one name share the leases, and each fails as its own store says: so one
 * context is cut off while the others go on.
 *
 * @example
 * ```js
 * import { FaultyStore, LeaseManager, clock } from "leasehold/testing";
 *
 * const store = new FaultyStore();
 * const leases = await LeaseManager.open("app", { store });
 * const lease = await leases.acquire("notes");
 * store.failAlways("stall");
 * await clock.advance(20_000);
 * console.log(lease.valid); // false
 * ```
 */
export class FaultyStore implements TestStore {
  /** Has the next transactions fail, one each. */
  inject(...faults: StoreFault[]): void;

  /** Has all transactions fail that nothing else was planned for, until {@link heal}. */
  failAlways(fault: StoreFault): void;

  /** Takes all faults back. */
  heal(): void;

  /** How many transactions were asked for so far. */
  readonly transactions: number;

  /** Asked once for each transaction. */
  nextFault(): StoreFault | undefined;
}
