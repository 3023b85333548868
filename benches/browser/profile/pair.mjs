// Hand-offs between two tabs of the same mode: one calls `serve()` and waits for the lease again and again; the other
// holds it, and releases it when the first one stands in the queue.
import { LeaseManager } from "/pkg/index.mjs";
import { nextOn } from "../messages.mjs";
import { inTime, sleep, until } from "../wait.mjs";
import { begin, end, mark } from "./sample.mjs";

const mode = location.search.slice(1);
const KEY = "hand-off";
// The profiler's own channel. Neither tab posts here during a sample, because the post would count.
const channel = new BroadcastChannel(`profile-pair-${mode}`);
const clock = () => performance.timeOrigin + performance.now();
const say = (message) => channel.postMessage(message);
const leases = await LeaseManager.open(`profile-pair-${mode}`, { lingerMs: 0 });
const next = (kind) => nextOn(channel, kind);

export function serve() {
  const replies = { ping: () => say({ kind: "pong", at: clock() }), wait: waitForIt };
  channel.addEventListener("message", ({ data }) => replies[data.kind]?.());
}

async function waitForIt() {
  const asked = leases.acquire(KEY);
  await until(async () => (await leases.status(KEY)).queue.length > 0);
  // Whatever follows from the wait itself is over by then.
  await sleep(10);
  say({ kind: "queued" });
  // Before the other tab can have heard it.
  begin();
  const lease = await asked;
  mark("granted there");
  const sample = end();
  say({ kind: "granted", sample, origin: performance.timeOrigin });
  await lease.release();
  say({ kind: "given back" });
}

export async function handOffs(times) {
  const ahead = await clockAhead();
  const samples = [];
  for (let i = 0; i <= times; i++) {
    const sample = await inTime(handOff(ahead), 10_000);
    if (i > 0) samples.push(sample);
  }
  return samples;
}

// How far the other tab's clock is ahead of ours, by the quickest of many round trips.
async function clockAhead() {
  let best = { trip: Infinity, ahead: 0 };
  for (let i = 0; i < 40; i++) {
    const pong = next("pong");
    const sent = clock();
    say({ kind: "ping" });
    const { at } = await pong;
    const trip = clock() - sent;
    if (trip < best.trip) best = { trip, ahead: at - (sent + trip / 2) };
  }
  return best.ahead;
}

async function handOff(ahead) {
  const lease = await leases.acquire(KEY);
  const [queued, granted, givenBack] = ["queued", "granted", "given back"].map(next);
  say({ kind: "wait" });
  await queued;
  await sleep(2);
  begin();
  await lease.release();
  mark("released");
  const { sample, origin } = await granted;
  const own = end();
  await givenBack;
  return joined(own, sample, origin - performance.timeOrigin - ahead);
}

// One sample of both, by our clock: it ends with the grant there. `later` is what must be added to their times to get ours.
function joined(own, other, later) {
  const theirs = other.marks.map(([name, time]) => [name.endsWith("there") ? name : `${name} there`, time + later]);
  const ended = other.ended + later;
  const marks = [...own.marks, ...theirs].filter(([, time]) => time >= own.began && time <= ended);
  marks.sort(([, one], [, another]) => one - another);
  const waits = [...own.waits, ...other.waits.map(([name, ms]) => [`${name} there`, ms])];
  const spans = [...own.spans, ...other.spans];
  return { began: own.began, ended, marks, waits, spans };
}
