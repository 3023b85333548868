// `leases.locks` in Node.js, over the memory store: the rules, and random programs beside a model of them. In real tabs
// tests/browser runs the same beside the browser's own locks.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LeaseError, Lock, LockManager, install, openManager, refused } from "./pkg.mjs";
import { ModelLocks } from "../browser/pages/locks/model.mjs";
import { rules } from "../browser/pages/locks/rules.mjs";
import { sideBySide } from "../browser/pages/locks/programs.mjs";
import { seen, take } from "../browser/pages/locks/tools.mjs";

for (const [rule, check] of Object.entries(rules)) {
  test(rule, async () => {
    const [here, there] = [await openManager({}, rule), await openManager({}, rule)];
    await check({ locks: here.locks, other: there.locks }, 2);
    await Promise.all([here.close(), there.close()]);
  });
}

test("random programs have the same grants, errors and queues as by the model of the rules", async () => {
  const managers = [];
  for (let context = 0; context < 3; context++) managers.push(await openManager({}, "programs"));
  const count = 150;
  const told = await sideBySide({ subjects: managers.map(({ locks }) => locks), oracles: [new ModelLocks()], count });
  assert.deepEqual(told, { done: count, excused: 0 });
  await Promise.all(managers.map((leases) => leases.close()));
});

test("WL3 WL18 install puts a lock manager on a navigator that has none, and replaces nothing", async () => {
  const had = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  const put = (navigator) => Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true, writable: true });
  put({});
  assert.deepEqual([install({ store: "memory" }), install()], [true, false]);
  const { locks } = navigator;
  assert.ok(locks instanceof LockManager);
  assert.equal(await locks.request("a", (lock) => lock instanceof Lock && lock.name), "a");
  assert.throws(() => install({ memory: true }), (error) => error instanceof LeaseError && error.code === "InvalidOptions");
  put({});
  assert.ok(install());
  // There is no IndexedDB: it cannot be had, and is asked for again each time.
  for (const ask of [() => navigator.locks.request("a", () => {}), () => navigator.locks.query()]) {
    await assert.rejects(ask, (error) => error instanceof DOMException && error.name === "SecurityError");
  }
  const native = { request() {} };
  put({ locks: native });
  assert.deepEqual([install(), navigator.locks], [false, native]);
  if (had) Object.defineProperty(globalThis, "navigator", had);
  else delete globalThis.navigator;
});

test("locks and leases do not meet, and locks show in no list and no event", async () => {
  const leases = await openManager();
  const told = [];
  for (const type of ["granted", "waiting", "released"]) leases.addEventListener(type, ({ key }) => told.push(key));
  const taken = await leases.acquire("a");
  await leases.locks.request("a", async () => {
    assert.deepEqual((await leases.list()).map(({ key }) => key), ["a"]);
    assert.deepEqual(await leases.list("\0"), []);
    const { held } = await leases.locks.query();
    assert.deepEqual(held, [{ name: "a", mode: "exclusive", clientId: leases.holder }]);
  });
  await taken.release();
  for (const key of ["\0lock:", "\0lock:a"]) {
    for (const verb of ["acquire", "tryAcquire", "status"]) await refused(() => leases[verb](key), "InvalidKey", "LeaseError", "leases.locks");
  }
  await (await leases.acquire("\0lock")).release();
  assert.deepEqual(told, ["a", "a", "\0lock", "\0lock"]);
  await leases.close();
});

test("WL31 locks of two stores do not meet", async () => {
  const [one, other] = [await openManager(), await openManager()];
  await one.locks.request("a", async () => {
    assert.equal(await other.locks.request("a", { ifAvailable: true }, (lock) => lock?.name), "a");
    assert.deepEqual(await other.locks.query(), { held: [], pending: [] });
  });
  await Promise.all([one.close(), other.close()]);
});

test("WL27 a manager that closes gives up what waits and what is held", async () => {
  const [one, other] = [await openManager({}, "WL27"), await openManager({}, "WL27")];
  const started = new Promise((start) => {
    const held = one.locks.request("a", () => new Promise(start));
    held.catch(() => {});
    one.held = held;
  });
  await one.locks.query();
  const waiting = refused(() => one.locks.request("a", () => {}), "Closed", "InvalidStateError");
  const next = other.locks.request("a", () => "next");
  await one.locks.query();
  await one.close();
  await waiting;
  await assert.rejects(one.held, (error) => error instanceof LeaseError && error instanceof DOMException
    && error.code === "LeaseLost" && error.name === "AbortError" && error.reason === "Closed" && error.key === "a");
  assert.equal(await next, "next");
  await refused(() => one.locks.request("a", () => {}), "Closed", "InvalidStateError");
  await refused(() => one.locks.query(), "Closed", "InvalidStateError");
  void started;
  await other.close();
});

test("a holder that hangs loses its lock, and is told so", async () => {
  const options = { leaseMs: 1_000, heartbeatMs: 200, storeTimeoutMs: 200 };
  const [slow, fast] = [await openManager(options, "hangs"), await openManager(options, "hangs")];
  let end;
  const robbed = slow.locks.request("a", () => new Promise((resolve) => (end = resolve)));
  robbed.catch(() => {});
  await slow.locks.query();
  // A page that hangs: it renews nothing.
  for (const until = Date.now() + 1_200; Date.now() < until; );
  assert.equal(await fast.locks.request("a", { ifAvailable: true }, (lock) => lock?.name), "a");
  await assert.rejects(robbed, (error) => error.name === "AbortError" && error.code === "LeaseLost" && error.reason === "Expired");
  end();
  await Promise.all([slow.close(), fast.close()]);
});

test("a lock that a living twin holds is refused, also to a try; what twins share, and all else, is had", async () => {
  const [one, two] = [await openManager({ instance: "worker-1" }, "twins"), await openManager({ instance: "worker-1" }, "twins")];
  const [held, read] = [take(one.locks, "a"), take(one.locks, "b", { mode: "shared" })];
  await Promise.all([held.start, read.start]);
  for (const options of [{}, { ifAvailable: true }, { mode: "shared" }]) {
    await refused(() => two.locks.request("a", options, assert.fail), "InstanceInUse", "LeaseError", 'the same instance name "worker-1"', 'the key "a"');
  }
  assert.equal(await two.locks.request("b", { mode: "shared" }, ({ name }) => name), "b");
  const again = take(one.locks, "a");
  assert.equal(await seen(two.locks, "a"), "X|X");
  assert.equal(await two.locks.request("a", { steal: true }, () => "stolen"), "stolen");
  await again.start;
  for (const one of [again, read]) one.finish();
  await Promise.all([again.done, read.done]);
  assert.equal(held.error.name, "AbortError");
  assert.equal(await two.locks.request("a", () => "free"), "free");
  await Promise.all([one.close(), two.close()]);
});
