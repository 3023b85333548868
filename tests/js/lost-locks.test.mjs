// What becomes of `leases.locks` when pages are frozen, stores fall silent and nobody answers. Run as testing.test.mjs is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { FaultyStore, LeaseManager, clock, isLeaseError } from "../../pkg/testing-node.mjs";
import { seen, take } from "../browser/pages/locks/tools.mjs";

let stores = 0;

const open = (name, options) => LeaseManager.open(name, { store: "memory", ...options });

/** A manager of a page that can be frozen, and one of a page that cannot. */
async function pages(options) {
  const name = `pages ${(stores += 1)}`;
  const page = Object.assign(new EventTarget(), { hidden: false, defaultView: globalThis });
  globalThis.document = page;
  try {
    const leases = await open(name, options);
    const freeze = (frozen) => page.dispatchEvent(new Event(frozen ? "freeze" : "resume"));
    return { leases, freeze, other: await open(name, {}, delete globalThis.document) };
  } finally {
    delete globalThis.document;
  }
}

function ensureLost(error, reason, key) {
  const told = isLeaseError(error) && [error.code, error.name, error.reason, error.key];
  assert.deepEqual(told, ["LeaseLost", "AbortError", reason, key], `${error}`);
}

/** One holds a lock that the other waits for; what is told, in its order. */
async function contended(leases, other) {
  const told = [];
  const held = take(leases.locks, "a");
  held.done.catch((error) => told.push(error.reason));
  await held.start;
  const next = take(other.locks, "a");
  next.start.then(() => told.push("granted"));
  await other.locks.query();
  return { told, held, next };
}

test("a page that is frozen loses its locks at once, and hears of it; others have them, and its callbacks harm nobody", async () => {
  const { leases, freeze, other } = await pages();
  const { told, held, next } = await contended(leases, other);
  freeze(true);
  await clock.advance(100);
  // Never two at once, not even for a moment.
  assert.deepEqual(told, ["Suspended", "granted"]);
  ensureLost(held.error, "Suspended", "a");
  held.finish("late");
  await clock.advance(0);
  assert.equal(await seen(other.locks, "a"), "X|");
  freeze(false);
  await clock.advance(1_000);
  assert.equal(await seen(leases.locks, "a"), "X|");
  next.finish("mine");
  assert.equal(await next.done, "mine");
  assert.equal(await leases.locks.request("a", (lock) => lock.name), "a");
  await Promise.all([leases.close(), other.close()]);
});

test("what waits in a page that is frozen queues again in its order, whatever the modes", async () => {
  const { leases, freeze, other } = await pages();
  const holder = take(other.locks, "a");
  await holder.start;
  const order = [];
  const waiting = ["shared", "exclusive", "shared", "exclusive", "shared"].map((mode, at) => {
    const one = take(leases.locks, "a", { mode });
    one.start.then(() => (order.push(at), one.finish(at)));
    return one.done;
  });
  assert.equal(await seen(leases.locks, "a"), "X|SXSXS");
  freeze(true);
  await clock.advance(100);
  assert.equal(await seen(other.locks, "a"), "X|");
  const between = take(other.locks, "a");
  // What comes while it is stopped comes behind what waited.
  const late = take(leases.locks, "a", { mode: "shared" });
  late.start.then(() => (order.push("late"), late.finish()));
  freeze(false);
  await clock.advance(1_000);
  assert.equal(await seen(leases.locks, "a"), "X|XSXSXSS");
  holder.finish();
  await between.start;
  assert.deepEqual(order, []);
  between.finish();
  assert.deepEqual(await Promise.all(waiting), [0, 1, 2, 3, 4]);
  await late.done;
  assert.deepEqual(order, [0, 1, 2, 3, 4, "late"]);
  await Promise.all([leases.close(), other.close()]);
});

test("a try in a page that is being stopped is told so, as a lock that is lost", async () => {
  const { leases, freeze, other } = await pages();
  await leases.locks.query();
  freeze(true);
  const tried = take(leases.locks, "a", { ifAvailable: true });
  await clock.advance(0);
  ensureLost(tried.error, "Suspended", "a");
  freeze(false);
  assert.equal(await leases.locks.request("a", { ifAvailable: true }, (lock) => lock.name), "a");
  await Promise.all([leases.close(), other.close()]);
});

test("a signal ends a wait also while the page is stopped", async () => {
  const { leases, freeze, other } = await pages();
  const holder = take(other.locks, "a");
  await holder.start;
  const controller = new AbortController();
  const waiting = take(leases.locks, "a", { signal: controller.signal });
  await leases.locks.query();
  freeze(true);
  await clock.advance(0);
  controller.abort("enough");
  await clock.advance(0);
  assert.equal(waiting.error, "enough");
  freeze(false);
  await clock.advance(100);
  assert.equal(await seen(other.locks, "a"), "X|");
  holder.finish();
  await holder.done;
  assert.equal(await seen(other.locks, "a"), "|");
  await Promise.all([leases.close(), other.close()]);
});

