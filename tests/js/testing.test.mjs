// `leasehold/testing`: a clock that passes on demand, and a store that fails on demand. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { FaultyStore, LeaseManager, clock, isLeaseError } from "../../pkg/testing-node.mjs";

test("an hour of heartbeats takes no time", async () => {
  const leases = await LeaseManager.open("hour", { store: "memory" });
  const lease = await leases.acquire("notes");
  const before = clock.nowMs;
  await clock.advance(3_600_000);
  assert.equal(clock.nowMs, before + 3_600_000);
  assert.equal(lease.valid, true);
  const { renewed } = leases.stats();
  assert.ok(renewed >= 650 && renewed <= 800, `${renewed} renewals`);
  await leases.close();
});

test("time stands still between two looks", async () => {
  const leases = await LeaseManager.open("still", { store: "memory" });
  const lease = await leases.acquire("notes");
  const left = lease.remainingMs;
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal(lease.remainingMs, left);
  await clock.advance(1_000);
  assert.equal(lease.remainingMs, left - 1_000);
  await leases.close();
});

test("a context of the same name that has no beacon is noticed at its next heartbeat, and a try does not wait for that", async () => {
  const open = (options) => LeaseManager.open("twins", { store: "memory", instance: "worker-1", ...options });
  const [holder, namesake] = [await open({ beacon: false }), await open()];
  const lease = await holder.acquire("notes");
  const lock = holder.locks.request("notes", () => lease.lost);
  const tries = [namesake.tryAcquire("notes"), namesake.locks.request("notes", { ifAvailable: true }, (lock) => lock)];
  await clock.advance(1_000);
  assert.deepEqual(await Promise.all(tries), [null, null]);
  const refusals = [];
  for (const asked of [namesake.acquire("notes"), namesake.locks.request("notes", assert.fail)]) {
    asked.catch(({ code }) => refusals.push(code));
  }
  await clock.advance(1_000);
  assert.deepEqual(refusals, []);
  await clock.advance(10_000);
  assert.deepEqual([refusals, lease.valid], [["InstanceInUse", "InstanceInUse"], true]);
  await Promise.all([holder.close(), namesake.close(), lock.catch(() => {})]);
});

test("a time limit passes when it is told to", async () => {
  const [one, other] = [await LeaseManager.open("limit", { store: "memory" }), await LeaseManager.open("limit", { store: "memory" })];
  await one.acquire("notes");
  const waiting = other.acquire("notes", { timeoutMs: 60_000 }).then(
    () => "granted",
    (error) => error.code,
  );
  await clock.advance(59_999);
  assert.equal(await Promise.race([waiting, Promise.resolve("waits")]), "waits");
  await clock.advance(1);
  assert.equal(await waiting, "Timeout");
  await Promise.all([one.close(), other.close()]);
});

test("who is cut off from the store loses the lease, and is told; another goes on", async () => {
  const store = new FaultyStore();
  const [cut, other] = [await LeaseManager.open("cut", { store }), await LeaseManager.open("cut", { store: "memory" })];
  const lease = await cut.acquire("notes");
  store.failAlways("stall");
  const next = other.acquire("notes");
  await clock.advance(30_000);
  assert.equal(lease.valid, false);
  const taken = await next;
  assert.ok(taken.token > lease.token);
  store.heal();
  await clock.advance(10_000);
  assert.ok(["Expired", "Evicted"].includes(await lease.lost));
  await Promise.all([cut.close(), other.close()]);
});

test("a try for several keys does not wait for a silent store once it is aborted, nor keep what it gets", async () => {
  const store = new FaultyStore();
  const leases = await LeaseManager.open("silent", { store, lingerMs: 0 });
  for (const fault of ["stall", "silence", "refuse"]) {
    const controller = new AbortController();
    store.inject(fault);
    const trying = leases.acquireAll([{ key: "a" }, { key: "b" }], { timeoutMs: 0, signal: controller.signal });
    let reason;
    trying.catch((error) => (reason = error));
    await clock.advance(10);
    controller.abort(fault);
    await clock.advance(0);
    assert.equal(reason, fault);
    await clock.advance(20_000);
    assert.deepEqual(await leases.list(), [], fault);
  }
  await leases.close();
});

test("each fault does what it says", async () => {
  const store = new FaultyStore();
  const leases = await LeaseManager.open("faults", { store, lingerMs: 0 });
  store.inject("fail");
  await assert.rejects(leases.acquire("notes"), (error) => isLeaseError(error) && error.code === "Store");
  for (const fault of ["refuse", "loseReply", "stall", "silence"]) {
    const before = store.transactions;
    store.inject(fault);
    const acquired = leases.acquire("notes");
    await clock.advance(15_000);
    assert.equal(await (await acquired).release(), "released", fault);
    assert.ok(store.transactions >= before + 3, `${fault}: ${store.transactions - before} transactions`);
  }
  store.failAlways("fail");
  for (const asked of [leases.status("notes"), leases.list()]) {
    await assert.rejects(asked, (error) => isLeaseError(error) && error.code === "Store");
  }
  store.heal();
  await leases.close();
});

test("a fault that was injected is kept for the next transaction: to list keys is none", async () => {
  const store = new FaultyStore();
  const leases = await LeaseManager.open("listed", { store });
  store.inject("fail");
  assert.deepEqual(await leases.list(), []);
  assert.equal(store.transactions, 0);
  await assert.rejects(leases.acquire("notes"), (error) => isLeaseError(error) && error.code === "Store");
  await leases.close();
});

