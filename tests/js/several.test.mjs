// Several leases under one request. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LeaseError, LeaseGroup, openManager, refused, settle } from "./pkg.mjs";

/** Two contexts that give back at once what they no longer use. */
const pair = async (name) => [await openManager({ lingerMs: 0 }, name), await openManager({ lingerMs: 0 }, name)];
const held = async (leases) => (await leases.list()).filter(({ holders }) => holders.length > 0).map(({ key }) => key);

test("several keys in mixed modes, in the order asked for, and given back together", async () => {
  const [one, two] = await pair("mixed");
  for (const timeoutMs of [undefined, 0]) {
    const items = [{ key: "c" }, { key: "a", mode: "shared" }, { key: "b", mode: "exclusive" }];
    const group = await one.acquireAll(items, { timeoutMs, info: "transfer" });
    assert.ok(group instanceof LeaseGroup);
    assert.deepEqual(group.leases.map(({ key, mode }) => [key, mode]), [["c", "exclusive"], ["a", "shared"], ["b", "exclusive"]]);
    const [first] = group;
    assert.ok(first === group.leases[0] && first === group.get("c"));
    assert.deepEqual([group.get("d"), group.valid, await group.verify(), group.signal.aborted], [undefined, true, true, false]);
    assert.ok(group.leases.every((lease) => Number.isSafeInteger(lease.token)));
    assert.deepEqual((await two.list()).map(({ holders }) => holders[0].info), Array(3).fill("transfer"));
    assert.ok(await two.tryAcquire("a", { mode: "shared" }).then((lease) => lease.release()));
    await refused(() => two.acquireAll([{ key: "z" }, { key: "c" }], { timeoutMs: 0 }), "Timeout", "TimeoutError");
    assert.deepEqual(await held(two), ["a", "b", "c"], "nothing is left of what was refused");
    const releasing = group.release();
    assert.equal(group.valid, false);
    assert.deepEqual([await releasing, await group.release(), await group.verify()], ["released", "released", false]);
    assert.deepEqual(await held(two), []);
  }
  await Promise.all([one.close(), two.close()]);
});

test("a try takes one transaction; who waits, waits in the order of everybody", async () => {
  const [one, two] = await pair("orders");
  const before = one.stats().transactions;
  const items = ["a", "b", "c", "d"].map((key) => ({ key }));
  const group = await one.acquireAll(items, { timeoutMs: 0 });
  assert.equal(one.stats().transactions - before, 1);
  await group.release();
  // By the letters' numbers: an astral letter comes after U+FFFD, though its first half is the smaller one.
  const keys = ["\u{1f512}", "\ufffd", "ab", "a", "b"];
  const lease = await two.acquire("b");
  const waiting = one.acquireAll(keys.map((key) => ({ key })));
  await settle();
  assert.deepEqual([await held(one), (await two.status("b")).queue.length], [["a", "ab", "b"], 1]);
  const next = await two.acquire("\ufffd");
  await lease.release();
  await settle();
  assert.deepEqual((await two.status("\u{1f512}")).holders, []);
  await next.release();
  assert.deepEqual((await waiting).leases.map(({ key }) => key), keys);
  await Promise.all([one.close(), two.close()]);
});

test("what is free is granted in one transaction, also to who would wait; and what is left after a wait", async () => {
  const [one, two] = await pair("at once");
  const items = Array.from({ length: 200 }, (_, at) => ({ key: `${1_000 + at}` }));
  await (await one.acquire("warm")).release();
  for (const options of [undefined, { timeoutMs: 60_000 }, { signal: new AbortController().signal }]) {
    const before = one.stats().transactions;
    const group = await one.acquireAll(items, options);
    assert.equal(one.stats().transactions - before, 1);
    await group.release();
  }
  const taken = await two.acquire(items[0].key);
  const before = one.stats().transactions;
  const waiting = one.acquireAll(items);
  await settle();
  await taken.release();
  const group = await waiting;
  assert.ok(one.stats().transactions - before <= 6, `${one.stats().transactions - before} transactions`);
  await group.release();
  await Promise.all([one.close(), two.close()]);
});

