// The life of a lease through the JavaScript face. Run by `node --test tests/js/*.test.mjs`, after `make pkg`.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { LeaseError, LeaseManager, openManager, refused, settle } from "./pkg.mjs";

test("a lease is taken, shown and given back", async () => {
  const leases = await openManager();
  assert.match(leases.holder, /^[0-9a-f]{32}$/);
  const before = Date.now();
  const lease = await leases.acquire("notes", { info: "test" });
  assert.equal(lease.key, "notes");
  assert.ok(Number.isSafeInteger(lease.token) && lease.token > 0);
  assert.ok(lease.valid && lease.remainingMs > 10_000 && lease.remainingMs <= 20_000, `${lease.remainingMs} ms`);
  assert.ok(lease.expiresAt > before + 10_000 && lease.expiresAt <= Date.now() + 20_000);
  assert.equal(lease.signal.aborted, false);
  assert.equal(await lease.verify(), true);

  const status = await leases.status("notes");
  const { token, expiresAt, ...holder } = status.holders[0];
  const me = { holder: leases.holder, own: true, instance: "", mode: "exclusive", info: "test" };
  assert.deepEqual([holder, status.holders.length], [me, 1]);
  assert.ok(token <= lease.token && expiresAt > before && status.lastToken >= lease.token);
  assert.deepEqual([status.key, status.queue, status.position], ["notes", [], null]);

  assert.equal(await lease.release(), "released");
  assert.deepEqual([lease.valid, lease.remainingMs, lease.signal.aborted], [false, 0, false]);
  assert.ok(lease.expiresAt <= Date.now());
  assert.equal(await lease.verify(), false);
  assert.deepEqual((await leases.status("notes")).holders, []);
  const next = await leases.acquire("notes");
  assert.ok(next.token > lease.token);
  await leases.close();
});

test("a hit within the linger looks at the clock twice, and does nothing else that costs", async (t) => {
  const leases = await openManager({ lingerMs: 10_000 });
  const hit = async () => (await leases.acquire("hits")).release();
  await hit();
  await hit();
  const before = leases.stats();
  const looks = t.mock.method(performance, "now");
  const [set, cleared] = ["setTimeout", "clearTimeout"].map((name) => t.mock.method(globalThis, name));
  for (let hits = 0; hits < 10; hits++) await hit();
  assert.deepEqual([looks, set, cleared].map(({ mock }) => mock.callCount()), [20, 0, 0]);
  assert.deepEqual(leases.stats(), { ...before, granted: before.granted + 10, released: before.released + 10 });
  t.mock.restoreAll();
  await leases.close();
});

test("a key that was never leased", async () => {
  const leases = await openManager();
  assert.deepEqual(await leases.status("free"), { key: "free", lastToken: 0, holders: [], queue: [], position: null });
  await leases.close();
});

test("list shows the keys in use that begin alike, in order; stats count", async () => {
  const [leases, other] = [await openManager({}, "listed"), await openManager({}, "listed")];
  for (const key of ["notes/2", "notes/1", "else", "\u{1f512}"]) await leases.acquire(key, { info: key });
  await (await leases.acquire("notes/3")).release();
  const waiting = other.acquire("notes/2", { info: "waiter" });
  await settle();
  const listed = await leases.list("notes/");
  assert.deepEqual(listed.map(({ key, holders, queue }) => [key, holders[0]?.info, queue.length]), [
    ["notes/1", "notes/1", 0],
    ["notes/2", "notes/2", 1],
  ]);
  assert.deepEqual(listed[1], await leases.status("notes/2"));
  assert.equal((await other.list("notes/2"))[0].position, 0);
  assert.deepEqual((await leases.list()).map(({ key }) => key), ["else", "notes/1", "notes/2", "\u{1f512}"]);
  const { transactions, ...stats } = leases.stats();
  assert.deepEqual(stats, { granted: 5, waited: 0, renewed: 0, released: 1, lost: 0 });
  assert.ok(transactions >= 5);
  assert.equal(other.stats().waited, 1);
  const refusedWait = refused(() => waiting, "Closed", "InvalidStateError");
  await Promise.all([leases.close(), other.close(), refusedWait]);
  for (const prefix of [5, null, "a\ud800"]) await refused(() => leases.list(prefix), "InvalidKey", "LeaseError", "the prefix");
  await refused(() => leases.list(), "Closed", "InvalidStateError");
});

