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
    await assert.rejects(call(), { code: "LeaseLost", message: /was released/ });
  }
  assert.deepEqual([await lease.verify(), await releasing], [false, "released"]);
  await leases.close();
});

test("a time-out blames nobody while the store is silent", async () => {
  const store = new FaultyStore();
  const leases = await open("silent", store);
  store.failAlways("stall");
  for (const ask of [() => leases.acquire("k", { timeoutMs: 1_000 }), () => leases.acquireAll([{ key: "k" }], { timeoutMs: 1_000 })]) {
    const waiting = ask();
    waiting.catch(() => {});
    await clock.advance(1_000);
    // The look at the holder has a limit of its own.
    await clock.advance(1_000);
    const { error } = await state(waiting);
    assert.deepEqual([error?.code, error?.holder], ["Timeout", undefined]);
    assert.match(error.message, /the store did not say who held the key "k"; an open transaction may block it, or/);
  }
  store.heal();
  await clock.advance(60_000);
  await leases.close();
});

test("the error of a silent store names what may block it", async () => {
  const store = new FaultyStore();
  const leases = await open("blocked", store);
  store.failAlways("stall");
  const looking = leases.status("k");
  looking.catch(() => {});
  await clock.advance(5_000);
  const { error } = await state(looking);
  assert.equal(error?.code, "Store");
  assert.match(error.message, /did not answer within 5000 ms.* an open transaction over the object store `leasehold` may block it, maybe this page's own/);
  store.heal();
  await Promise.all([leases.close(), clock.advance(60_000)]);
});

test("who waits for a minute for a lease of its own manager is warned, once", async (t) => {
  const warn = t.mock.method(console, "warn", () => {});
  const [leases, other] = [await open("own wait"), await open("own wait")];
  const [own, foreign] = [await leases.acquire("own"), await other.acquire("foreign")];
  const give = [new AbortController(), new AbortController()];
  const waits = ["foreign", "own", "own"].map((key, at) => leases.acquire(key, { signal: give[at % 2].signal }));
  const lock = leases.locks.request("lock", () => leases.locks.request("lock", { signal: give[0].signal }, () => {}));
  for (const wait of [...waits, lock]) wait.catch(() => {});
  await clock.advance(59_000);
  assert.equal(warn.mock.callCount(), 0);
  await clock.advance(120_000);
  const said = warn.mock.calls.map(({ arguments: [said] }) => said);
  assert.equal(said.length, 1, said.join("\n"));
  assert.match(said[0], /^leasehold: .*"own" has waited for a minute .*\{ share: true \}; acquireAll\(\) cannot share: release the lease first, /);
  for (const controller of give) controller.abort();
  await Promise.all([own.release(), foreign.release()]);
  await Promise.all([leases.close(), other.close()]);
});

test("a warning that throws stops nothing", async () => {
  const leases = await open("strict console");
  const lease = await leases.acquire("notes");
  const waiting = leases.acquire("notes");
  const { warn } = console;
  const { error } = console;
  let warned = 0;
  const errors = [];
  console.warn = () => {
    warned++;
    throw new Error("no warnings, please");
  };
  console.error = (sentence) => errors.push(sentence);
  try {
    await clock.advance(61_000);
  } finally {
    Object.assign(console, { warn, error });
  }
  assert.equal(warned, 1);
  assert.match(errors.join("\n"), /^leasehold: .*"notes" has waited for a minute/);
  assert.equal(lease.valid, true);
  assert.equal(await lease.release(), "released");
  await (await waiting).release();
  await leases.close();
});

test("an election waits for a store that fails, and warns once of each cause", async (t) => {
  const store = new FaultyStore();
  const leases = await open("outage", store);
  const warn = t.mock.method(console, "warn", () => {});
  store.failAlways("refuse");
  const leading = leases.elect("leader", ({ token }) => token);
  await clock.advance(600_000);
  store.failAlways("loseReply");
  await clock.advance(600_000);
  assert.equal(await state(leading), "waits");
  store.heal();
  await clock.advance(60_000);
  assert.ok((await state(leading)).value > 0);
  const said = warn.mock.calls.map(({ arguments: [sentence] }) => sentence);
  assert.equal(said.length, 2, said.join("\n"));
  for (const [at, cause] of ["refused on demand", "the answer was lost"].entries()) {
    assert.ok(said[at].startsWith('leasehold: the election for "leader" waits: ') && said[at].includes(cause), said[at]);
  }
  await leases.close();
});

test("an election ends with a store that fails for good, or by its signal, whatever that says", async (t) => {
  t.mock.method(console, "warn", () => {});
  const store = new FaultyStore();
  const leases = await open("lasting outage", store);
  store.failAlways("fail");
  const refused = leases.elect("leader", never);
  refused.catch(() => {});
  await clock.advance(60_000);
  const { error } = await state(refused);
  assert.equal(error?.code, "Store");
  store.failAlways("refuse");
  const failed = leases.acquire("leader");
  failed.catch(() => {});
  await clock.advance(60_000);
  const reason = (await state(failed)).error;
  assert.ok(reason.code === "Store" && reason.message.includes("may help"), `${reason}`);
  const controller = new AbortController();
  const stopped = leases.elect("leader", { signal: controller.signal }, never);
  stopped.catch(() => {});
  await clock.advance(60_000);
  controller.abort(reason);
  assert.equal((await state(stopped)).error, reason);
  store.heal();
  await Promise.all([leases.close(), clock.advance(60_000)]);
});
