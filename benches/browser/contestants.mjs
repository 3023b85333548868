// Those who are measured beside each other. Each can `take(key)`, which brings the function that gives it back, and tells
// with `queued(key)` when a waiter of that key stands in the queue, if there is one.
// `alone`, `handOffs`: how many turns it gets per round. The slow ones get fewer.
import * as present from "/pkg/index.mjs";
import { load } from "./commonjs.mjs";
import { electorOverLocks, electorOverMessages } from "./election.mjs";
import { sleep, until } from "./wait.mjs";
import { withoutLocks } from "./without-locks.mjs";

// An old build of leasehold, if there is one.
export const old = new URLSearchParams(location.search).has("old") ? await import("/old-pkg/index.mjs") : null;

export async function contestants() {
  const { default: Mutex } = await load("/benches/node_modules/idb-mutex/dist/index.js");
  const { default: TabsLock } = await load("/benches/node_modules/browser-tabs-lock/index.js");
  return {
    leasehold: await leasehold(present, "bench"),
    ...(old && { old_leasehold: await leasehold(old, "bench-old") }),
    weblocks: { alone: 10, handOffs: 10, take: takeWebLock, queued: queuedAtLocks },
    idb_mutex: idbMutex(Mutex),
    browser_tabs_lock: browserTabsLock(new TabsLock()),
    locks_polyfill: polyfill(),
    broadcast_channel: { alone: 2, handOffs: 2, ...electorOverLocks },
    broadcast_channel_messages: { alone: 0.1, handOffs: 0.5, ...electorOverMessages },
  };
}

async function leasehold({ LeaseManager }, name) {
  // What is measured is the store, not the lease that is kept for the next request.
  const leases = await LeaseManager.open(name, { lingerMs: 0 });
  return {
    alone: 10,
    handOffs: 10,
    leases,
    take: async (key) => {
      const lease = await leases.acquire(key);
      return () => lease.release();
    },
    queued: (key) => until(async () => (await leases.status(key)).queue.length > 0),
  };
}

const takeWebLock = (key) => takeFrom(navigator.locks, key);
const queuedAtLocks = (key) => queuedAt(navigator.locks, key);

function takeFrom(locks, name) {
  return new Promise((taken, failed) => {
    const ended = locks.request(name, () => new Promise((release) => {
      taken(() => {
        release();
        return ended;
      });
    }));
    ended.catch(failed);
  });
}

const queuedAt = (locks, key) => until(async () => (await locks.query()).pending.some(({ name }) => name === key));

function idbMutex(Mutex) {
  const mutexes = {};
  const take = async (key) => {
    const mutex = (mutexes[key] ??= new Mutex(key));
    await mutex.lock();
    return () => mutex.unlock();
  };
  return { alone: 10, handOffs: 1, take, queued: spinning };
}

function browserTabsLock(lock) {
  const take = async (key) => {
    // It gives up by itself after 5 s.
    while (!(await lock.acquireLock(key)));
    return () => lock.releaseLock(key);
  };
  return { alone: 1, handOffs: 1, take, queued: spinning };
}

// `navigator.locks` of npm: in localStorage. It loads when it is first asked: from then on it writes a beat each second.
function polyfill() {
  let loaded;
  const locks = () => (loaded ??= loadPolyfill());
  return {
    // Each request leaves listeners behind: many of them would measure these.
    alone: 1,
    handOffs: 1,
    take: async (key) => takeFrom(await locks(), key),
    queued: async (key) => queuedAt(await locks(), key),
  };
}

// It steps in only where the browser has no locks.
async function loadPolyfill() {
  const locks = await withoutLocks(async () => {
    await import("/benches/node_modules/navigator.locks/dist/index.esm.js");
    return navigator.locks;
  });
  // Before its first beat it counts as dead to the others.
  await sleep(1_200);
  return locks;
}

// Who polls has no queue to look at; the moment of the release falls anywhere between two of its polls.
const spinning = () => sleep(60 + Math.random() * 60);