test("in Node.js, many keys make no warning of listeners of our own", async (t) => {
  const [one, two] = await pair("listeners");
  const warned = t.mock.fn();
  process.on("warning", warned);
  const items = Array.from({ length: 30 }, (_, at) => ({ key: `${10 + at}` }));
  const held = await two.acquireAll(items);
  const waiting = one.acquireAll(items, { signal: new AbortController().signal });
  for (const lease of held) {
    await settle();
    await lease.release();
  }
  const group = await waiting;
  assert.equal(group.signal.aborted, false);
  await settle();
  assert.deepEqual(warned.mock.calls.map(({ arguments: [warning] }) => String(warning)), []);
  process.off("warning", warned);
  await group.release();
  await Promise.all([one.close(), two.close()]);
});

test("overlapping requests in a circle all get their turn", async () => {
  const managers = await Promise.all([1, 2, 3].map(() => openManager({}, "circle")));
  const keys = ["a", "b", "c"];
  const inside = new Set();
  const turns = managers.flatMap((leases, at) =>
    Array.from({ length: 5 }, async () => {
      const mine = [keys[at], keys[(at + 1) % 3]];
      const group = await leases.acquireAll(mine.map((key) => ({ key })));
      for (const key of mine) assert.ok(!inside.has(key) && inside.add(key));
      await null;
      for (const key of mine) inside.delete(key);
      await group.release();
    }),
  );
  await Promise.all(turns);
  await Promise.all(managers.map((leases) => leases.close()));
});

test("all or nothing: a time-out, an abort, a loss and a close give back what was held meanwhile", async () => {
  const [one, two] = await pair("nothing");
  const lease = await two.acquire("b");
  const items = ["c", "a", "b"].map((key) => ({ key }));
  const began = performance.now();
  await refused(() => one.acquireAll(items, { timeoutMs: 40 }), "Timeout", "TimeoutError");
  assert.ok(performance.now() - began >= 39);
  await settle();
  assert.deepEqual([await held(two), (await two.status("b")).queue], [["b"], []]);

  for (const reason of [new Error("why"), "a word", undefined]) {
    const controller = new AbortController();
    const waiting = one.acquireAll(items, { signal: controller.signal });
    await settle();
    assert.deepEqual(await held(two), ["a", "b"]);
    controller.abort(reason);
    await assert.rejects(waiting, (error) => error === controller.signal.reason);
    await settle();
    assert.deepEqual([await held(two), (await two.status("b")).queue], [["b"], []]);
  }
  const reason = Symbol("an aborted signal asks for nothing");
  const before = one.stats().transactions;
  for (const timeoutMs of [undefined, 0]) {
    const asking = one.acquireAll(items, { signal: AbortSignal.abort(reason), timeoutMs });
    await assert.rejects(asking, (error) => error === reason);
  }
  assert.equal(one.stats().transactions, before);

  const robbed = one.acquireAll(items);
  await settle();
  const thief = await two.steal("a");
  await assert.rejects(robbed, (error) => {
    assert.ok(error instanceof LeaseError);
    assert.deepEqual([error.code, error.reason, error.key], ["LeaseLost", "Stolen", "a"]);
    return true;
  });
  await thief.release();
  assert.deepEqual((await two.status("b")).queue, []);

  const closed = refused(() => one.acquireAll(items), "Closed", "InvalidStateError");
  await settle();
  await Promise.all([one.close(), closed]);
  for (const timeoutMs of [undefined, 0]) {
    await refused(() => one.acquireAll(items, { timeoutMs }), "Closed", "InvalidStateError");
  }
  assert.deepEqual(await held(two), ["b"]);
  await lease.release();
  await two.close();
});