test("release is idempotent and starts at the call", async () => {
  const leases = await openManager();
  const lease = await leases.acquire("notes");
  const first = lease.release();
  assert.equal(lease.valid, false);
  assert.deepEqual(await Promise.all([first, lease.release(), lease.release()]), Array(3).fill("released"));
  const next = await leases.acquire("notes");
  assert.equal(await lease.release(), "released");
  assert.equal(await next.verify(), true, "a late release harms nobody");
  await leases.close();
});

test("tryAcquire brings null if the key is taken", async () => {
  const leases = await openManager();
  const lease = await leases.tryAcquire("notes", { info: "first" });
  assert.equal(await leases.tryAcquire("notes"), null);
  await lease.release();
  assert.notEqual(await leases.tryAcquire("notes"), null);
  await leases.close();
});

test("two managers of one name take turns, of two names they do not meet", async () => {
  const [one, other, stranger] = [await openManager({}, "shared"), await openManager({}, "shared"), await openManager()];
  const lease = await one.acquire("notes");
  assert.equal(await other.tryAcquire("notes"), null);
  assert.notEqual(await stranger.tryAcquire("notes"), null);
  const waiting = other.acquire("notes", { info: "waiter" });
  await settle();
  const { holders, queue, position } = await one.status("notes");
  const waiter = { holder: other.holder, own: false, instance: "", mode: "exclusive", info: "waiter", priority: 0 };
  assert.deepEqual([holders.map(({ own }) => own), queue, position], [[true], [waiter], null]);
  assert.equal((await other.status("notes")).position, 0);
  await lease.release();
  assert.ok((await waiting).token > lease.token);
  await Promise.all([one, other, stranger].map((leases) => leases.close()));
});

test("a hundred overlapping turns exclude each other and are first come, first served", async () => {
  const leases = await openManager();
  const turns = [];
  let inside = 0;
  const turn = async (number) => {
    const lease = await leases.acquire("notes");
    assert.equal((inside += 1), 1);
    turns.push([number, lease.token]);
    await Promise.all([lease.verify(), leases.status("notes"), leases.tryAcquire("notes")]);
    inside -= 1;
    await lease.release();
  };
  await Promise.all(Array.from({ length: 100 }, (_, number) => turn(number)));
  assert.deepEqual(turns.map(([number]) => number), [...Array(100).keys()]);
  assert.ok(turns.every(([, token], at) => at === 0 || token > turns[at - 1][1]));
  await leases.close();
});

test("a time-out rejects; 0 tries once; Infinity waits", async () => {
  const leases = await openManager();
  const lease = await leases.acquire("notes");
  await refused(() => leases.acquire("notes", { timeoutMs: 0 }), "Timeout", "TimeoutError");
  const began = performance.now();
  await refused(() => leases.acquire("notes", { timeoutMs: 50.5 }), "Timeout", "TimeoutError", "time-out");
  assert.ok(performance.now() - began >= 50);
  const waiting = leases.acquire("notes", { timeoutMs: Infinity });
  const bounded = leases.acquire("notes", { timeoutMs: 1e300 });
  await lease.release();
  await (await waiting).release();
  await bounded;
  await leases.close();
});

test("an aborted wait rejects with the reason itself, and leaves the queue", async () => {
  const leases = await openManager();
  const lease = await leases.acquire("notes");
  for (const reason of [new Error("why"), "a word", undefined]) {
    const controller = new AbortController();
    const waiting = leases.acquire("notes", { signal: controller.signal, timeoutMs: 60_000 });
    await settle();
    controller.abort(reason);
    await assert.rejects(waiting, (error) => error === controller.signal.reason);
  }
  const waiting = leases.acquire("notes", { timeoutMs: 60_000 });
  assert.deepEqual((await leases.status("notes")).queue, []);
  await lease.release();
  await (await waiting).release();
  await leases.close();
});

