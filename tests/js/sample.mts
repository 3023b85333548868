// Uses every export as users do; types.test.mjs compiles it, strictly. It never runs.
import {
  type AcquireAllOptions,
  type AcquireOptions,
  type AttachOptions,
  type ContextStatus,
  type ElectOptions,
  type FenceOptions,
  type HolderStatus,
  Lease,
  LeaseError,
  type LeaseErrorCode,
  LeaseEvent,
  LeaseGroup,
  type LeaseItem,
  LeaseManager,
  type LeaseManagerEventMap,
  type LeaseMode,
  type LeaseStats,
  type LeaseStatus,
  Lock,
  type LockInfo,
  LockManager,
  type LockManagerSnapshot,
  type LockMode,
  type LockOptions,
  type LostReason,
  type OnLost,
  type OpenDatabase,
  type OpenOptions,
  type OpenTransaction,
  type ReleaseOutcome,
  type RunOptions,
  type StealOptions,
  type TryAcquireOptions,
  type TryRunOptions,
  type TryRunOutcome,
  type UpgradeOptions,
  type WaiterStatus,
  type WasmSource,
  type Work,
  createStore,
  init,
  install,
  isLeaseError,
} from "leasehold";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(..._equal: Equal<A, B> extends true ? [] : [never]): void {}

// Code that takes the browser's takes ours.
export async function locking(locks: LockManager, signal: AbortSignal): Promise<globalThis.LockManager> {
  const done: boolean = install({ leaseMs: 5_000 });
  const mode: LockMode = done ? "shared" : "exclusive";
  const options: LockOptions = { mode, signal };
  const five: number = await locks.request("a", async ({ name }: Lock) => name.length);
  const six: number = await locks.request("a", { mode: "shared" }, (lock) => lock.mode.length);
  const maybe: string | undefined = await locks.request("a", { ifAvailable: true }, (lock) => lock?.name);
  const never: string | undefined = await locks.request("a", options, (lock) => lock?.mode);
  const { held, pending }: LockManagerSnapshot = await locks.query();
  const all: LockInfo[] = [...held, ...pending];
  console.log(five, six, maybe, never, all.map(({ name, mode, clientId }) => [name, mode, clientId]));
  return locks;
}

