// Counts what the library still does in a page that has nothing to do. Everything is wrapped before it loads.
import { sleep } from "./wait.mjs";

const counts = { transactions: 0, timersSet: 0 };
const timers = new Set();
const channels = new Set();

// WebDriver has timers in the page, too.
const isOurs = () => new Error().stack.includes("/pkg/");

wrap(IDBDatabase.prototype, "transaction", (call) => {
  counts.transactions++;
  return call();
});
for (const [set, clear] of [["setTimeout", "clearTimeout"], ["setInterval", "clearInterval"]]) {
  const native = globalThis[set];
  globalThis[set] = (action, ...rest) => {
    if (!isOurs()) return native(action, ...rest);
    counts.timersSet++;
    const id = native((...args) => {
      if (set === "setTimeout") timers.delete(id);
      action(...args);
    }, ...rest);
    timers.add(id);
    return id;
  };
  wrap(globalThis, clear, (call, id) => {
    timers.delete(id);
    return call();
  });
}
globalThis.BroadcastChannel = class extends BroadcastChannel {
  constructor(name) {
    super(name);
    channels.add(this);
  }

  close() {
    channels.delete(this);
    super.close();
  }
};

function wrap(owner, name, around) {
  const native = owner[name];
  owner[name] = function (...args) {
    return around(() => native.apply(this, args), ...args);
  };
}

const { LeaseManager } = await import("/pkg/index.mjs");

// Transactions per heartbeat of a manager that holds so many keys and does nothing with them.
async function held({ keys, beats }) {
  const heartbeatMs = 1_000;
  const leases = await LeaseManager.open("bench-held", { leaseMs: 4 * heartbeatMs, heartbeatMs });
  const acquired = await Promise.all(Array.from({ length: keys }, (_, index) => leases.acquire(`key ${index}`)));
  await sleep(heartbeatMs);
  const [before, started] = [counts.transactions, performance.now()];
  await sleep(beats * heartbeatMs);
  const passed = (performance.now() - started) / heartbeatMs;
  const lost = acquired.filter(({ valid }) => !valid).length;
  const perHeartbeat = (counts.transactions - before) / passed;
  await leases.close();
  return { perHeartbeat, lost };
}

// What stands and what is done when nothing was held for longer than the idle limit of 10 s.
async function unused() {
  const leases = await LeaseManager.open("bench-unused");
  await (await leases.acquire("a key")).release();
  await sleep(11_000);
  const before = { ...counts };
  await sleep(2_000);
  return {
    transactions: counts.transactions - before.transactions,
    timers: timers.size + counts.timersSet - before.timersSet,
    channels: channels.size,
  };
}

window.bench = { held, unused };
window.ready = true;