test("a close() over a silent store ends at its time limit by the clock, even beside other managers", async () => {
  const store = new FaultyStore();
  const [leases, other] = [await LeaseManager.open("closing", { store }), await LeaseManager.open("closing", { store: "memory" })];
  await Promise.all([leases.acquire("notes"), other.acquire("tasks")]);
  store.failAlways("stall");
  const began = clock.nowMs;
  let took;
  leases.close().then(() => (took = clock.nowMs - began));
  await clock.advance(60_000);
  assert.ok(took <= 10_000, `${took} ms`);
  await other.close();
});

test("a manager that was closed says so at once, even if its store is silent", async () => {
  const store = new FaultyStore();
  const leases = await LeaseManager.open("closed", { store });
  await leases.close();
  for (const fault of ["stall", "fail", "refuse"]) {
    store.failAlways(fault);
    for (const ask of [() => leases.status("notes"), () => leases.list(), () => leases.acquire("notes")]) {
      let code;
      ask().catch((error) => (code = error.code));
      await clock.advance(0);
      assert.equal(code, "Closed", `${fault}: ${ask}`);
    }
  }
});

test("a lease says that it is shared from the call of downgrade() on, also if the store fails", async () => {
  for (const fault of ["loseReply", "silence", "refuse"]) {
    const store = new FaultyStore();
    const [leases, other] = [await LeaseManager.open(fault, { store }), await LeaseManager.open(fault, { store: "memory" })];
    const lease = await leases.acquire("notes");
    store.inject(fault);
    const failed = lease.downgrade().then(assert.fail, ({ code }) => code);
    const reading = other.acquire("notes", { mode: "shared" });
    await clock.advance(1);
    assert.equal(lease.mode, "shared", fault);
    await clock.advance(40_000);
    assert.deepEqual([await failed, (await reading).valid, lease.mode, await lease.release()], ["Store", true, "shared", "released"]);
    assert.equal(lease.mode, "shared", "after the release");
    await Promise.all([leases.close(), other.close()]);
  }
});

test("a test framework's fake timers stop neither the clock nor the leases", async (t) => {
  const leases = await LeaseManager.open("beside fake timers", { store: "memory" });
  // Jest replaces all of these unless it is told otherwise.
  for (const name of ["setTimeout", "setInterval", "setImmediate", "queueMicrotask"]) t.mock.method(globalThis, name, () => {});
  const lease = await leases.acquire("notes");
  await clock.advance(60_000);
  assert.equal(lease.valid, true);
  await leases.close();
});

test("a fault that does not exist, and a time that is none, are refused by name", async () => {
  const faults = "a fault must be refuse, fail, loseReply, silence or stall";
  assert.throws(() => new FaultyStore().inject("explode"), { name: "TypeError", message: `${faults}; it is "explode"` });
  // Faults are separate arguments, not an array.
  assert.throws(() => new FaultyStore().inject(["refuse"]), { name: "TypeError", message: `${faults}; it is an array of length 1` });
  assert.throws(() => new FaultyStore().failAlways(), { name: "TypeError", message: `${faults}; it is undefined` });
  for (const ms of [-1, NaN, Infinity, "1", undefined]) {
    await assert.rejects(clock.advance(ms), (error) => error instanceof TypeError && error.message.includes(String(ms)));
  }
  await assert.rejects(clock.advance("5"), { message: /not by "5"$/ });
  assert.throws(() => clock.setWall("2020"), { message: /not to "2020"$/ });
  for (const time of [NaN, Infinity, "noon", undefined, null, new Date(NaN)]) {
    assert.throws(() => clock.setWall(time), (error) => error instanceof TypeError && error.message.includes(String(time)));
  }
});

test("the wall clock may jump: leases do not mind", async () => {
  const leases = await LeaseManager.open("jump", { store: "memory" });
  const lease = await leases.acquire("notes");
  assert.ok(Math.abs(lease.expiresAt - Date.UTC(2025, 0, 1) - clock.nowMs) < 30_000);
  clock.setWall(Date.UTC(2030, 0, 1));
  await clock.advance(60_000);
  assert.equal(lease.valid, true);
  assert.ok(lease.expiresAt > Date.UTC(2030, 0, 1));
  await leases.close();
});

test("an operation that the store refuses for good costs a lease only if the heartbeat alone is refused, too", async () => {
  for (const [fault, times, reason] of [["refuse", 1], ["loseReply", 1], ["fail", 1], ["fail", 2, "StoreFailed"]]) {
    for (const ask of [(lease) => lease.verify(), (lease) => lease.extend(60_000)]) {
      const store = new FaultyStore();
      const leases = await LeaseManager.open(`asked ${(asked += 1)}`, { store });
      const [one, other] = [await leases.acquire("one"), await leases.acquire("other")];
      for (let time = 0; time < times; time += 1) store.inject(fault);
      const told = await ask(one).catch((error) => error);
      assert.deepEqual([told.code, told.message.includes("will not help")], ["Store", fault === "fail"]);
      await clock.advance(0);
      for (const lease of [one, other]) {
        assert.equal(lease.valid, !reason);
        if (reason) assert.equal(await lease.lost, reason);
      }
      await leases.close();
    }
  }
});

let asked = 0;
