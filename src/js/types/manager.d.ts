/// <reference lib="esnext.disposable" />
import type { Lease, OpenDatabase } from "./lease.js";
import type { LeaseStats, LeaseStatus } from "./status.js";
import type { LeaseManagerEventMap } from "./event.js";

/**
 * One context's door to the leases of a store: tabs, workers and frames that open the same name take turns.
 *
 * Each manager is an incarnation of its own: two of them in one page exclude each other. It owns its leases:
 * forgetting a {@link Lease} without releasing it keeps it held until the page ends.
 *
 * @example
 * ```js
 * const leases = await LeaseManager.open("my-app");
 * const lease = await leases.acquire("notes");
 * try {
 *   await save(notes, { token: lease.token, signal: lease.signal });
 * } finally {
 *   await lease.release();
 * }
 * ```
 */
export class LeaseManager extends EventTarget {
  private constructor();

  /**
   * Loads the wasm if need be, checks the options, and opens the store.
   *
   * @param name The store: who opens the same name shares its leases.
   * @throws {LeaseError} `InvalidOptions`; `Unsupported` where there is no IndexedDB, or it is forbidden; `Quota`;
   * `Store` if the database does not open; `InitFailed` if the wasm does not load.
   * @example
   * ```js
   * const leases = await LeaseManager.open("my-app", { leaseMs: 20_000, heartbeatMs: 5_000 });
   * ```
   */
  static open(name: string, options?: OpenOptions): Promise<LeaseManager>;

  /**
   * The leases of a database of your own that is open, so that a write to it can be {@link Lease.fence fenced}. They are
   * kept in its object store `leasehold`: {@link createStore} makes it; with Dexie, declare `leasehold: ""` in `stores()`.
   *
   * The database stays yours: closing the manager does not close it. When you close it, attach again to the next one.
   *
   * @param db An `IDBDatabase`, or what `openDB` of idb gives, or a Dexie database that is open.
   * @throws {LeaseError} `InvalidOptions`, also if the object store is missing; `InitFailed`.
   * @example
   * ```js
   * const db = await openDB("my-app", 2, { upgrade: (db) => createStore(db) });
   * const leases = await LeaseManager.attach(db);
   * ```
   */
  static attach(db: OpenDatabase, options?: AttachOptions): Promise<LeaseManager>;

  /**
   * The name of this incarnation, as {@link LeaseStatus} shows it: 32 hexadecimal digits. A page that was frozen, or came
   * back from the back/forward cache, has another one.
   */
  readonly holder: string;

  /**
   * Waits for the lease of a key: first come, first served.
   *
   * @param key 1 to 1024 UTF-16 units of well-formed text.
   * @throws {LeaseError} `Timeout`, `Closed`, `InvalidKey`, `InvalidOptions`, `FormatTooNew`, `Unsupported`, `Quota`,
   * `Store`. When `signal` aborts, its reason instead, as it is; then the request is withdrawn.
   * @example
   * ```js
   * const lease = await leases.acquire("notes", { timeoutMs: 5_000, info: "autosave" });
   * ```
   */
  acquire(key: string, options?: AcquireOptions): Promise<Lease>;

  /**
   * Tries once: `null` if the key is taken.
   *
   * @param key 1 to 1024 UTF-16 units of well-formed text.
   * @throws {LeaseError} as {@link acquire} does, but for `Timeout`; `LeaseLost` while the page is suspended.
   * @example
   * ```js
   * const lease = await leases.tryAcquire("notes");
   * if (!lease) return "somebody else is at it";
   * ```
   */
  tryAcquire(key: string, options?: TryAcquireOptions): Promise<Lease | null>;

  /**
   * Looks at a key: who holds it, who waits.
   *
   * @throws {LeaseError} `Closed`, `InvalidKey`, `FormatTooNew`, `Unsupported`, `Quota`, `Store`.
   * @example
   * ```js
   * const { holders, queue, position } = await leases.status("notes");
   * console.log(holders.length ? `held by ${holders[0].info}` : "free", `${queue.length} wait`, position);
   * ```
   */
  status(key: string): Promise<LeaseStatus>;

  /**
   * Looks at all keys that begin like this and are held or waited for, in order.
   *
   * @throws {LeaseError} `Closed`, `InvalidKey`, `FormatTooNew`, `Unsupported`, `Quota`, `Store`.
   * @example
   * ```js
   * for (const { key, holders } of await leases.list("notes/")) console.log(key, holders.map(({ info }) => info));
   * ```
   */
  list(prefix?: string): Promise<LeaseStatus[]>;

  /** What this manager did so far. Asks nobody. */
  stats(): LeaseStats;

  /**
   * Hears what happens to the leases of this manager, in its order, until it has closed. Nothing is made of what nobody
   * listens to.
   *
   * @example
   * ```js
   * leases.addEventListener("lost", ({ key, reason }) => console.warn(`lost ${key}: ${reason}`));
   * leases.addEventListener("waiting", ({ key, ahead }) => console.log(`${ahead} before me at ${key}`));
   * ```
   */
  addEventListener<K extends keyof LeaseManagerEventMap>(
    type: K,
    listener: (this: LeaseManager, event: LeaseManagerEventMap[K]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<K extends keyof LeaseManagerEventMap>(
    type: K,
    listener: (this: LeaseManager, event: LeaseManagerEventMap[K]) => unknown,
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | EventListenerOptions,
  ): void;

  /**
   * Refuses new requests, withdraws the waiting ones, releases what is held, and lets go of the store. Leases that are
   * held are lost with the reason `Closed`. It ends within two store time-outs; closing twice is closing once.
   */
  close(): Promise<void>;

  /** {@link close}, for `await using`; only where the engine has the symbol. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** What {@link LeaseManager.attach} takes. What is absent follows from the lease. */
export interface AttachOptions {
  /** How long a lease lasts without renewal: 1 s to 24 h. 20 s unless chosen. */
  leaseMs?: number | undefined;
  /** How often leases are renewed: at least 100 ms. A quarter of the lease unless chosen. */
  heartbeatMs?: number | undefined;
  /** The time limit of one store operation. A quarter of the lease, at most 5 s, unless chosen. */
  storeTimeoutMs?: number | undefined;
  /**
   * How long a lease is kept after its release while nobody else wants it, so that the next request of this context costs
   * no transaction. 100 ms unless chosen; 0 gives it back at once.
   */
  lingerMs?: number | undefined;
  /**
   * Whether to hold a Web Lock as a sign of life. Without it a dead holder is replaced after a lease instead of at once.
   * `true` unless chosen.
   */
  beacon?: boolean | undefined;
}

/** What {@link LeaseManager.open} takes. */
export interface OpenOptions extends AttachOptions {
  /** Where the leases are kept. `"memory"` is seen by nobody outside of this page or worker. */
  store?: "indexeddb" | "memory" | undefined;
}

/** What {@link LeaseManager.acquire} takes. */
export interface AcquireOptions {
  /** How long to wait; 0 tries once. Absent or `Infinity`, it waits for ever. */
  timeoutMs?: number | undefined;
  /** Gives up waiting when it aborts. Once the lease is granted, it does nothing. */
  signal?: AbortSignal | undefined;
  /** What the holder says of itself, for whoever looks at {@link LeaseManager.status}. */
  info?: string | undefined;
}

/** What {@link LeaseManager.tryAcquire} takes. */
export interface TryAcquireOptions {
  /** What the holder says of itself, for whoever looks at {@link LeaseManager.status}. */
  info?: string | undefined;
}