test("an aborted signal asks for nothing; one that aborts later does nothing", async () => {
  const leases = await openManager();
  const reason = { not: "even an error" };
  await assert.rejects(leases.acquire("notes", { signal: AbortSignal.abort(reason) }), (error) => error === reason);
  assert.equal((await leases.status("notes")).lastToken, 0);
  const controller = new AbortController();
  const lease = await leases.acquire("notes", { signal: controller.signal });
  controller.abort();
  await settle();
  assert.equal(await lease.verify(), true);
  await leases.close();
});

test("a request whose signal aborts with the time-out error of another request rejects with that error", async () => {
  const leases = await openManager();
  const lease = await leases.acquire("notes");
  const reason = await leases.acquire("notes", { timeoutMs: 0 }).catch((error) => error);
  assert.equal(reason.code, "Timeout");
  const asks = [
    (options) => leases.acquire("notes", options),
    (options) => leases.acquireAll([{ key: "notes" }], options),
    (options) => leases.run("notes", options, assert.fail),
    (options) => leases.elect("notes", { signal: options.signal }, assert.fail),
  ];
  for (const ask of asks) {
    const controller = new AbortController();
    const told = ask({ signal: controller.signal, timeoutMs: 60_000 }).catch((error) => error);
    await settle();
    controller.abort(reason);
    assert.equal(await told, reason, String(ask));
  }
  await lease.release();
  await leases.close();
});

test("of signal and time-out the earlier counts, and nothing listens afterwards", async () => {
  const leases = await openManager();
  const lease = await leases.acquire("notes");
  const listening = new Set();
  const { signal } = new AbortController();
  const [add, remove] = [signal.addEventListener, signal.removeEventListener];
  signal.addEventListener = (type, listener, options) => (listening.add(listener), add.call(signal, type, listener, options));
  signal.removeEventListener = (type, listener) => (listening.delete(listener), remove.call(signal, type, listener));
  await refused(() => leases.acquire("notes", { signal, timeoutMs: 20 }), "Timeout", "TimeoutError");
  await refused(() => leases.acquire("notes", { signal, timeoutMs: 0 }), "Timeout", "TimeoutError");
  assert.equal(listening.size, 0);
  const aborted = leases.acquire("notes", { signal: AbortSignal.timeout(20), timeoutMs: 60_000 });
  await assert.rejects(aborted, (error) => !(error instanceof LeaseError) && error.name === "TimeoutError");
  const waiting = leases.acquire("notes", { signal, timeoutMs: 60_000 });
  await lease.release();
  await waiting;
  assert.equal(listening.size, 0);
  await leases.close();
});

test("an abort at any moment of a grant leaves nothing held", async () => {
  const leases = await openManager();
  for (let steps = 0; steps < 25; steps++) {
    const controller = new AbortController();
    const acquiring = leases.acquire("notes", { signal: controller.signal });
    for (let step = 0; step < steps; step++) await null;
    controller.abort("enough");
    await acquiring.then((lease) => lease.release(), (error) => assert.equal(error, "enough"));
    await settle();
    assert.deepEqual((await leases.status("notes")).holders, [], `after ${steps} steps`);
  }
  await leases.close();
});

test("close loses what is held, refuses what waits and what comes", async () => {
  const leases = await openManager({}, "closing");
  const lease = await leases.acquire("notes");
  const waiting = refused(() => leases.acquire("notes"), "Closed", "InvalidStateError");
  await settle();
  assert.equal(leases.close(), leases.close());
  await waiting;
  await leases.close();
  assert.equal(await lease.lost, "Closed");
  assert.equal(lease.signal.aborted, true);
  const { reason } = lease.signal;
  assert.ok(reason instanceof LeaseError);
  assert.deepEqual(
    [reason.code, reason.name, reason.reason, reason.key, reason.token],
    ["LeaseLost", "LeaseError", "Closed", "notes", lease.token],
  );
  assert.deepEqual([lease.valid, await lease.verify(), await lease.release()], [false, false, "lost"]);
  for (const verb of ["acquire", "tryAcquire", "status"]) {
    await refused(() => leases[verb]("notes"), "Closed", "InvalidStateError", "closed");
  }
  const successor = await openManager({}, "closing");
  assert.notEqual(await successor.tryAcquire("notes"), null, "what a manager held is free when it has closed");
  await successor.close();
});

