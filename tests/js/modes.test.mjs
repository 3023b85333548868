// How a lease is held: modes, sharing, priorities, theft, longer and shorter. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openManager, refused, settle } from "./pkg.mjs";

const LEASE_ERROR = "LeaseError";

/** Contexts of one store. */
const pair = async (name, options) => [await openManager(options, name), await openManager(options, name)];
const three = async (name) => [...(await pair(name)), await openManager({}, name)];

/** What a promise brought so far. */
function watch(promise) {
  const seen = { settled: false };
  promise.then((value) => Object.assign(seen, { settled: true, value }), (error) => Object.assign(seen, { settled: true, error }));
  return seen;
}

test("readers share, a writer waits for all of them, and is not starved", async () => {
  const [one, two, third] = await three("modes");
  const reader = await one.acquire("notes", { mode: "shared" });
  assert.equal(reader.mode, "shared");
  const other = await two.tryAcquire("notes", { mode: "shared" });
  assert.equal(other.mode, "shared");
  const writing = two.acquire("notes", { mode: "exclusive" });
  await settle();
  assert.equal(await third.tryAcquire("notes", { mode: "shared" }), null, "who reads later waits behind the writer");
  const { holders, queue } = await one.status("notes");
  assert.deepEqual([holders.map(({ mode }) => mode), queue.map(({ mode }) => mode)], [["shared", "shared"], ["exclusive"]]);
  await Promise.all([reader.release(), other.release()]);
  const writer = await writing;
  assert.deepEqual([writer.mode, await third.tryAcquire("notes", { mode: "shared" })], ["exclusive", null]);
  await Promise.all([one, two, third].map((leases) => leases.close()));
});

test("who says so shares within the manager, against all others as usual", async () => {
  const [one, two] = await pair("share");
  const leases = await Promise.all([1, 2].map(() => one.acquire("notes", { share: true })));
  assert.ok(leases[0].token !== leases[1].token && leases.every(({ valid }) => valid));
  assert.deepEqual([await one.tryAcquire("notes"), await two.tryAcquire("notes", { share: true })], [null, null]);
  assert.ok(await one.tryAcquire("notes", { share: true }).then((lease) => lease.release()));
  await leases[0].release();
  assert.equal(await one.tryAcquire("notes"), null, "the other one holds on");
  await leases[1].release();
  assert.ok(await one.tryAcquire("notes"));
  await Promise.all([one.close(), two.close()]);
});

test("a larger priority goes first", async () => {
  const [one, two] = await pair("priority");
  const lease = await one.acquire("notes");
  const order = [];
  const turn = async (leases, priority) => {
    const lease = await leases.acquire("notes", { priority });
    order.push(priority);
    await lease.release();
  };
  const turns = [];
  for (const [leases, priority] of [[two, -1], [two, undefined], [one, 5], [two, 2_147_483_647]]) {
    turns.push(turn(leases, priority));
    await settle();
  }
  assert.deepEqual((await two.status("notes")).queue.map(({ priority }) => priority).sort((a, b) => b - a)[0], 2_147_483_647);
  await lease.release();
  await Promise.all(turns);
  assert.deepEqual(order.filter((priority) => priority !== 5), [2_147_483_647, undefined, -1]);
  await Promise.all([one.close(), two.close()]);
});

test("a theft is told to who was robbed, and passes all who wait", async () => {
  const [one, two] = await pair("theft");
  const robbed = await one.acquire("notes");
  const waiting = one.acquire("notes");
  await settle();
  const thief = await two.steal("notes", { info: "thief" });
  assert.ok(thief.token > robbed.token && thief.mode === "exclusive");
  assert.equal(await robbed.lost, "Stolen");
  const { reason } = robbed.signal;
  assert.deepEqual([reason.code, reason.reason, reason.key, reason.token], ["LeaseLost", "Stolen", "notes", robbed.token]);
  assert.equal(robbed.signal.reason, reason);
  assert.equal(AbortSignal.any([robbed.signal, new AbortController().signal]).reason, reason);
  assert.equal((await two.status("notes")).holders[0].info, "thief");
  for (const late of [() => robbed.extend(5_000), () => robbed.downgrade(), () => robbed.upgrade()]) {
    await refused(late, "LeaseLost", LEASE_ERROR, '"notes"', "Stolen");
  }
  assert.equal(await robbed.release(), "lost");
  await refused(() => robbed.extend(5_000), "LeaseLost", LEASE_ERROR, "Stolen");
  await thief.release();
  await (await waiting).release();
  // Of the same manager, and of a key that nobody holds.
  const own = await one.steal("notes");
  const again = await one.steal("notes");
  assert.deepEqual([await own.lost, again.valid], ["Stolen", true]);
  await Promise.all([one.close(), two.close()]);
  await refused(() => one.steal("notes"), "Closed", "InvalidStateError");
});

