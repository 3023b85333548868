/// <reference lib="esnext.disposable" />
import type { LeaseManagerEventMap } from "./event.js";
import type { LeaseGroup, LeaseItem } from "./group.js";
import type { Lease, LeaseMode, OpenDatabase } from "./lease.js";
import type { LockManager } from "./locks.js";
import type { HolderStatus, LeaseStats, LeaseStatus } from "./status.js";
import type { ElectOptions, RunOptions, TryRunOptions, TryRunOutcome, Work } from "./work.js";

/**
 * Connects one context to the leases of a store: tabs, workers and frames that open the same name exclude each other.
 *
 * Each manager is a context of its own: two of them in one page exclude each other. A manager owns its leases:
 * a {@link Lease} that you forget without releasing it stays held until the page ends.
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
  /** A subclass needs no constructor of its own. If it has one, that constructor passes all its arguments to `super()`. */
  protected constructor(...given: unknown[]);

  /**
   * Loads the wasm if need be, checks the options, and opens the store. Called on a subclass, it returns a manager of that class.
   *
   * @param name The store: managers that open the same name share its leases. A manager that is {@link attach attached} to a database of
   * that name shares none of them.
   * @throws {LeaseError} `InvalidOptions`; `Unsupported` where there is no IndexedDB, or it is forbidden; `Quota`;
   * `Store` if the database does not open; `InitFailed` if the wasm does not load.
   * @example
   * ```js
   * const leases = await LeaseManager.open("my-app", { leaseMs: 20_000, heartbeatMs: 5_000 });
   * ```
   */
  static open<T extends LeaseManager = LeaseManager>(this: { prototype: T } | void, name: string, options?: OpenOptions): Promise<T>;

  /**
   * Keeps the leases in the object store `leasehold` of a database of your own that is open, so that a write to that
   * database can be {@link Lease.fence fenced}. {@link createStore} makes the object store; with Dexie, declare
   * `leasehold: ""` in `stores()`.
   *
   * Leave the rows of `leasehold` alone. If a script clears the object store by hand, a holder considers its lease valid until its next
   * heartbeat, and then loses it as `StoreCleared`. Until then another context may be granted the same lease. The old holder's fenced
   * writes are refused at once. Tokens still grow, unless the clock is behind the last grant.
   *
   * The database stays yours: closing the manager does not close it, and you handle its `versionchange` event. When you close it (for
   * example to let another tab upgrade it), or the browser does, the leases are lost at once as `StoreFailed`, waiters in other contexts
   * are granted them at once, and requests fail: attach a new manager to the next connection. A write that is fenced but not yet checked by
   * then is not committed.
   *
   * In a frame of another site, do not attach to a database that `document.requestStorageAccess({ indexedDB: true })` has opened: the
   * frame's Web Locks stay apart from those of the tabs, so both would hold the same lease. It is safe if all managers of that database
   * have `beacon: false`.
   *
   * @param db An `IDBDatabase`, or what `openDB` of idb gives, or a Dexie database that is open.
   * @throws {LeaseError} `InvalidOptions`, for example if the database is closed, or the object store is missing or has a
   * key path; `InitFailed`.
   * @example
   * ```js
   * const db = await openDB("my-app", 2, { upgrade: (db) => createStore(db) });
   * const leases = await LeaseManager.attach(db);
   * ```
   */
  static attach<T extends LeaseManager = LeaseManager>(
    this: { prototype: T } | void,
    db: OpenDatabase,
    options?: AttachOptions,
  ): Promise<T>;

  /**
   * Deletes the leases and locks of a name, and their database, if nobody holds any. Open managers remain usable: their next request
   * creates the database again. A lease that is granted between the check and the deletion is lost (`StoreCleared`), and its `valid` turns
   * false before the database is gone. Tokens still grow, because the clock is a part of them. Leases in memory (`store: "memory"`) are not
   * affected: they end with the page or the process. Leases in a database of your own are not affected either, even if it has this name.
   *
   * @throws {LeaseError} `InUse` if a lease or a lock is held: its message says which, and for a lease who holds it.
   * `Store` after 5 s if another connection keeps the database open, for example that of a tab that is frozen or hangs. The browser still
   * deletes the database when that connection is closed. Until then no tab can open it, and requests for its leases fail with `Store`.
   * Otherwise as {@link open} and {@link list} do.
   * @example
   * ```js
   * await LeaseManager.delete("my-app");
   * ```
   */
  static delete(name: string): Promise<void>;

  /**
   * The id of this manager's session, as {@link LeaseStatus} shows it: 32 hexadecimal digits. A session ends when the manager has held
   * nothing and waited for nothing for about 10 s, and when the page is frozen or enters the back/forward cache; the next one has another
   * id.
   */
  readonly holder: string;

  /** Locks in the shape of `navigator.locks`. A lock and a lease of the same name do not exclude each other. */
  readonly locks: LockManager;

  /**
   * Waits for the lease of a key: by priority, then first come, first served.
   *
   * All requests of this manager for one key and mode share one position in the queue, with the largest priority among them. While other
   * contexts wait, the manager may pass the lease to its own next request for at most 50 ms after the grant, and at most 32 times. Then its
   * requests that still wait move to the end of the queue together, however long they have waited.
   *
   * @param key 1 to 1024 UTF-16 units of well-formed text. Keys that begin with `\0lock:` are reserved for {@link locks}.
   * @throws {LeaseError} `Timeout`, `Closed`, `InvalidKey`, `InvalidOptions`, `InstanceInUse`, `FormatTooNew`,
   * `Unsupported`, `Quota`, `Store`; `LeaseLost` if `maxHoldMs` was over before your code ran. When `signal` aborts, the
   * request is withdrawn, and the promise rejects with the signal's reason.
   * @example
   * ```js
   * const lease = await leases.acquire("notes", { timeoutMs: 5_000, info: "autosave" });
   * const reader = await leases.acquire("index", { mode: "shared" });
   * ```
   */
  acquire(key: string, options?: AcquireOptions): Promise<Lease>;

  /**
   * Tries once, and resolves with `null` if the key is taken. A holder that uses the key answers at once. If none answers, this takes 30
   * ms, or up to 280 ms where there are Web Locks, which show its death. In a hidden page it may take a second or more, because browsers,
   * above all Firefox, delay the timers of such a page.
   *
   * If the store is silent, it fails with `Store` after about three times the `storeTimeoutMs` of the manager: 15 s with the default times.
   * It takes longer while the manager holds or requests other leases, because it asks the store for those, too.
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
   * Waits for the leases of several keys, each in its own mode: all of them or none. When all are free it takes one transaction. Otherwise
   * it waits for one after the other, in an order that is the same for everybody, so that two such requests never wait for each other.
   * Leases that it holds meanwhile show in {@link status}, and are released on failure, time-out, abort or loss. With `timeoutMs: 0` it
   * tries once.
   *
   * @param keys 1 to 1000 keys, each once.
   * @throws {LeaseError} as {@link acquire} does; the message names an invalid key or option by its position, such as `keys[2].key`;
   * `LeaseLost` if one was lost before the last one was granted.
   * @example
   * ```js
   * const both = await leases.acquireAll([{ key: "from" }, { key: "rates", mode: "shared" }], { timeoutMs: 5_000 });
   * try {
   *   await transfer(both.leases[0].token);
   * } finally {
   *   await both.release();
   * }
   * ```
   */
  acquireAll(keys: readonly LeaseItem[], options?: AcquireAllOptions): Promise<LeaseGroup>;

  /**
   * Takes the lease from its holder, ahead of everybody who waits. The old holder loses its lease as `Stolen`: at once if it is reachable,
   * else at its next heartbeat. Until then it considers its lease valid: two contexts may act at the same time. Tokens still grow, and
   * {@link Lease.fence fences} still refuse the old holder's writes.
   *
   * @throws {LeaseError} as {@link acquire} does, but for `Timeout`; if the attempt that opened the manager's session got no answer, it
   * fails with `Store` and is not repeated: the old holder may have lost its lease; `LeaseLost` if the lease was stolen or the session
   * ended before your code ran.
   * @example
   * ```js
   * const lease = await leases.steal("notes", { info: "the user said: edit here" });
   * ```
   */
  steal(key: string, options?: StealOptions): Promise<Lease>;

  /**
   * Waits for the lease, does the work, releases the lease. Resolves with what the work returned, or rejects with what it threw, once the
   * lease is released: the next request finds the key free. A silent store delays that by at most a lease and two store time-outs. With
   * `lingerMs`, this manager counts the lease as released at once, and tells the store later.
   *
   * If the lease is lost meanwhile, `lease.signal` aborts, and the work goes on: it decides what to do. With
   * `onLost: "abort"` the promise rejects at once with the reason of `lease.signal`; a promise cannot be stopped, so work
   * that does not listen to the signal still goes on, and its outcome is ignored.
   *
   * @throws {LeaseError} as {@link acquire} does; with `onLost: "abort"` also `LeaseLost`.
   * @example
   * ```js
   * await leases.run("sync", { onLost: "abort" }, async (lease) => {
   *   await fetch("/sync", { method: "POST", headers: { "Fencing-Token": String(lease.token) }, signal: lease.signal });
   * });
   * ```
   */
  run<T>(key: string, work: Work<T>): Promise<T>;
  run<T>(key: string, options: RunOptions | undefined, work: Work<T>): Promise<T>;

  /**
   * Like {@link run}, but tries once, and says whether the lease was lost meanwhile. If the key is taken, it does not begin the work.
   *
   * @throws {LeaseError} as {@link tryAcquire} does; with `onLost: "abort"` also `LeaseLost`.
   * @example
   * ```js
   * const done = await leases.tryRun("backup", async () => backUp());
   * if (!done.ran) console.log("another tab is at it");
   * else if (done.lost) console.log(`lost meanwhile: ${done.lost}`);
   * ```
   */
  tryRun<T>(key: string, work: Work<T>): Promise<TryRunOutcome<T>>;
  tryRun<T>(key: string, options: TryRunOptions | undefined, work: Work<T>): Promise<TryRunOutcome<T>>;

  /**
   * Campaigns for a key, leads as long as its lease is held, and campaigns again after a loss. Each lead is a new lease with a larger
   * token, and starts the work again. When the work ends, the lead is released, and the promise resolves with what the work returned.
   *
   * The work of a lost lead may still be under way when the next lead begins: it has to stop when `lease.signal` aborts. Its outcome is
   * ignored. When `signal` aborts, the campaign or the lead is given up: `lease.signal` aborts and the promise rejects, both with its
   * reason. The promise settles only when the lease is released, as with {@link run}.
   *
   * If the store fails but trying again may help, the campaign continues, and the console warns once of each cause.
   *
   * @throws {LeaseError} as {@link acquire} does, but for `Timeout`, and for `Store` if trying again may help. What the work throws while
   * it leads, as it is.
   * @example
   * ```js
   * const controller = new AbortController();
   * await leases.elect("leader", { signal: controller.signal }, async (lease) => {
   *   await serveUntil(lease.signal);
   * });
   * ```
   */
  elect<T>(key: string, work: Work<T>): Promise<T>;
  elect<T>(key: string, options: ElectOptions | undefined, work: Work<T>): Promise<T>;

  /**
   * Who leads: who holds the key exclusively, or `null`. See {@link elect}. A leader whose tab was closed may be named until somebody
   * requests the key.
   *
   * @throws {LeaseError} as {@link status} does.
   * @example
   * ```js
   * const leader = await leases.leader("leader");
   * console.log(leader?.own ? "it is me" : leader?.info);
   * ```
   */
  leader(key: string): Promise<HolderStatus | null>;

  /**
   * Reads who holds a key, and who waits for it.
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
   * Reads all keys that begin with `prefix` and are held or waited for, in order.
   *
   * @throws {LeaseError} `Closed`, `InvalidKey`, `FormatTooNew`, `Unsupported`, `Quota`, `Store`.
   * @example
   * ```js
   * for (const { key, holders } of await leases.list("notes/")) console.log(key, holders.map(({ info }) => info));
   * ```
   */
  list(prefix?: string): Promise<LeaseStatus[]>;

  /** What this manager has done since it was opened. This does not ask the store. */
  stats(): LeaseStats;

  /**
   * Calls the listener for each event of this manager's leases, in order, until the manager has closed. The manager makes
   * events only once a listener was added. It never emits an event of any other type than those of {@link LeaseManagerEventMap},
   * and the console warns of a listener for another one.
   * After {@link close} it makes no more events, so a listener that is added then is never called for one.
   *
   * @example
   * ```js
   * leases.addEventListener("lost", ({ key, reason }) => console.warn(`lost ${key}: ${reason}`));
   * leases.addEventListener("waiting", ({ key, ahead }) => console.log(`${ahead} before me at ${key}`));
   * ```
   */
  addEventListener<K extends keyof LeaseManagerEventMap>(
    type: K,
    listener: ((this: LeaseManager, event: LeaseManagerEventMap[K]) => unknown) | { handleEvent(event: LeaseManagerEventMap[K]): unknown },
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;

  /** Removes a listener that was added with the same type and `capture`. */
  removeEventListener<K extends keyof LeaseManagerEventMap>(
    type: K,
    listener: ((this: LeaseManager, event: LeaseManagerEventMap[K]) => unknown) | { handleEvent(event: LeaseManagerEventMap[K]): unknown },
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | EventListenerOptions,
  ): void;

  /**
   * Refuses new requests, withdraws the waiting ones, releases all leases, and closes the store. Leases that are held are lost with the
   * reason `Closed`. It ends within two store time-outs, after every request that it withdraws has rejected. Closing again does nothing.
   */
  close(): Promise<void>;

  /** {@link close}, for `await using`. Where the engine lacks the symbol, its name is `Symbol.for("Symbol.asyncDispose")`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * What {@link LeaseManager.attach} takes. Times that are absent follow from the lease. The heartbeat, two store time-outs and the margin (a
 * tenth of the lease, at least 100 ms) must together be shorter than the lease.
 */
export interface AttachOptions {
  /** How long a lease lasts without renewal: 1 s to 24 h, by default 20 s. */
  leaseMs?: number | undefined;
  /** How often leases are renewed: at least 100 ms, by default a quarter of the lease. */
  heartbeatMs?: number | undefined;
  /** The time limit of one store operation. The default is a quarter of the lease or 5 s, whichever is shorter. */
  storeTimeoutMs?: number | undefined;
  /**
   * How long, up to 24 h, a lease is kept after its release while nobody else wants it, so that the next request of this context
   * with the same `info` costs no transaction. The default is 100 ms; 0 releases it at once.
   */
  lingerMs?: number | undefined;
  /**
   * Whether to hold a Web Lock as a sign of life. Without it, a dead holder is replaced when it has been silent for a lease and its margin,
   * instead of at once. The default is `true`.
   */
  beacon?: boolean | undefined;
  /**
   * A name of this context, of at most 1,024 bytes in UTF-8, that is stable over reloads, for workers: after a reload it takes over the
   * leases of the dead context of that name: at once if that context had a Web Lock, else when that context has been silent for a lease and
   * its margin, as with any other dead holder.
   *
   * While another context of that name lives, requests for the keys that it holds are refused as `InstanceInUse`: after 250 ms if that
   * context has a Web Lock, so that a reload has time to take over, else once this context has seen a heartbeat of that one, which takes up
   * to two heartbeats. Without a Web Lock, {@link LeaseManager.tryAcquire} does not wait for that heartbeat: it resolves with `null`. Leave
   * `instance` out in tabs: a user can duplicate a tab, and both would have the same name.
   */
  instance?: string | undefined;
  /**
   * Whether each event is written to `console.debug`, and the console warns at once of a request that waits for this
   * manager's own lease. The default is `false`: then the console warns only of the first such wait that takes a minute.
   */
  debug?: boolean | undefined;
}

/** A store in memory that fails on demand: `FaultyStore` of `leasehold/testing`. */
export interface TestStore {
  /** The fault of the next transaction, or, if `lists` is `true`, of a list of keys; `undefined` if it has none. */
  nextFault(lists?: boolean): string | undefined;
}

/** What {@link LeaseManager.open} takes. */
export interface OpenOptions extends AttachOptions {
  /**
   * Where the leases are kept. `"memory"` is for Node.js and for tests: only managers of this page, worker or thread share
   * these leases, and only those of one copy of this package. Two processes, two `worker_threads`, or two bundles that each
   * contain a copy of the package could hold the same key at once.
   */
  store?: "indexeddb" | "memory" | TestStore | undefined;
}

/** What {@link LeaseManager.steal} takes. */
export interface StealOptions {
  /**
   * A description of the holder that {@link LeaseManager.status} shows: well-formed text of at most 4,096 bytes in UTF-8.
   */
  info?: string | undefined;
}

/** What {@link LeaseManager.tryAcquire} takes. */
export interface TryAcquireOptions {
  /** How to hold the key; by default `"exclusive"`. */
  mode?: LeaseMode | undefined;
  /**
   * Whether to share the key with this manager's other requests that also set `share` and have the same `mode`. Such a request joins them
   * at once, even if somebody waits, because the work under one of these leases may have made it. The key is free when the last of their
   * leases is released, so others wait for as long as such leases overlap. The default is `false`.
   */
  share?: boolean | undefined;
  /**
   * The longest time to hold the key, in ms, rounded up: more than 0, up to 24 h. After that the lease is released, and lost as `Expired`.
   * By default there is no limit.
   */
  maxHoldMs?: number | undefined;
  /**
   * Whether the lease is renewed in the background. With `false`, it is lost as `Expired` unless
   * {@link Lease.extend} or {@link Lease.verify} renew it in time. The default is `true`.
   */
  autoRenew?: boolean | undefined;
  /**
   * A description of the holder that {@link LeaseManager.status} shows: well-formed text of at most 4,096 bytes in UTF-8.
   */
  info?: string | undefined;
}

/** What {@link LeaseManager.acquireAll} takes. */
export interface AcquireAllOptions {
  /**
   * How long to wait, in ms. Absent or `Infinity`, the wait for holders has no limit. 0 tries once. Such a try ends when the store
   * answers; if the store is silent, it ends after about three times the `storeTimeoutMs` of the manager, or later while the manager holds
   * or requests other leases.
   *
   * After the limit, a request may take up to 250 ms more to reject, because it asks the store who holds the key. The limit also covers the
   * wait for a store that is silent or fails temporarily. For such a store, a request without a limit does not wait for ever: it fails with
   * `Store` once the store has been silent or busy for one to two leases, or has refused a new request three times.
   */
  timeoutMs?: number | undefined;
  /** Gives up waiting when it aborts. Once the lease is granted, it does nothing. */
  signal?: AbortSignal | undefined;
  /**
   * Queues the request ahead of all with a smaller priority, even if they came earlier: a whole number of 32 bits, by default 0. Between
   * contexts, the largest priority among the waiting requests of a context counts for all of them.
   */
  priority?: number | undefined;
  /**
   * A description of the holder that {@link LeaseManager.status} shows: well-formed text of at most 4,096 bytes in UTF-8.
   */
  info?: string | undefined;
}

/** What {@link LeaseManager.acquire} takes. */
export interface AcquireOptions extends TryAcquireOptions, AcquireAllOptions {}
