// Written by hand, and checked against the package by tests/js.
/// <reference lib="esnext.disposable" />

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

/**
 * A lease that is held.
 *
 * It is not proof: a page that is paused for longer than its lease is overtaken. What must never be done by two holders
 * is {@link fence fenced}, or written with the {@link token}, to a place that refuses smaller tokens.
 */
export class Lease {
  private constructor();

  /** The key that is leased. */
  readonly key: string;

  /** The fencing token: larger than that of every earlier lease of the key. A safe integer. */
  readonly token: number;

  /** Whether the lease is held, by this page's own clock and with a margin. Asks nobody. */
  readonly valid: boolean;

  /** How long the lease is certain to last unless it is renewed; 0 if it is lost, released or in doubt. */
  readonly remainingMs: number;

  /** When the lease runs out unless it is renewed, in ms since 1970; the present if it is not {@link valid}. */
  readonly expiresAt: number;

  /**
   * Aborts when the lease is lost. Its reason is a {@link LeaseError} of code `LeaseLost`.
   *
   * @example
   * ```js
   * await fetch(url, { method: "PUT", body, signal: lease.signal });
   * ```
   */
  readonly signal: AbortSignal;

  /** Brings the reason when the lease is lost; pending for ever after a normal release. Never rejects. */
  readonly lost: Promise<LostReason>;

  /**
   * Asks the store whether the lease is still held, and renews it.
   *
   * @throws {LeaseError} `Closed`, `Unsupported`, `Quota`, `Store`: then nobody knows, and the lease stays as it is.
   */
  verify(): Promise<boolean>;

  /**
   * Has a transaction commit only if the lease is still current *in that transaction*: nothing is written by a page that
   * was paused and overtaken. Otherwise the transaction is aborted, and what is returned rejects.
   *
   * The check begins at the call, before whatever you ask of the transaction next. You need not wait for it; if you do,
   * you can go on in the same transaction. Keep it short, under a third of the lease: renewals wait behind it. Its own
   * `commit()` waits for the check (not one that is borrowed from the prototype, nor with two copies of this package).
   *
   * @param transaction A `readwrite` transaction of the database that the manager was {@link LeaseManager.attach attached}
   * to, with `"leasehold"` among its object stores.
   * @throws {LeaseError} `LeaseLost`; `InvalidOptions` for a transaction that cannot be fenced, which is aborted too;
   * `Store` if it ended before it was checked. None of them is reported as unhandled.
   * @example
   * ```js
   * const tx = db.transaction(["notes", "leasehold"], "readwrite");
   * lease.fence(tx);
   * tx.objectStore("notes").put(note, id);
   * ```
   */
  fence(transaction: OpenTransaction, options?: FenceOptions): Promise<void>;

  /**
   * Gives the lease back, and tells whether it was still held. It begins at the call. Calling it again gives the same
   * answer.
   *
   * @throws {LeaseError} `Store` if the store does not answer; then the lease runs out by itself. A loss is no error.
   */
  release(): Promise<ReleaseOutcome>;

  /** {@link release} in the background; only where the engine has the symbol. */
  [Symbol.dispose](): void;

  /** {@link release}, for `await using`; only where the engine has the symbol. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** An `IDBDatabase`, as it is or as idb shows it; or a Dexie database. */
export type OpenDatabase = (EventTarget & { readonly name: string; close(): void }) | { backendDB(): IDBDatabase };

/** An `IDBTransaction`, as it is or as idb shows it; or a Dexie transaction. */
export type OpenTransaction = (EventTarget & { abort(): void }) | { readonly idbtrans: IDBTransaction };

/** What {@link Lease.fence} takes. */
export interface FenceOptions {
  /** Renew the lease in the same transaction: who writes often then needs no other renewal. */
  renew?: boolean | undefined;
}

/**
 * Makes the object store that {@link LeaseManager.attach} needs, unless it is there: to be called when the database is
 * upgraded. Dexie makes it by itself: declare `leasehold: ""` in `stores()`.
 *
 * @example
 * ```js
 * request.onupgradeneeded = () => createStore(request.result);
 * ```
 */
export function createStore(db: OpenDatabase): void;

/** How a release ended. */
export type ReleaseOutcome = "released" | "lost";

/**
 * Why a lease was lost: it was not renewed in time; another context stole it; the context was suspended; another tab
 * evicted it; the site's data was cleared; the store failed for good; a newer version of this package rewrote the record;
 * the manager was closed.
 */
export type LostReason =
  | "Expired"
  | "Stolen"
  | "Suspended"
  | "Evicted"
  | "StoreCleared"
  | "StoreFailed"
  | "FormatTooNew"
  | "Closed";

/** How a key is held: by one alone, or together with others who share it. */
export type LeaseMode = "exclusive" | "shared";

/** A snapshot of a key. */
export interface LeaseStatus {
  /** The key. */
  key: string;
  /** The last token that was ever reserved; 0 if none was. */
  lastToken: number;
  /** Who holds it: one exclusively, or several who share it. */
  holders: HolderStatus[];
  /** Who waits, the next first. */
  queue: WaiterStatus[];
  /** How many stand in the queue before the manager that was asked; `null` if it does not wait. */
  position: number | null;
}

/** What is known of a context that holds a key or waits for it. */
export interface ContextStatus {
  /** The {@link LeaseManager.holder} of its manager. */
  holder: string;
  /** Whether it is the manager that was asked. */
  own: boolean;
  /** The user's own name for the context; empty for none. */
  instance: string;
  /** How it holds the key, or will. */
  mode: LeaseMode;
  /** What it says of itself. */
  info: string;
}

/** A context that waits for a key. */
export interface WaiterStatus extends ContextStatus {
  /** A larger one goes first. */
  priority: number;
}

/** A context that holds a key. */
export interface HolderStatus extends ContextStatus {
  /** The first token of its grant. */
  token: number;
  /** When the lease runs out unless it is renewed, in ms since 1970 by the holder's clock: for display only. */
  expiresAt: number;
}

/** What a manager did so far. */
export interface LeaseStats {
  /** Leases that were granted. */
  granted: number;
  /** Requests that had to queue in the store. */
  waited: number;
  /** Renewals that were sent. */
  renewed: number;
  /** Leases that were given back. */
  released: number;
  /** Leases that were lost. */
  lost: number;
  /** Transactions of the store. */
  transactions: number;
}

/** Something that happened to a lease, or to a request for one. What it has depends on its type: {@link LeaseManagerEventMap}. */
export class LeaseEvent extends Event {
  private constructor();