test("a lease is extended for as long as is said", async () => {
  const leases = await openManager({ leaseMs: 2_000 });
  const lease = await leases.acquire("notes");
  assert.equal(await lease.extend(60_000.5), undefined);
  assert.ok(lease.remainingMs > 55_000, `${lease.remainingMs} ms`);
  await refused(() => lease.extend(0), "InvalidOptions", LEASE_ERROR, "0");
  await refused(() => lease.extend(24 * 60 * 60 * 1_000 + 1), "InvalidOptions", LEASE_ERROR, "86400001");
  for (const odd of [undefined, null, "5", -1, NaN, Infinity, 5n, Symbol("s")]) {
    await refused(() => lease.extend(odd), "InvalidOptions", LEASE_ERROR, "milliseconds", String(odd));
  }
  await lease.release();
  await refused(() => lease.extend(1_000), "LeaseLost", LEASE_ERROR, '"notes"', "was released");
  await assert.rejects(lease.extend(1_000), (error) => error.reason === undefined && error.key === "notes");
  await leases.close();
});

test("down to shared and up again, with a new token", async () => {
  const [one, two, third] = await three("up and down");
  const lease = await one.acquire("notes");
  const { token, signal } = lease;
  assert.equal(await lease.upgrade(), undefined);
  assert.deepEqual([lease.mode, lease.token], ["exclusive", token]);
  assert.equal(await lease.downgrade(), undefined);
  assert.equal(lease.mode, "shared");
  const reader = await two.tryAcquire("notes", { mode: "shared" });
  const upgrading = watch(lease.upgrade());
  await settle();
  assert.deepEqual([upgrading.settled, lease.mode, lease.valid], [false, "shared", true]);
  assert.equal(await third.tryAcquire("notes", { mode: "shared" }), null, "ahead of everybody who comes");
  await reader.release();
  await settle();
  assert.deepEqual([upgrading.settled, upgrading.error, lease.mode], [true, undefined, "exclusive"]);
  assert.ok(lease.token > token && lease.valid);
  assert.equal(await two.tryAcquire("notes", { mode: "shared" }), null);
  // Who kept the signal from before is told of the present token.
  await two.steal("notes");
  assert.equal(await lease.lost, "Stolen");
  assert.deepEqual([signal.aborted, signal.reason.token], [true, lease.token]);
  await Promise.all([one, two, third].map((leases) => leases.close()));
});

test("of two who upgrade one is refused, and releases", async () => {
  const [one, two] = await pair("conflict");
  const [left, right] = [await one.acquire("notes", { mode: "shared" }), await two.acquire("notes", { mode: "shared" })];
  const upgrading = left.upgrade();
  await settle();
  await refused(() => right.upgrade(), "UpgradeConflict", LEASE_ERROR, 'the key "notes"', "release this lease");
  await refused(() => left.upgrade(), "UpgradeConflict", LEASE_ERROR, "if an earlier call on this lease upgrades it, await that call");
  assert.deepEqual([right.mode, right.valid], ["shared", true]);
  await right.release();
  await upgrading;
  assert.equal(left.mode, "exclusive");
  await Promise.all([one.close(), two.close()]);
});

