// JavaScript that V8 has optimized may be deoptimized in the midst of a call of wasm. V8 before version 13 then ended the
// whole process, if the call returned a reference: .ci/shrink-wasm.mjs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { openManager } from "./pkg.mjs";

setFlagsFromString("--allow-natives-syntax");
const native = (name) => new Function("f", `return %${name}(f)`);
const prepare = native("PrepareFunctionForOptimization");
const optimizeNext = native("OptimizeFunctionOnNextCall");
const deoptimize = native("DeoptimizeFunction");
const statusOf = native("GetOptimizationStatus");
const OPTIMIZED = 1 << 4;

const now = performance.now.bind(performance);

/** Runs `act` in the middle of `call`, when the wasm reads the clock. */
function whileTheClockIsRead(act, call) {
  let times = 0;
  performance.now = () => {
    if (times++ === 0) act();
    return now();
  };
  try {
    return call();
  } finally {
    delete performance.now;
    assert.ok(times > 0, "the call did not read the clock");
  }
}

const OPERATIONS = {
  release: [(leases) => leases.acquire("k"), (lease) => lease.release(), (answer) => assert.equal(answer, "released")],
  acquire: [(leases) => leases, (leases) => leases.acquire("k"), (lease) => lease.release()],
  tryAcquire: [(leases) => leases, (leases) => leases.tryAcquire("k"), (lease) => lease.release()],
  verify: [(leases) => leases.acquire("k"), (lease) => lease.verify(), () => {}, (lease) => lease.release()],
};
for (const [name, [before, operation, after, atTheEnd = () => {}]] of Object.entries(OPERATIONS)) {
  test(`${name} survives being deoptimized within its call`, async () => {
    const leases = await openManager();
    // Each operation gets a new function, because V8 would optimize a common one for all of them.
    const call = new Function("operation", "return (subject) => operation(subject)")(operation);
    const once = async (calling) => {
      const subject = await before(leases);
      const answer = await calling(() => call(subject));
      await after(answer);
      await atTheEnd(subject);
    };
    prepare(call);
    prepare(operation);
    for (let round = 0; round < 2_000; round++) await once((asked) => asked());
    optimizeNext(call);
    await once((asked) => asked());
    assert.ok(statusOf(call) & OPTIMIZED, `not optimized: ${statusOf(call).toString(2)}`);
    await once((asked) => whileTheClockIsRead(() => deoptimize(call), asked));
    assert.ok(!(statusOf(call) & OPTIMIZED), "still optimized");
    await leases.close();
  });
}
