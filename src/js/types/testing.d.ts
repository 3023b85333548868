// Of `leasehold/testing`: all of the package, in a time of its own.
export * from "./index.js";
import type { TestStore } from "./manager.js";

/**
 * The time of everything that `leasehold/testing` exports. It is stopped until a test advances it: hours of heartbeats take no time, and
 * nothing expires in between. This holds over `"memory"` and over a {@link FaultyStore}. IndexedDB answers in real time, so a lease over it
 * may expire if a test advances the clock before IndexedDB has answered.
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
   * Lets time pass, timer by timer. After each timer it runs everything that waits for no timer. Calls queue up.
   *
   * @param ms How long, in ms: a finite number, 0 or more. 0 only runs what waits for no timer.
   * @throws {TypeError} if it is not such a number.
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
 * What may go wrong with a transaction. Not applied: `"refuse"` (another try may succeed), `"fail"` (no try will),
 * `"stall"` (no answer ever comes). Applied: `"loseReply"` (an error says that its answer was lost), `"silence"` (no answer
 * ever comes).
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
  /**
   * Makes the next transactions fail, one for each fault. A list of keys is not a transaction, but the look at the keys that it finds is
   * one.
   */
  inject(...faults: StoreFault[]): void;

  /** Makes every transaction fail for which no other fault was injected, until {@link heal}. */
  failAlways(fault: StoreFault): void;

  /** Removes all faults. */
  heal(): void;

  /** How many transactions were requested so far. */
  readonly transactions: number;

  /** Called by leasehold: once for each transaction, and with `true` when keys are listed. */
  nextFault(lists?: boolean): StoreFault | undefined;
}