test("an abort at any moment of a grant leaves nothing held", async () => {
  const leases = await openManager();
  for (const timeoutMs of [undefined, 0]) {
    for (let steps = 0; steps < 40; steps++) {
      const controller = new AbortController();
      const acquiring = leases.acquireAll([{ key: "a" }, { key: "b" }], { signal: controller.signal, timeoutMs });
      for (let step = 0; step < steps; step++) await null;
      controller.abort("enough");
      await acquiring.then((group) => group.release(), (error) => assert.equal(error, "enough"));
      await settle();
      assert.deepEqual(await leases.list(), [], `after ${steps} steps`);
    }
  }
  await leases.close();
});

test("the loss of one is told by the group, and each may be released for itself", async () => {
  const [one, two] = await pair("losses");
  const group = await one.acquireAll([{ key: "a" }, { key: "b" }]);
  const { signal, lost } = group;
  assert.equal(await group.get("a").release(), "released");
  assert.deepEqual([group.valid, signal.aborted], [false, false]);
  await two.steal("b");
  assert.equal(await lost, "Stolen");
  assert.ok(signal.aborted && signal.reason === group.get("b").signal.reason);
  const late = await one.acquireAll([{ key: "c" }]);
  await one.close();
  await late.lost;
  assert.equal(late.signal.reason.reason, "Closed");
  assert.deepEqual([await group.release(), await late.release()], ["lost", "lost"]);
  await two.close();
});

test("disposal releases; what a group shows cannot be written", async () => {
  const leases = await openManager();
  const [one, two] = [await leases.acquireAll([{ key: "a" }]), await leases.acquireAll([{ key: "b" }])];
  assert.throws(() => (one.leases = []), TypeError);
  assert.throws(() => one.leases.push(two), TypeError);
  assert.throws(() => new LeaseGroup(), /acquireAll/);
  await one[Symbol.asyncDispose]();
  assert.equal(two[Symbol.dispose](), undefined);
  await settle();
  assert.deepEqual(await leases.list(), []);
  await leases.close();
});

test("what is wrong is told by its place, before anything is asked", async () => {
  const leases = await openManager();
  const options = (keys, ...words) => refused(() => leases.acquireAll(keys), "InvalidOptions", "LeaseError", ...words);
  for (const odd of [undefined, null, 5, "ab", {}, [], Symbol("s"), new Set(["a"])]) await options(odd, "an array");
  for (const odd of [undefined, null, 5, "b", Symbol("b")]) await options([{ key: "a" }, odd], "keys[1]", "an object");
  await options([{ key: "a" }, { key: "b", mode: "read" }], "keys[1].mode", '"shared"', '"read"');
  await options([{ key: "a", modes: "shared" }], "`keys[0].modes`", "did you mean `mode`?");
  await options([{ key: "a" }, { key: "b" }, { key: "a", mode: "shared" }], "keys[2]", "keys[0]", '"a"');
  await options(Array.from({ length: 1_001 }, (_, at) => ({ key: `${at}` })), "1001", "1000");
  for (const key of [undefined, null, 5, "", "k".repeat(1_025), "a\ud800", Symbol("s")]) {
    await refused(() => leases.acquireAll([{ key: "a" }, { key }]), "InvalidKey", "LeaseError", "keys[1].key", "1024");
  }
  await refused(() => leases.acquireAll([{ key: "a" }], { share: true }), "InvalidOptions", "LeaseError", "`share`");
  for (const options of [{}, { timeoutMs: 0 }]) {
    await refused(() => leases.acquireAll([{ key: "\0lock:a" }], options), "InvalidKey", "LeaseError", "leases.locks");
  }
  assert.equal(leases.stats().transactions, 0);
  await (await leases.acquireAll(Array.from({ length: 1_000 }, (_, at) => ({ key: `${at}` })), { timeoutMs: 0 })).release();
  await leases.close();
});
