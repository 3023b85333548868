/// <reference lib="esnext.disposable" />
import type { Lease, LeaseMode, LostReason, ReleaseOutcome } from "./lease.js";

/** One of the keys of {@link LeaseManager.acquireAll}. */
export interface LeaseItem {
  /** The key: 1 to 1024 UTF-16 units of well-formed text. */
  key: string;
  /** How to hold it; by default `"exclusive"`. */
  mode?: LeaseMode | undefined;
}

/** Leases that were granted together. Each is a {@link Lease} like any other, and may be released on its own. */
export class LeaseGroup implements Iterable<Lease> {
  private constructor();

  /** The leases, in the order in which they were requested. */
  readonly leases: readonly Lease[];

  /** The lease of a key, if it is one of these. */
  get(key: string): Lease | undefined;

  /** Whether all of them are held, by this page's own clock and with a margin. This does not ask the store. */
  readonly valid: boolean;

  /** Aborts when one of them is lost. Its reason is the {@link LeaseError} of that one. */
  readonly signal: AbortSignal;

  /** Resolves with the reason when one of them is lost; pending for ever after a normal release. Never rejects. */
  readonly lost: Promise<LostReason>;

  /**
   * Asks the store whether all of them are still held, and renews them. Resolves with `false` if one of them is lost or released.
   *
   * @throws {LeaseError} as {@link Lease.verify} does.
   */
  verify(): Promise<boolean>;

  /**
   * Releases all of them, and resolves with `"lost"` if one of them was lost. The release begins at the call.
   *
   * @throws {LeaseError} `Store` if the store does not answer for one of them; then that one expires by itself.
   */
  release(): Promise<ReleaseOutcome>;

  /** The leases, in the order in which they were requested. */
  [Symbol.iterator](): IterableIterator<Lease>;

  /** {@link release} in the background, for `using`. Where the engine lacks the symbol, its name is `Symbol.for("Symbol.dispose")`. */
  [Symbol.dispose](): void;

  /** {@link release}, for `await using`. Where the engine lacks the symbol, its name is `Symbol.for("Symbol.asyncDispose")`. */
  [Symbol.asyncDispose](): Promise<void>;
}