test("an upgrade that is aborted leaves the lease sharing, at whatever moment", async () => {
  const [one, two, third] = await three("aborted upgrade");
  const lease = await one.acquire("notes", { mode: "shared" });
  const reader = await two.acquire("notes", { mode: "shared" });
  const reason = { not: "even an error" };
  await assert.rejects(lease.upgrade({ signal: AbortSignal.abort(reason) }), (error) => error === reason);
  const controller = new AbortController();
  const upgrading = lease.upgrade({ signal: controller.signal });
  await settle();
  controller.abort(reason);
  await assert.rejects(upgrading, (error) => error === reason);
  assert.deepEqual([lease.mode, lease.valid], ["shared", true]);
  assert.ok(await third.tryAcquire("notes", { mode: "shared" }).then((lease) => lease.release()), "nobody is ahead any more");
  await reader.release();
  for (let steps = 0; steps < 25; steps++) {
    const controller = new AbortController();
    const upgrading = lease.upgrade({ signal: controller.signal });
    for (let step = 0; step < steps; step++) await null;
    controller.abort(reason);
    const mode = await upgrading.then(() => "exclusive", (error) => (assert.equal(error, reason), "shared"));
    await settle();
    assert.equal(lease.mode, mode, `after ${steps} steps`);
    assert.deepEqual((await one.status("notes")).holders.map(({ mode }) => mode), [mode], `after ${steps} steps`);
    await lease.downgrade();
  }
  await Promise.all([one, two, third].map((leases) => leases.close()));
});

test("a release ends what the lease still waits for", async () => {
  const [one, two] = await pair("released upgrade");
  const lease = await one.acquire("notes", { mode: "shared" });
  await two.acquire("notes", { mode: "shared" });
  const upgrading = refused(() => lease.upgrade(), "LeaseLost", LEASE_ERROR, "was released");
  await settle();
  assert.equal(await lease.release(), "released");
  await upgrading;
  assert.equal((await two.status("notes")).holders.length, 1);
  for (const late of [() => lease.upgrade(), () => lease.downgrade()]) {
    await refused(late, "LeaseLost", LEASE_ERROR, "was released");
  }
  assert.deepEqual([lease.mode, lease.changedHands, lease.clearChanged()], ["shared", false, undefined]);
  await Promise.all([one.close(), two.close()]);
});

test("who held it before another did is told until it takes note", async () => {
  const [one, two] = await pair("hands");
  const first = await one.acquire("notes");
  assert.equal(first.changedHands, false);
  await first.release();
  await (await one.acquire("notes")).release();
  const between = await two.acquire("notes");
  await between.release();
  const second = await one.acquire("notes");
  assert.equal(second.changedHands, true);
  await second.release();
  const third = await one.acquire("notes");
  assert.equal(third.changedHands, true);
  third.clearChanged();
  assert.equal(third.changedHands, false);
  await third.release();
  const fourth = await one.acquire("notes");
  assert.equal(fourth.changedHands, false);
  await Promise.all([one.close(), two.close()]);
});

test("a living twin is refused after 250 ms; its name shows", async () => {
  const [one, two] = await pair("twins", { instance: "worker-1" });
  const lease = await one.acquire("notes");
  assert.equal((await one.status("notes")).holders[0].instance, "worker-1");
  const began = performance.now();
  await refused(() => two.acquire("notes"), "InstanceInUse", LEASE_ERROR, 'the same instance name "worker-1"', 'the key "notes"');
  assert.ok(performance.now() - began >= 245, "so that a reload wins");
  for (const timeoutMs of [0, 60_000]) {
    const all = [{ key: "a" }, { key: "notes", mode: "shared" }, { key: "z" }];
    await refused(() => two.acquireAll(all, { timeoutMs }), "InstanceInUse", LEASE_ERROR, 'the same instance name "worker-1"', 'the key "notes"');
    assert.deepEqual((await two.list()).map(({ key }) => key), ["notes"], "nothing is left behind");
  }
  await lease.release();
  const next = await two.acquire("notes");
  assert.ok(next.valid);
  await next.release();
  assert.equal((await two.acquireAll([{ key: "a" }, { key: "notes" }], { timeoutMs: 0 })).leases.length, 2);
  await Promise.all([one.close(), two.close()]);
});
