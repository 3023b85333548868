// How long work and several keys wait, by a clock that passes on demand and a store that stalls. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { FaultyStore, LeaseManager, clock } from "../../pkg/testing-node.mjs";

const open = (name, store = "memory") => LeaseManager.open(name, { store, lingerMs: 0 });
const never = () => new Promise(() => {});

/** What a promise has come to, after all that waits for no timer. */
async function state(promise) {
  await clock.advance(0);
  const ended = promise.then((value) => ({ value }), (error) => ({ error }));
  return Promise.race([ended, new Promise((resolve) => setImmediate(resolve, "waits"))]);
}

test("the time-out is one for all keys", async () => {
  const [one, other] = [await open("one for all"), await open("one for all")];
  const [first] = [await other.acquire("a"), await other.acquire("b")];
  const waiting = one.acquireAll([{ key: "a" }, { key: "b" }], { timeoutMs: 1_000 });
  waiting.catch(() => {});
  await clock.advance(600);
  await first.release();
  await clock.advance(399);
  assert.equal(await state(waiting), "waits");
  await clock.advance(1);
  assert.equal((await state(waiting)).error?.code, "Timeout");
  await Promise.all([one.close(), other.close()]);
});

test("when the promise settles the lease was given back", async () => {
  const thrown = new Error("on purpose");
  const works = { run: () => Promise.reject(thrown), tryRun: () => "done", elect: () => Promise.reject(thrown) };
  for (const [verb, end] of Object.entries(works)) {
    const store = new FaultyStore();
    const leases = await open(`given back by ${verb}`, store);
    const work = () => (store.failAlways("stall"), end());
    const working = leases[verb]("notes", work);
    working.catch(() => {});
    assert.equal(await state(working), "waits", verb);
    store.heal();
    await clock.advance(60_000);
    const { value, error } = await state(working);
    assert.ok(error === thrown || value?.value === "done", verb);
    await leases.close();
  }
});

test("a loss with abort, or of a lead, waits for no store", async () => {
  for (const verb of ["run", "tryRun"]) {
    const store = new FaultyStore();
    const [leases, thief] = [await open(`robbed of ${verb}`, store), await open(`robbed of ${verb}`)];
    const working = leases[verb]("notes", { onLost: "abort" }, never);
    working.catch(() => {});
    await clock.advance(1);
    store.failAlways("silence");
    await thief.steal("notes");
    const { error } = await state(working);
    assert.deepEqual([error?.code, error?.reason], ["LeaseLost", "Stolen"], verb);
    await Promise.all([thief.close(), clock.advance(60_000)]);
  }
});

test("from the call of release on, a lease was given back", async () => {
  const leases = await open("from the call on");
  const lease = await leases.acquire("notes");
  const releasing = lease.release();
  for (const call of [() => lease.extend(1_000), () => lease.upgrade(), () => lease.downgrade()]) {
    await assert.rejects(call(), { code: "LeaseLost", message: /was given back/ });
  }
  assert.deepEqual([await lease.verify(), await releasing], [false, "released"]);
  await leases.close();
});