test("a release that finds the lease gone tells why, whenever that is asked", async () => {
  const options = { leaseMs: 1_000, heartbeatMs: 200, storeTimeoutMs: 200 };
  for (const when of ["before", "meanwhile", "after"]) {
    const [slow, fast] = [await openManager(options, when), await openManager(options, when)];
    const lease = await slow.acquire("notes");
    const before = when === "before" && lease.lost;
    // A page that hangs: it hears of nothing.
    for (const until = Date.now() + 1_200; Date.now() < until; );
    const other = fast.tryAcquire("notes");
    const releasing = lease.release();
    const meanwhile = when === "meanwhile" && lease.lost;
    assert.equal(await releasing, "lost");
    assert.notEqual(await other, null);
    const told = await Promise.race([before || meanwhile || lease.lost, settle()]);
    const signal = [lease.signal.aborted, lease.signal.reason?.reason];
    const { lost } = slow.stats();
    await Promise.all([slow.close(), fast.close()]);
    assert.deepEqual([when, told, signal, lost], [when, "Expired", [true, "Expired"], 1]);
  }
});

test("disposal releases; where the engine has the symbols", async () => {
  const leases = await openManager();
  const one = await leases.acquire("one");
  const two = await leases.acquire("two");
  await one[Symbol.asyncDispose]();
  assert.equal(one[Symbol.dispose] && two[Symbol.dispose](), undefined);
  await settle();
  assert.deepEqual(await leases.list(), []);
  await leases[Symbol.asyncDispose]();
  await refused(() => leases.acquire("one"), "Closed", "InvalidStateError");
});

test("what a lease shows cannot be written", async () => {
  const leases = await openManager();
  const lease = await leases.acquire("notes");
  assert.throws(() => (lease.token = 1), TypeError);
  assert.throws(() => (leases.holder = "me"), TypeError);
  assert.throws(() => new lease.constructor(), /acquire/);
  assert.throws(() => new leases.constructor(), /open/);
  await leases.close();
});

test("collecting what holds a lease releases nothing, and warns once of each", () => {
  // In a process of its own: nobody can give these leases back.
  const collecting = fileURLToPath(new URL("collecting.mjs", import.meta.url));
  const printed = execFileSync(process.execPath, ["--expose-gc", collecting], { encoding: "utf8", timeout: 100_000 });
  const forgotten = ["kept", "lease", "of a group", "running", "shared", "stolen"];
  assert.deepEqual(JSON.parse(printed), {
    collected: ["group", "idle manager", "kept", "lease", "lost", "manager", "of a group", "released", "shared", "stolen"],
    held: [...forgotten, "leading"].sort(),
    warned: forgotten,
    aborted: false,
  });
});

test("a copy of a lease fails: it would be none", async () => {
  const leases = await openManager();
  const [lease, group] = [await leases.acquire("notes"), await leases.acquireAll([{ key: "a" }, { key: "b" }])];
  const { port1, port2 } = new MessageChannel();
  for (const thing of [lease, group, leases]) {
    for (const value of [thing, { thing }, [thing]]) {
      assert.throws(() => structuredClone(value), { name: "DataCloneError" });
      assert.throws(() => port1.postMessage(value), { name: "DataCloneError" });
    }
  }
  for (const port of [port1, port2]) port.close();
  assert.deepEqual(JSON.parse(JSON.stringify(lease)), { key: "notes" });
  // What an object shows of itself, as in a console, is of use.
  assert.deepEqual([Object.keys(lease), Object.keys(leases)], [["key", "release"], ["close"]]);
  assert.ok(await lease.verify());
  await leases.close();
});