export async function everything(signal: AbortSignal): Promise<void> {
  const source: WasmSource = new URL("https://example.org/leasehold.wasm");
  await init(source);
  await init(new Uint8Array(8));
  await init();

  const times: OpenOptions = { leaseMs: 20_000, heartbeatMs: 5_000, storeTimeoutMs: 2_000, lingerMs: 0, beacon: true, store: "memory", instance: "worker-1", debug: false };
  await using leases = await LeaseManager.open("my-app", times);
  // @ts-expect-error
  await LeaseManager.open("my-app", { lease: 5 });
  // @ts-expect-error
  await LeaseManager.open("my-app", { store: "disk" });
  // @ts-expect-error
  new LeaseManager();
  same<typeof leases.holder, string>();
  class Notes extends LeaseManager {
    readonly prefix = "notes/";
  }
  const notes = await Notes.open("my-app", times);
  same<typeof notes, Notes>();
  const { open } = LeaseManager;
  const taken = await open("my-app");
  same<typeof taken, LeaseManager>();

  const options: AcquireOptions = { timeoutMs: Infinity, signal, info: "tab 1", mode: "shared", priority: -1, share: true };
  await using lease = await leases.acquire("notes", options);
  same<typeof lease, Lease>();
  const trying: TryAcquireOptions = { info: "tab 1" };
  const maybe = await leases.tryAcquire("notes", trying);
  same<typeof maybe, Lease | null>();
  // @ts-expect-error
  await leases.tryAcquire("notes", { timeoutMs: 5 });
  {
    using short = await leases.acquire("notes");
    same<typeof short.key, string>();
  }

  same<typeof lease.token, number>();
  same<typeof lease.valid, boolean>();
  same<typeof lease.remainingMs, number>();
  same<typeof lease.expiresAt, number>();
  same<typeof lease.signal, AbortSignal>();
  same<typeof lease.lost, Promise<LostReason>>();
  same<Awaited<ReturnType<typeof lease.verify>>, boolean>();
  const request = indexedDB.open("notes", 2);
  request.onupgradeneeded = () => createStore(request.result);
  const beside: AttachOptions = { leaseMs: 20_000 };
  same<typeof attached, LeaseManager>();
  const attached = await LeaseManager.attach(request.result, beside);
  // @ts-expect-error
  await LeaseManager.attach(request.result, { store: "memory" });
  // @ts-expect-error
  await LeaseManager.attach("notes");
  // As Dexie shows them.
  const others: [OpenDatabase, OpenTransaction] = [{ backendDB: () => request.result }, { idbtrans: request.transaction! }];
  await LeaseManager.attach(others[0]);
  const renewing: FenceOptions = { renew: true };
  const transaction = request.result.transaction(["notes", "leasehold"], "readwrite");
  same<typeof fenced, Promise<void>>();
  const fenced = lease.fence(transaction, renewing);
  lease.fence(others[1]);
  // @ts-expect-error
  lease.fence(request.result.transaction);

  // @ts-expect-error
  lease.token = 5;
  const outcome: ReleaseOutcome = await lease.release();
  same<typeof outcome, "released" | "lost">();

  const status: LeaseStatus = await leases.status("notes");
  const holder: HolderStatus | undefined = status.holders[0];
  const first: WaiterStatus | undefined = status.queue[0];
  const anybody: ContextStatus | undefined = holder ?? first;
  console.log(status.key, status.lastToken, holder?.token, holder?.expiresAt, first?.priority, status.position);
  console.log(anybody?.holder, anybody?.info, anybody?.own, anybody?.instance, anybody?.mode satisfies LeaseMode | undefined);
  same<Awaited<ReturnType<typeof leases.list>>, LeaseStatus[]>();
  await leases.list("notes/");
  const stats: LeaseStats = leases.stats();
  console.log(stats.granted, stats.waited, stats.renewed, stats.released, stats.lost, stats.transactions);
  listen(leases, signal);
  await modes(lease, signal);
  await several(leases, signal);
  await working(leases, signal);
  await leases.close();
  same<Awaited<ReturnType<typeof LeaseManager.delete>>, void>();
  await LeaseManager.delete("my-app");
}

async function modes(lease: Lease, signal: AbortSignal): Promise<void> {
  same<typeof lease.mode, "exclusive" | "shared">();
  same<typeof lease.changedHands, boolean>();
  same<ReturnType<typeof lease.clearChanged>, void>();
  const upgrading: UpgradeOptions = { signal };
  same<Awaited<ReturnType<typeof lease.upgrade>>, void>();
  await lease.upgrade(upgrading);
  await lease.upgrade();
  // @ts-expect-error
  await lease.upgrade({ timeoutMs: 5 });
  await lease.downgrade();
  same<Awaited<ReturnType<typeof lease.extend>>, void>();
  await lease.extend(60_000);
  // @ts-expect-error
  await lease.extend();
  // @ts-expect-error
  await lease.extend("60 s");
  // @ts-expect-error
  lease.mode = "shared";
}

async function several(leases: LeaseManager, signal: AbortSignal): Promise<void> {
  const options: AcquireAllOptions = { timeoutMs: 5_000, signal, priority: 1, info: "transfer" };
  const items: LeaseItem[] = [{ key: "a" }, { key: "b", mode: "shared" }];
  await using group = await leases.acquireAll(items, options);
  same<typeof group, LeaseGroup>();
  same<typeof group.leases, readonly Lease[]>();
  same<ReturnType<typeof group.get>, Lease | undefined>();
  for (const lease of group) same<typeof lease, Lease>();
  same<typeof group.valid, boolean>();
  same<typeof group.signal, AbortSignal>();
  same<typeof group.lost, Promise<LostReason>>();
  same<Awaited<ReturnType<typeof group.verify>>, boolean>();
  same<Awaited<ReturnType<typeof group.release>>, ReleaseOutcome>();
  const frozen = [{ key: "a" }] as const;
  using other = await leases.acquireAll(frozen);
  console.log(other.get("a")?.token);
  // @ts-expect-error
  await leases.acquireAll(["a", "b"]);
  // @ts-expect-error
  await leases.acquireAll([{ key: "a", mode: "write" }]);
  // @ts-expect-error
  await leases.acquireAll([{ key: "a" }], { share: true });
  // @ts-expect-error
  new LeaseGroup();
  const stealing: StealOptions = { info: "mine" };
  same<typeof robbed, Lease>();
  const robbed = await leases.steal("notes", stealing);
  // @ts-expect-error
  await leases.steal("notes", { mode: "shared" });
}

