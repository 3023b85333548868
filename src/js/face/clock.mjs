// @ts-check
// A time that passes only when it is told to. Bundled into `leasehold/testing` in the place of the globals of these names.

/** Milliseconds since the start. */
let nowMs = 0;

/** The wall clock at the start: 2025-01-01. */
const WALL_START_MS = 1_735_689_600_000;

/** The timers that are set, by time; timers of the same time by age. @type {{ id: number, at: number, fire: () => void }[]} */
let timers = [];
let lastId = 0;
let wallAheadMs = 0;

/** Resolves after everything that waits only for promises. It uses a message: test frameworks replace `setImmediate`, too. */
const message = () =>
  new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve(undefined);
    };
    port2.postMessage(0);
  });

/** Lets everything happen that waits for no timer. A close() may send a message of its own before the first one arrives. */
const settle = () => message().then(message);

/** Calls run one after the other. @type {Promise<unknown>} */
let queue = Promise.resolve();

function take(untilMs) {
  const next = timers.reduce((first, timer) => (timer.at < first.at ? timer : first), { id: 0, at: Infinity, fire() {} });
  return next.at > untilMs ? undefined : next;
}

async function pass(ms) {
  await settle();
  const untilMs = nowMs + ms;
  for (let timer = take(untilMs); timer; timer = take(untilMs)) {
    clearTimeout(timer.id);
    nowMs = Math.max(nowMs, timer.at);
    timer.fire();
    await settle();
  }
  nowMs = untilMs;
}

/** Quotes a string, because "5" is not a number. */
const show = (value) => (typeof value === "string" ? JSON.stringify(value) : String(value));

export const clock = {
  get nowMs() {
    return nowMs;
  },
  advance(ms) {
    if (!(Number.isFinite(ms) && ms >= 0)) {
      return Promise.reject(new TypeError(`a clock advances by a finite number of milliseconds, 0 or more; not by ${show(ms)}`));
    }
    const passed = queue.then(() => pass(ms));
    queue = passed.catch(() => {});
    return passed;
  },
  setWall(time) {
    const ms = typeof time === "number" ? time : time?.valueOf();
    if (!Number.isFinite(ms)) throw new TypeError(`a wall clock is set to a date or to milliseconds since 1970; not to ${show(time)}`);
    wallAheadMs = ms - WALL_START_MS - nowMs;
  },
};

export const performance = { now: () => nowMs };

export const Date = { now: () => WALL_START_MS + nowMs + wallAheadMs };

export function setTimeout(fire, ms = 0) {
  timers.push({ id: ++lastId, at: nowMs + Number(ms), fire });
  return lastId;
}

export function clearTimeout(id) {
  timers = timers.filter((timer) => timer.id !== id);
}

/** Never the global one: Jest replaces it along with the timers. */
export const queueMicrotask = (call) => void Promise.resolve().then(call);
