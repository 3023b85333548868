// The demo: how an application uses leasehold. Importing it does nothing; `open` loads the wasm.
import { LeaseManager } from "./pkg/index.mjs";
import { Counter } from "./counter.mjs";
import { inspect } from "./inspector.mjs";
import { tabName } from "./names.mjs";
import * as view from "./view.mjs";

// What the tabs take turns on: any string will do. It exists as soon as someone asks for it.
const KEY = "the demo";
// Half of the default, so that you need not wait long for a frozen tab to lose its lease.
const LEASE_MS = 10_000;
const FREEZE_MS = 20_000;

const name = tabName();
let leases, counter;
let lease = null; // while this tab holds
let wish = null; // an AbortController while it waits
let counting = false;
let frozen = false;
let status = null;
const looking = new Set(); // the looks at the store that go on

// ---- The lease ------------------------------------------------------------------------------------------------------

async function take() {
  if (wish) return wish.abort(); // The button says "Stop waiting" then.
  wish = new AbortController();
  refresh();
  try {
    // Resolves when it is our turn. `info` is what other tabs see of us.
    hold(await leases.acquire(KEY, { info: name, signal: wish.signal }));
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    view.log("Stopped waiting.");
  } finally {
    wish = null;
  }
}

async function tryOnce() {
  // Never waits: null means that another tab holds it. That is an answer, not an error.
  const maybe = await leases.tryAcquire(KEY, { info: name });
  if (maybe) hold(maybe);
  else view.log("Tried: another tab holds it.");
}

function hold(granted) {
  lease = granted;
  view.log(`Got the lease, with token ${granted.token}.`);
  // Pending for ever if we release it; else it says why the lease was taken from us.
  granted.lost.then((reason) => {
    if (lease === granted) lease = null;
    view.log(`Lost the lease: ${reason}. Whatever this tab was doing under it must stop.`);
    refresh();
  });
}

// Other keys than the demo's, as many as you like.
const others = new Map();

async function takeOther() {
  const key = view.otherKey();
  if (key === KEY) return take();
  if (!key || others.has(key)) return;
  others.set(key, null);
  try {
    const granted = await leases.acquire(key, { info: name });
    others.set(key, granted);
    granted.lost.then((reason) => {
      if (others.get(key) === granted) others.delete(key);
      view.log(`Lost “${key}”: ${reason}.`);
    });
  } catch (error) {
    others.delete(key);
    throw error;
  }
}

function releaseKey(key) {
  if (key === KEY) return attempt("Releasing the lease", release);
  const mine = others.get(key);
  others.delete(key);
  return attempt("Releasing a key", () => mine?.release());
}

async function release() {
  const mine = lease;
  lease = null;
  view.log((await mine.release()) === "released" ? "Released the lease." : "There was nothing left to release.");
}

// A page that hangs: alive, but silent. It does not hang in the middle of a look or of a heartbeat: their transaction would hang,
// too, and with it the database for all tabs.
async function freeze() {
  view.log(`Frozen for ${FREEZE_MS / 1000} s …`);
  frozen = true;
  try {
    // A moment to show that line.
    await Promise.all([new Promise((resolve) => setTimeout(resolve, 100)), ...looking]);
    // A manager does one thing after the other: once it has answered, it is not in the middle of anything.
    await leases.status(KEY);
    const until = Date.now() + FREEZE_MS;
    while (Date.now() < until);
  } finally {
    // If the store does not answer, the page looks at it again.
    frozen = false;
  }
  view.log("… and awake again.");
}

// ---- The counter ----------------------------------------------------------------------------------------------------

async function count({ times, locked }) {
  if (counting) return;
  counting = true;
  refresh();
  view.log(`Counting to ${times} ${locked ? "under the lease" : "without the lease"}.`);
  try {
    for (let done = 0; done < times; done++) {
      await (locked ? stepUnderLease() : counter.step());
      if (done % 50 === 49) view.showProgress(done + 1, times);
    }
  } finally {
    counting = false;
  }
  const { actual, expected } = await counter.read();
  view.log(`Done. The counter stands at ${actual} of ${expected}.`);
}

async function stepUnderLease() {
  // Held by the button already? Then this step is under that lease.
  if (lease) return counter.step();
  const turn = await leases.acquire(KEY, { info: name });
  try {
    await counter.step();
  } finally {
    await turn.release();
  }
}

// How one button starts all tabs at once.
const tabs = new BroadcastChannel("leasehold-demo");
tabs.onmessage = ({ data }) => attempt("Counting", () => count(data));

function countEverywhere() {
  const task = { times: view.times(), locked: view.locked() };
  tabs.postMessage(task);
  return count(task);
}

// ---- What is shown --------------------------------------------------------------------------------------------------

async function update() {
  view.showTakeButton(wish !== null);
  view.enable({
    take: !lease && !counting,
    try: !lease && !wish && !counting,
    release: lease && !counting,
    count: !counting && !wish,
    "count-here": !counting && !wish,
    reset: !counting,
    freeze: true,
    "take-other": true,
  });
  status = await leases.status(KEY);
  view.showStatus(status);
  view.showCounter(await counter.read());
}

function tick() {
  // Our own lease knows best how long it lasts; of another's we know what its holder wrote.
  const holder = status?.holders[0];
  const remaining = lease ? lease.remainingMs : holder ? holder.expiresAt - Date.now() : null;
  view.showRemaining(remaining, LEASE_MS);
}

const attempt = (doing, action) => guard(doing, async () => {
  await action();
  await update();
});

// Every failure ends up here: no promise of this page is left without.
async function guard(doing, action) {
  try {
    await action();
    view.forgetError(doing);
  } catch (error) {
    console.error(error);
    view.showError(doing, error);
  }
}

// A look at the store that nobody asked for.
async function look(doing, action) {
  if (frozen) return;
  const done = guard(doing, action);
  looking.add(done);
  await done;
  looking.delete(done);
}

const refresh = () => look("Looking at the lease", update);

const whileVisible = (action) => () => {
  if (document.visibilityState === "visible") action();
};

async function start() {
  leases = await LeaseManager.open("demo", { leaseMs: LEASE_MS, heartbeatMs: LEASE_MS / 4 });
  counter = await Counter.open();
  setInterval(whileVisible(refresh), 1000);
  setInterval(whileVisible(tick), 100);
  document.addEventListener("visibilitychange", whileVisible(refresh));
  inspect({ leases, name, guard: look, release: releaseKey });
}

const actions = {
  take: ["Taking the lease", take],
  try: ["Trying to take the lease", tryOnce],
  release: ["Releasing the lease", release],
  freeze: ["Freezing", freeze],
  count: ["Counting", countEverywhere],
  "count-here": ["Counting", () => count({ times: view.times(), locked: view.locked() })],
  reset: ["Starting from zero", () => counter.reset()],
  "take-other": ["Taking another key", takeOther],
};
for (const [id, [doing, action]] of Object.entries(actions)) view.onClick(id, () => attempt(doing, action));
// Without `noopener` the two would share one process, and a frozen tab would freeze the other.
view.onClick("open", () => window.open(location.href, "_blank", "noopener"));
view.showName(name);
// Not in an insecure context. Without it the page works all the same, as long as there is a network.
navigator.serviceWorker?.register("offline.js").catch(() => {});
attempt("Opening the lease manager", start);