  /** What happened. */
  readonly type: keyof LeaseManagerEventMap;
  /** The key. */
  readonly key: string;
  /** How the lease is held or asked for. */
  readonly mode: LeaseMode;
  /** The lease's fencing token. */
  readonly token?: number;
  /** How many contexts hold the key or stand before the request. */
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
 * What a {@link LeaseManager} tells. Of each lease: `granted`, then `suspect` and `certain` in turns, and in the end either
 * `lost` or `released`. A lease that ran out was `suspect` before it is `lost`, unless it was its release that found it gone.
 */
export interface LeaseManagerEventMap {
  /** A request queues: others hold the key, or came before. One that waits for this manager's own leases only is not told. */
  waiting: LeaseEvent & { readonly ahead: number };
  /** A request that was told as waiting got no lease: its time was up, or it was aborted or refused. */
  withdrawn: LeaseEvent & { readonly waitedMs: number };
  /** A request has its lease. */
  granted: LeaseEvent & { readonly token: number; readonly holder: string; readonly waitedMs: number };
  /** A lease is in doubt: not valid, not lost. The store is asked. */
  suspect: LeaseEvent & { readonly token: number };
  /** A lease is beyond doubt again. */
  certain: LeaseEvent & { readonly token: number };
  /** A lease is lost, once and for good. */
  lost: LeaseEvent & { readonly token: number; readonly reason: LostReason; readonly heldMs: number };
  /** A lease was given back. */
  released: LeaseEvent & { readonly token: number; readonly heldMs: number };
}

/**
 * What went wrong. With the DOM's name for it where it has one, else `LeaseError`:
 *
 * | code | name | |
 * | --- | --- | --- |
 * | `Timeout` | `TimeoutError` | the time-out passed while others held the key |
 * | `Closed` | `InvalidStateError` | the manager was closed |
 * | `InvalidKey` | | the key is empty, too long, or no well-formed text |
 * | `InvalidOptions` | | an unknown option, or a value that does not fit |
 * | `FormatTooNew` | | a newer version of this package wrote the record; it was left as it is |
 * | `Unsupported` | `NotSupportedError` | there is no IndexedDB here, or it is forbidden |
 * | `Quota` | `QuotaExceededError` | the store is full |
 * | `Store` | | the store failed; the message says whether trying again may help |
 * | `LeaseLost` | | the reason of {@link Lease.signal}, and what {@link Lease.fence} rejects with |
 * | `InitConflict` | `InvalidStateError` | `init()` named another wasm than the one that was chosen before |
 * | `InitFailed` | | the wasm did not load |
 * | `Internal` | | a bug |
 */
export type LeaseErrorCode =
  | "Timeout"
  | "Closed"
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

/** A `DOMException`, but for its `code`, which is a number there. */
interface DOMExceptionWithoutCode extends Omit<DOMException, "code"> {}
declare const DOMExceptionWithoutCode: { new (message?: string, name?: string): DOMExceptionWithoutCode };

/** Every failure of this package. It is a `DOMException`; its `code` tells what went wrong. */
export class LeaseError extends DOMExceptionWithoutCode {
  private constructor();

  /** What went wrong. */
  readonly code: LeaseErrorCode;
  /** Of `LeaseLost`: why. */
  readonly reason?: LostReason;
  /** Of `LeaseLost`: the key. */
  readonly key?: string;
  /** Of `LeaseLost`: the token of the lease. */
  readonly token?: number;
  /** Of `InitFailed` and `Internal`: what lies behind it. */
  readonly cause?: unknown;
}

/**
 * Whether a value is a {@link LeaseError}, of whichever copy of this package.
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

/** Where the wasm comes from: its URL, its bytes, or the compiled module. */
export type WasmSource = string | URL | ArrayBuffer | ArrayBufferView | WebAssembly.Module;

/**
 * Chooses where the wasm comes from; needed only where `leasehold_bg.wasm` does not lie beside `index.mjs`, or `fetch()`
 * cannot reach it. It loads once: another call with the same source, or with none, gives the same promise.
 *
 * @throws {LeaseError} `InitFailed`; `InitConflict` if another source was chosen before; `InvalidOptions`.
 * @example
 * ```js
 * import { readFile } from "node:fs/promises";
 * await init(await readFile(new URL(import.meta.resolve("leasehold/leasehold.wasm"))));
 * ```
 */
export function init(source?: WasmSource): Promise<void>;

export {};
