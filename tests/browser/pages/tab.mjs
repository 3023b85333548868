// What the tests' scripts find in the page: the library itself, and the parts of the scenarios that are long.
import { Counter } from "/counter.mjs";
import { context } from "./contexts.mjs";
import "./hang.mjs";
import "./raw.mjs";
import "./room.mjs";
import "./spies.mjs";
import "./turns.mjs";

// The present build, unless the address names another.
const build = new URLSearchParams(location.search).get("build") ?? "/pkg";
const leasehold = await import(`${build}/index.mjs`);

Object.assign(globalThis, leasehold, { Counter, context, openLeases, count, waver, go, attempt, loadFence, loadCopies, lockSuite });

// A manager under a name of the page's own; `leases` from then on.
async function openLeases(options = {}) {
  globalThis.leases = await leasehold.LeaseManager.open("tests", options);
}

// What fenced writes need, with the libraries that most pages use IndexedDB by; complaints that nobody heard are kept.
async function loadFence() {
  globalThis.unheard = [];
  addEventListener("unhandledrejection", ({ reason }) => unheard.push(String(reason)));
  addEventListener("error", ({ message }) => unheard.push(message));
  Object.assign(globalThis, await import("./fence.mjs"));
}

// Loads a second copy of the package, and the functions that use both copies.
async function loadCopies() {
  Object.assign(globalThis, await import("./copies.mjs"));
}

// A part of the tests of `leases.locks`, in the page itself: a driver's script may live in a world of its own.
async function lockSuite(name, arg) {
  return (await import("./locks/suites.mjs"))[name](arg);
}

// `steps` of the shared counter, each in a turn of its own unless `key` is null. Brings back the turns' tokens.
async function count({ steps, key }) {
  const started = going();
  const counter = await Counter.open("tests-counter");
  await started;
  const tokens = [];
  for (let step = 0; step < steps; step++) {
    const lease = key === null ? null : await leases.acquire(key);
    await counter.step();
    if (lease) tokens.push(lease.token);
    await lease?.release();
  }
  counter.close();
  return tokens;
}

// Asks for the lease in every way there is, mostly without the patience to get it. Brings back how often each ended how.
async function waver({ key, times }) {
  await going();
  const soon = () => Math.random() * 6;
  const asks = [
    () => leases.acquire(key),
    () => leases.acquire(key, { timeoutMs: soon() }),
    () => leases.acquire(key, { signal: abortedAfter(soon()) }),
    () => leases.tryAcquire(key),
  ];
  const ends = { granted: 0, "timed out": 0, aborted: 0, refused: 0, surprises: [] };
  for (let time = 0; time < times; time++) {
    try {
      const lease = await asks[time % asks.length]();
      if (lease && !lease.valid) ends.surprises.push("granted, and not valid");
      if (lease && Math.random() < 0.5) await later(soon());
      const outcome = await lease?.release();
      if (lease && outcome !== "released") ends.surprises.push(outcome);
      ends[lease ? "granted" : "refused"]++;
    } catch (error) {
      if (error.code === "Timeout") ends["timed out"]++;
      else if (error.name === "AbortError") ends.aborted++;
      else ends.surprises.push(String(error));
    }
  }
  return ends;
}

const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function abortedAfter(ms) {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), ms);
  return controller.signal;
}

// Resolves when any tab calls go(): a message starts them all at once, where a hidden tab's timer may be a second late.
function going() {
  const channel = new BroadcastChannel("go");
  return new Promise((resolve) => {
    channel.onmessage = () => {
      channel.close();
      resolve();
    };
  });
}

function go() {
  new BroadcastChannel("go").postMessage(null);
}

// How an action failed, in words that a test can compare.
async function attempt(action) {
  try {
    const promise = action();
    try {
      return { did: String(await promise) };
    } catch (error) {
      return { code: error.code, name: error.name, message: error.message, typed: leasehold.isLeaseError(error), is: error instanceof leasehold.LeaseError };
    }
  } catch (error) {
    return { thrown: String(error) };
  }
}

globalThis.ready = true;
