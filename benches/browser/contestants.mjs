// Those who are measured beside each other. Each can `take()` a lock, which brings the function that gives it back.
// `each`: how many turns it gets per round; the slow ones get fewer.
import { LeaseManager } from "/pkg/index.mjs";
import { load } from "./commonjs.mjs";

const KEY = "bench";

export async function contestants() {
  const { default: Mutex } = await load("/benches/node_modules/idb-mutex/dist/index.js");
  const { default: TabsLock } = await load("/benches/node_modules/browser-tabs-lock/index.js");
  return {
    // What is measured is the store, not the lease that is kept for the next request.
    leasehold: leasehold(await LeaseManager.open("bench", { lingerMs: 0 })),
    weblocks: { each: 10, take: takeWebLock, queued: webLockQueued },
    idb_mutex: idbMutex(new Mutex(KEY)),
    browser_tabs_lock: browserTabsLock(new TabsLock()),
  };
}

function leasehold(leases) {
  return {
    each: 10,
    leases,
    take: async () => {
      const lease = await leases.acquire(KEY);
      return () => lease.release();
    },
    queued: () => until(async () => (await leases.status(KEY)).queue.length > 0),
  };
}

function takeWebLock() {
  return new Promise((taken) => {
    const ended = navigator.locks.request(KEY, () => new Promise((release) => {
      taken(() => {
        release();
        return ended;
      });
    }));
  });
}

const webLockQueued = () => until(async () => (await navigator.locks.query()).pending.some(({ name }) => name === KEY));

function idbMutex(mutex) {
  const take = async () => {
    await mutex.lock();
    return () => mutex.unlock();
  };
  return { each: 10, take, queued: spinning };
}

function browserTabsLock(lock) {
  const take = async () => {
    // It gives up by itself after a while.
    while (!(await lock.acquireLock(KEY, 30_000)));
    return () => lock.releaseLock(KEY);
  };
  return { each: 1, take, queued: spinning };
}

// Who polls has no queue to look at; the moment of the release falls anywhere between two of its polls.
const spinning = () => new Promise((resolve) => setTimeout(resolve, 60 + Math.random() * 60));

async function until(condition) {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 1));
}