test("a lease is lost after maxHoldMs, and if it is not renewed", async () => {
  const leases = await openManager({ leaseMs: 1_000 });
  // A lease alone does not keep Node.js from ending, even if its loss is awaited.
  const keeper = setInterval(() => {}, 60_000);
  const began = performance.now();
  const short = await leases.acquire("notes", { maxHoldMs: 60 });
  assert.equal(await short.lost, "Expired");
  assert.ok(performance.now() - began >= 59);
  const next = await leases.acquire("notes", { autoRenew: false });
  assert.equal(await next.lost, "Expired");
  assert.deepEqual([short.valid, next.valid], [false, false]);
  const done = await leases.tryRun("notes", { maxHoldMs: 20, autoRenew: true }, (lease) => lease.lost);
  assert.deepEqual(done, { ran: true, value: "Expired", lost: "Expired" });
  const refuse = (options, ...words) => refused(() => leases.acquire("notes", options), "InvalidOptions", "LeaseError", ...words);
  for (const odd of [0, -1, NaN, 86_400_001, 1e18]) await refuse({ maxHoldMs: odd }, "maxHoldMs", "more than 0, up to 86400000", `${odd}`);
  await refuse({ maxHoldMs: "1" }, "maxHoldMs", '"1"');
  await refuse({ maxHoldMs: Infinity }, "maxHoldMs", "Infinity");
  await refuse({ autoRenew: 1 }, "autoRenew", "true or false");
  clearInterval(keeper);
  await leases.close();
});

test("open() of a subclass makes a manager of that class", async () => {
  class Notes extends LeaseManager {
    prefix = "notes/";
    #opened = true;

    edit(name) {
      assert.ok(this.#opened);
      return this.acquire(this.prefix + name);
    }
  }
  await openManager().then((leases) => leases.close());
  const notes = await Notes.open("subclass", { store: "memory" });
  assert.ok(notes instanceof Notes && notes instanceof LeaseManager && notes instanceof EventTarget);
  const lease = await notes.edit("today");
  assert.equal(lease.key, "notes/today");
  await notes.close();
  const { open } = LeaseManager;
  const plain = await open("subclass", { store: "memory" });
  assert.equal(plain.constructor, LeaseManager);
  await plain.close();
  class Forgetful extends LeaseManager {
    constructor(internal) {
      super(internal);
    }
  }
  const sentence = /`await LeaseManager\.open\(name\)`; a subclass passes all arguments to super\(\)$/;
  await assert.rejects(Forgetful.open("subclass", { store: "memory" }), { name: "TypeError", message: sentence });
});

/** How a fresh process ends that runs this, and what it printed. */
function ran(script) {
  const source = `import { openManager } from "${new URL("pkg.mjs", import.meta.url)}"; ${script}`;
  const options = { encoding: "utf8", timeout: 60_000 };
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", source], options);
  assert.equal(stderr, "");
  return [status, stdout.trim()];
}

test("a lease that is held does not keep a program from ending; a wait does", () => {
  const held = `const leases = await openManager(); await leases.acquire("k"); console.log("held");`;
  assert.deepEqual(ran(held), [0, "held"]);
  const waits = `${held} await leases.acquire("k", { timeoutMs: 50 }).catch(({ code }) => console.log(code));`;
  assert.deepEqual(ran(waits), [0, "held\nTimeout"]);
  const expires = `const leases = await openManager({ leaseMs: 1_000 }); await leases.acquire("k", { maxHoldMs: 50 });
    await leases.run("k", () => console.log("next"));`;
  assert.deepEqual(ran(expires), [0, "next"]);
});

test("a call whose lease ends meanwhile reports no success", async () => {
  for (const call of ["verify", "extend", "upgrade", "downgrade"]) {
    for (const end of ["steal", "another's steal", "close", "release"]) {
      const [leases, others] = [await openManager({}, `${call} ${end}`), await openManager({}, `${call} ${end}`)];
      const lease = await leases.acquire("k", { mode: call === "downgrade" ? "exclusive" : "shared" });
      const asked = call === "extend" ? lease.extend(1000) : lease[call]();
      const told = asked.then(
        (answer) => lease.valid || answer,
        (error) => error.code,
      );
      const ended = { steal: () => leases.steal("k"), "another's steal": () => others.steal("k"), close: () => leases.close() };
      await (ended[end] ?? (() => lease.release()))();
      const answer = await told;
      assert.ok(answer === true ? lease.valid : answer === (call === "verify" ? false : "LeaseLost"), `${call}, ${end}: ${answer}`);
      await Promise.all([leases.close(), others.close()]);
    }
  }
});