async function cut() {
  const name = `cut ${(stores += 1)}`;
  const store = new FaultyStore();
  return { store, leases: await open(name, { store }), other: await open(name) };
}

test("who is cut off from the store is told that its lock is lost before anybody else has it", async () => {
  const { store, leases, other } = await cut();
  const { told, held, next } = await contended(leases, other);
  store.failAlways("stall");
  await clock.advance(40_000);
  assert.deepEqual(told, ["Expired", "granted"]);
  ensureLost(held.error, "Expired", "a");
  held.finish("late");
  store.heal();
  await clock.advance(40_000);
  assert.equal(await seen(other.locks, "a"), "X|");
  next.finish();
  await Promise.all([leases.close(), other.close()]);
});

test("a callback that ended while the lock was held has done its work, whatever the store says to the release", async () => {
  for (const fault of ["refuse", "fail", "loseReply", "silence", "stall"]) {
    const { store, leases, other } = await cut();
    const [kept, failed] = [take(leases.locks, "kept"), take(leases.locks, "failed")];
    await Promise.all([kept.start, failed.start]);
    store.failAlways(fault);
    kept.finish("value");
    failed.fail("mine");
    await clock.advance(40_000);
    assert.equal(await Promise.race([kept.done, "not settled"]), "value", fault);
    assert.equal(failed.error, "mine", fault);
    assert.equal(await other.locks.request("kept", { ifAvailable: true }, Boolean), true, fault);
    store.heal();
    await Promise.all([leases.close(), other.close(), clock.advance(40_000)]);
  }
});

test("an abort is heard at once, also when the store is silent or a query is under way, and leaves nothing behind", async () => {
  for (const fault of ["stall", "silence", "refuse", "loseReply"]) {
    const { store, leases, other } = await cut();
    await leases.locks.query();
    const controller = new AbortController();
    store.failAlways(fault);
    const queried = leases.locks.query().catch(() => {});
    const asked = take(leases.locks, "a", { signal: controller.signal });
    await clock.advance(10);
    controller.abort("enough");
    await Promise.resolve();
    await Promise.resolve();
    assert.equal(asked.error, "enough", fault);
    store.heal();
    await clock.advance(60_000);
    await queried;
    assert.equal(asked.started, false, fault);
    assert.equal(await seen(other.locks, "a"), "|", fault);
    await Promise.all([leases.close(), other.close(), clock.advance(20_000)]);
  }
});

test("an abort at any moment before the callback keeps it from being called, and nothing is said of it", async (t) => {
  const warned = t.mock.method(console, "warn", () => {});
  const leases = await open("moments");
  let [called, aborted] = [0, 0];
  for (let wait = 0; wait < 40; wait++) {
    const controller = new AbortController();
    let hadRun, ran = false;
    const asked = leases.locks.request("a", { signal: controller.signal }, () => { ran = true; });
    for (let turn = 0; turn < wait; turn++) await null;
    hadRun = ran;
    controller.abort("enough");
    const outcome = await asked.catch((reason) => reason);
    assert.deepEqual([ran, outcome], hadRun ? [true, undefined] : [false, "enough"], `after ${wait} turns`);
    if (hadRun) called += 1;
    else aborted += 1;
  }
  assert.ok(called && aborted, `${called} were called, ${aborted} not`);
  assert.deepEqual(warned.mock.calls.map(({ arguments: [sentence] }) => sentence), []);
  assert.equal(await seen(leases.locks, "a"), "|");
  await leases.close();
});

test("what is given back behind an abort raises no complaint, whatever the store says", async () => {
  const unheard = [];
  const hear = (error) => unheard.push(error);
  process.on("unhandledRejection", hear);
  for (let wait = 0; wait < 40; wait++) {
    const { store, leases, other } = await cut();
    const controller = new AbortController();
    let ran = false;
    const asked = leases.locks.request("a", { signal: controller.signal }, () => { ran = true; });
    const settled = asked.catch(() => {});
    for (let turn = 0; turn < wait; turn++) await null;
    store.failAlways("fail");
    controller.abort("enough");
    await clock.advance(60_000);
    await settled;
    store.heal();
    await Promise.all([leases.close(), other.close(), clock.advance(20_000)]);
    if (ran) break;
  }
  process.off("unhandledRejection", hear);
  assert.deepEqual(unheard, []);
});
