// The browsers' benchmark outlives a rival that hangs or fails. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { mock, test } from "node:test";

// A channel of the benchmark would keep this program alive.
globalThis.BroadcastChannel = class extends BroadcastChannel {
  constructor(name) {
    super(name);
    this.unref();
  }
};
mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
const holder = await import("../../benches/browser/life.mjs?holder");
const waiter = await import("../../benches/browser/life.mjs?waiter");

const turn = () => new Promise((resolve) => setImmediate(resolve));

// What comes of it within two minutes of simulated time.
async function outcome(work) {
  let ended = false;
  work.then(() => (ended = true), () => (ended = true));
  for (let seconds = 0; !ended && seconds < 120; seconds++) {
    mock.timers.tick(1_000);
    await turn();
  }
  assert.ok(ended, "it hangs");
  return work;
}

const never = () => new Promise(() => {});
const atOnce = async () => {};
const refused = async () => {
  throw Error("refused");
};
const program = (take, queued = atOnce) => ({ take, queued });

test("the holder holds what it can, whoever hangs or fails", async () => {
  const taken = [];
  const good = program(async (key) => taken.push(key));
  const locks = { hangs: program(never), fails: program(refused), good };
  const failures = await outcome(holder.live(locks, Object.keys(locks), "held"));
  assert.deepEqual(taken, ["held"]);
  assert.deepEqual(failures, { hangs: "Error: it took longer than 20000 ms", fails: "Error: refused" });
});

test("the waiter is told of who hangs or fails, and has the samples of the others", async () => {
  const free = async () => atOnce;
  const locks = {
    "hangs in take": program(never),
    "fails in take": program(refused),
    "hangs in its queue": program(never, never),
    "hangs at the end": program(async () => never),
    good: program(free),
  };
  // However long the machine is busy in between, the sign comes right after the grants.
  mock.method(performance, "now", () => 0);
  const work = waiter.takeOver(locks, Object.keys(locks), "waited for");
  const [signs, other] = [1, 2].map(() => new BroadcastChannel("bench-signs"));
  let arrived = false;
  other.onmessage = () => (arrived = true);
  signs.postMessage("waited for");
  while (!arrived) await turn();
  other.close();
  const { samples, failures } = await outcome(work);
  assert.deepEqual(Object.keys(samples).sort(), ["good", "hangs at the end"]);
  assert.deepEqual(failures, {
    "fails in take": "Error: refused",
    "hangs in its queue": "Error: it took longer than 40000 ms",
    "hangs in take": "Error: it took longer than 40000 ms",
    "hangs at the end": "Error: it took longer than 5000 ms",
  });
});