async function working(leases: LeaseManager, signal: AbortSignal): Promise<void> {
  const policy: OnLost = "abort";
  const running: RunOptions = { onLost: policy, timeoutMs: 5_000, signal, mode: "shared" };
  const work: Work<number> = async (lease) => lease.token;
  same<typeof value, number>();
  const value = await leases.run("notes", running, work);
  same<typeof plain, string>();
  const plain = await leases.run("notes", (lease) => lease.key);
  await leases.run("notes", undefined, work);
  // @ts-expect-error
  await leases.run("notes");
  // @ts-expect-error
  await leases.run("notes", { onLost: "ignore" }, work);
  // @ts-expect-error
  await leases.run("notes", (lease: LeaseManager) => lease);
  const trying: TryRunOptions = { onLost: "notify", share: true };
  same<typeof done, TryRunOutcome<number>>();
  const done = await leases.tryRun("notes", trying, work);
  if (done.ran) {
    same<typeof done.value, number>();
    same<typeof done.lost, LostReason | null>();
  } else {
    // @ts-expect-error
    console.log(done.value);
  }
  // @ts-expect-error
  await leases.tryRun("notes", { timeoutMs: 5 }, work);
  const campaign: ElectOptions = { signal, priority: 1, info: "tab 1" };
  same<typeof elected, number>();
  const elected = await leases.elect("leader", campaign, work);
  await leases.elect("leader", work);
  // @ts-expect-error
  await leases.elect("leader", { timeoutMs: 5 }, work);
  same<Awaited<ReturnType<typeof leases.leader>>, HolderStatus | null>();
  await leases.leader("leader");
}

function listen(leases: LeaseManager, signal: AbortSignal): void {
  const hear = (event: LeaseEvent) => console.log(event.type, event.key, event.token, event.mode satisfies LeaseMode);
  leases.addEventListener("granted", hear, { signal });
  leases.removeEventListener("granted", hear);
  leases.addEventListener("granted", (event) => {
    same<typeof event.token, number>();
    same<typeof event.holder, string>();
    console.log(event.waitedMs);
  });
  leases.addEventListener("waiting", (event) => same<typeof event.ahead, number>());
  leases.addEventListener("lost", function (event) {
    same<typeof this, LeaseManager>();
    same<typeof event.reason, LostReason>();
    console.log(event.heldMs satisfies number);
  });
  const types: (keyof LeaseManagerEventMap)[] = ["withdrawn", "suspect", "certain", "released"];
  const reporter = { handleEvent: (event: LeaseManagerEventMap["lost"]) => console.log(event.reason satisfies LostReason) };
  leases.addEventListener("lost", reporter);
  leases.removeEventListener("lost", reporter);
  leases.addEventListener("waiting", { handleEvent: (event) => same<typeof event.ahead, number>() });
  for (const type of types) leases.addEventListener(type, hear);
  // @ts-expect-error
  leases.addEventListener("waiting", (event) => same<typeof event.reason, LostReason>());
  // @ts-expect-error
  new LeaseEvent("granted");
  const target: EventTarget = leases;
  target.addEventListener("of the user's own", { handleEvent: (event: Event) => console.log(event instanceof LeaseEvent) });
}

export function explain(error: unknown): string {
  if (!isLeaseError(error)) return "not ours";
  same<typeof error, LeaseError>();
  const plain: Error = error;
  const code: LeaseErrorCode = error.code;
  switch (code) {
    case "LeaseLost":
      return `${error.key} ${error.token} ${error.reason satisfies LostReason | undefined}`;
    case "Timeout":
    case "Closed":
    case "InstanceInUse":
    case "UpgradeConflict":
    case "InUse":
    case "InvalidKey":
    case "InvalidOptions":
    case "FormatTooNew":
    case "Unsupported":
    case "Quota":
    case "Store":
    case "InitConflict":
    case "InitFailed":
    case "Internal":
      return `${plain.name}: ${plain.message}`;
  }
}
