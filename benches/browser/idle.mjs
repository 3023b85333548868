// Counts what the library still does in a page that has nothing to do. Everything is wrapped before it loads.
import { sleep } from "./wait.mjs";

const counts = { transactions: 0, timersSet: 0 };
const timers = new Set();
const channels = new Set();

// WebDriver has timers in the page, too.
const isOurs = () => new Error().stack.includes("/pkg/");

/** When a transaction began, or ended. */
const moments = [];
const note = () => moments.push(performance.now());

wrap(IDBDatabase.prototype, "transaction", (call) => {
  counts.transactions++;
  note();
  const transaction = call();
  transaction.addEventListener("complete", note);
  return transaction;
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

// Transactions per heartbeat of a manager that holds this many keys and does nothing with them.
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

// The longest task at a heartbeat of a manager that holds so many keys, in ms: the longest over all heartbeats, and the median over them.
async function longestTask({ keys, beats }) {
  const heartbeatMs = 1_000;
  const leases = await LeaseManager.open("bench-longest", { leaseMs: 4 * heartbeatMs, heartbeatMs });
  await Promise.all(Array.from({ length: keys }, (_, index) => leases.acquire(`key ${index}`)));
  await sleep(heartbeatMs);
  const longest = [];
  for (let beat = 0; beat < beats; beat++) longest.push(await longestGap(heartbeatMs));
  await leases.close();
  longest.sort((one, other) => one - other);
  return { longest: longest.at(-1), median: longest[Math.floor(beats / 2)] };
}

// The longest time for which a page that does nothing else was kept from its next task, if a transaction began or ended in it. At other times
// the browser collects the garbage of this very measurement.
function longestGap(ms) {
  const { port1, port2 } = new MessageChannel();
  const [started, gaps] = [performance.now(), []];
  let last = started;
  moments.length = 0;
  return new Promise((resolve) => {
    port1.onmessage = () => {
      const now = performance.now();
      gaps.push({ from: last, to: now });
      last = now;
      if (now - started < ms) return port2.postMessage(null);
      port1.close();
      const hasBeat = ({ from, to }) => moments.some((at) => from <= at && at <= to);
      resolve(Math.max(0, ...gaps.filter(hasBeat).map(({ from, to }) => to - from)));
    };
    port2.postMessage(null);
  });
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

window.bench = { held, longestTask, unused };
window.ready = true;
