// What the examples in the types' comments speak of without making it. Each may make its own.
declare const LeaseManager: typeof import("leasehold").LeaseManager;
declare const createStore: typeof import("leasehold").createStore;
declare const init: typeof import("leasehold").init;
declare const install: typeof import("leasehold").install;
declare const isLeaseError: typeof import("leasehold").isLeaseError;

declare const leases: import("leasehold").LeaseManager;
declare const lease: import("leasehold").Lease;

declare const db: IDBDatabase;
declare const request: IDBOpenDBRequest;
declare const note: { text: string };
declare const notes: { text: string }[];
declare const id: string;
declare const url: string;
declare const body: string;
declare const cache: { readonly isEmpty: boolean; reload(): void };
declare function backUp(): Promise<void>;
declare function read(): string;
declare function refresh(): Promise<string>;
declare function stillFresh(token: string): boolean;
declare function sync(): Promise<void>;
declare function needsRepair(): Promise<boolean>;
declare function repair(token: number): Promise<void>;
declare function serveUntil(signal: AbortSignal): Promise<void>;
declare function transfer(token: number): Promise<void>;
declare function save<T>(what: T, options?: { token: number; signal: AbortSignal }): Promise<T>;
declare function openDB(name: string, version: number, options: { upgrade(db: IDBDatabase): void }): Promise<IDBDatabase>;

declare module "node:fs/promises" {
  export function readFile(file: URL): Promise<Uint8Array<ArrayBuffer>>;
}
