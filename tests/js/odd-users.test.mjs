// Programs that misuse the package, or replace parts of the platform: signals and consoles that throw, objects in the wrong place, a
// close() in the midst of everything. They run as leases.test.mjs does.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LeaseError, LeaseManager, init, isLeaseError, openManager, refused, settle } from "./pkg.mjs";

const pair = async (name) => [await openManager({ lingerMs: 0 }, name), await openManager({ lingerMs: 0 }, name)];
const never = () => new Promise(() => {});
const fail = () => {
  throw new Error("on purpose");
};

test("a request that close() withdraws rejects before close() resolves", async () => {
  const { signal } = new AbortController();
  const key = "taken";
  const asks = {
    acquire: ({ leases }) => leases.acquire(key),
    acquireWithAll: ({ leases }) => leases.acquire(key, { signal, timeoutMs: 60_000 }),
    acquireAll: ({ leases }) => leases.acquireAll([{ key: "free" }, { key }]),
    acquireAllWithAll: ({ leases }) => leases.acquireAll([{ key: "free" }, { key }], { signal, timeoutMs: 60_000 }),
    run: ({ leases }) => leases.run(key, assert.fail),
    runWithAll: ({ leases }) => leases.run(key, { signal, timeoutMs: 60_000, onLost: "abort" }, assert.fail),
    elect: ({ leases }) => leases.elect(key, { signal }, assert.fail),
    upgrade: ({ shared }) => shared.upgrade(),
    upgradeWithAll: ({ shared }) => shared.upgrade({ signal }),
    workUnderWay: ({ leases }) => leases.run("free", { onLost: "abort" }, never),
    tryUnderWay: ({ leases }) => leases.tryRun("free", { onLost: "abort" }, never),
    lead: ({ leases }) => leases.elect("free", { signal }, ({ signal }) => new Promise((_, stop) => (signal.onabort = stop))),
    lock: ({ leases }) => leases.locks.request(key, assert.fail),
    lockWithAll: ({ leases }) => leases.locks.request(key, { signal }, assert.fail),
    ownFunction: async ({ leases }) => await leases.acquire(key),
    manyFunctions: ({ leases }) => Array(1_000).fill(async (asked) => await asked).reduce((asked, pass) => pass(asked), leases.acquire(key)),
  };
  for (const [name, ask] of Object.entries(asks)) {
    const [leases, other] = await pair(`closed ${name}`);
    const held = await other.acquire(key, { mode: name.startsWith("upgrade") ? "shared" : "exclusive" });
    const shared = name.startsWith("upgrade") && (await leases.acquire(key, { mode: "shared" }));
    if (name.startsWith("lock")) other.locks.request(key, never).catch(() => {});
    await settle();
    let heard;
    ask({ leases, shared }).catch((error) => (heard = error));
    await settle();
    await leases.close();
    assert.ok(["Closed", "LeaseLost"].includes(heard?.code), `${name}: ${heard ?? "nothing was heard"}`);
    await held.release();
    await other.close();
  }
});

test("a console that throws breaks no call, and a debug() that throws hides no warning", async (t) => {
  t.after(() => t.mock.restoreAll());
  const reported = t.mock.fn();
  process.on("uncaughtException", reported);
  const unheard = async (warn, debug) => {
    t.mock.method(console, "warn", warn);
    t.mock.method(console, "debug", debug);
    const leases = await openManager({ debug: true });
    const heard = [];
    leases.addEventListener("Lost", () => {});
    leases.addEventListener("released", ({ key }) => heard.push(key));
    const held = await leases.acquire("notes");
    await refused(() => leases.acquire("notes", { timeoutMs: 10 }), "Timeout", "TimeoutError");
    await held.release();
    await settle();
    assert.deepEqual(heard, ["notes"]);
    await leases.close();
    t.mock.restoreAll();
  };
  const warned = [];
  await unheard((sentence) => warned.push(sentence), fail);
  assert.match(warned.join("\n"), /no event Lost.*\n.*waits for ever/s);
  const errors = t.mock.method(console, "error", () => {});
  await unheard(fail, () => {});
  const said = errors.mock.calls.map(({ arguments: [sentence] }) => sentence);
  assert.match(said.join("\n"), /no event Lost.*\n.*waits for ever/s);
  await unheard(fail, fail);
  await settle();
  process.off("uncaughtException", reported);
  assert.equal(reported.mock.callCount(), 0);
});

test("cloning a lock fails, as cloning one of the browser's own does", async () => {
  const leases = await openManager();
  await leases.locks.request("notes", (lock) => {
    assert.throws(() => structuredClone(lock), { name: "DataCloneError" });
    assert.throws(() => structuredClone([lock]), { name: "DataCloneError" });
    assert.deepEqual(JSON.parse(JSON.stringify(lock)), { name: "notes", mode: "exclusive" });
    assert.equal(`${lock}`, "[object Lock]");
  });
  await leases.close();
});

/** A signal as a library may imitate it, with some parts of its own. */
function imitation(parts) {
  const controller = new AbortController();
  const { signal } = controller;
  const rest = {
    addEventListener: (...args) => signal.addEventListener(...args),
    removeEventListener: (...args) => signal.removeEventListener(...args),
  };
  const imitated = Object.defineProperties({}, {
    aborted: { get: () => signal.aborted },
    reason: { get: () => signal.reason },
    ...Object.getOwnPropertyDescriptors({ ...rest, [Symbol.toStringTag]: "AbortSignal" }),
    ...Object.getOwnPropertyDescriptors(parts),
  });
  return [imitated, controller];
}

const waits = {
  acquire: (leases, signal) => leases.acquire("notes", { signal }),
  acquireAll: (leases, signal) => leases.acquireAll([{ key: "notes" }], { signal }),
  run: (leases, signal) => leases.run("notes", { signal }, () => "done"),
  elect: (leases, signal) => leases.elect("notes", { signal }, () => "done"),
  lock: (leases, signal) => leases.locks.request("notes", { signal }, () => "done"),
};

test("a signal whose removeEventListener() throws fails no call, and nothing stays held", async () => {
  for (const [name, ask] of Object.entries(waits)) {
    const [leases, other] = await pair(`left by ${name}`);
    const [signal] = imitation({ removeEventListener: fail });
    const got = await ask(leases, signal);
    await (got === "done" || got.release());
    assert.ok(await other.tryAcquire("notes").then((lease) => lease?.release()), `${name}: nobody holds it`);
    // The second signal aborts while the request waits.
    const held = name === "lock" ? other.locks.request("notes", never).catch(() => {}) : await other.acquire("notes");
    await settle();
    const [second, controller] = imitation({ removeEventListener: fail });
    const waiting = ask(leases, second);
    waiting.catch(() => {});
    await settle();
    controller.abort(new Error("stopped"));
    await assert.rejects(waiting, { message: "stopped" }, name);
    await leases.close();
    await held.release?.();
    await other.close();
  }
  const leases = await openManager();
  const shared = await leases.acquire("notes", { mode: "shared" });
  await shared.upgrade({ signal: imitation({ removeEventListener: fail })[0] });
  assert.equal(shared.mode, "exclusive");
  await leases.close();
});

test("a signal that throws when it is listened to is refused by name, and nothing stays held", async () => {
  for (const [name, ask] of Object.entries(waits)) {
    const [leases, other] = await pair(`heard by ${name}`);
    let asked = 0;
    const later = imitation({ get aborted() { return (asked += 1) > 2 ? fail() : false; } })[0];
    for (const signal of [imitation({ addEventListener: fail })[0], later]) {
      // A lease that came is as good as a refusal. Only a lease that nobody knows of would be wrong.
      const got = await ask(leases, signal).catch((error) => error);
      if (got instanceof Error && name !== "lock") assert.ok(isLeaseError(got) && got.message.includes("signal"), `${name}: ${got}`);
      else await got.release?.();
      await settle();
      assert.deepEqual((await other.status("notes")).holders, [], name);
      assert.deepEqual((await other.locks.query()).held, [], name);
    }
    await Promise.all([leases.close(), other.close()]);
  }
});

test("an event that a script fires at a signal aborts nothing", async () => {
  const [leases, other] = await pair("fired");
  const { signal } = new AbortController();
  const held = await other.acquire("notes");
  const asks = Object.entries(waits).filter(([name]) => name !== "lock").map(([, ask]) => ask(leases, signal));
  await settle();
  signal.dispatchEvent(new Event("abort"));
  await held.release();
  for (const asked of asks) await (await asked).release?.();
  const work = async (lease) => {
    lease.signal.dispatchEvent(new Event("abort"));
    await settle();
    return "done";
  };
  assert.equal(await leases.run("notes", { onLost: "abort" }, work), "done");
  await Promise.all([leases.close(), other.close()]);
});

test("a wrong value in the place of the options is refused with the remedy", async () => {
  const leases = await openManager();
  const shared = await leases.acquire("shared", { mode: "shared" });
  const { signal } = new AbortController();
  const refuse = (call, ...words) => refused(call, "InvalidOptions", "LeaseError", ...words);
  for (const call of [() => leases.acquire("k", signal), () => leases.run("k", signal, () => {}), () => shared.upgrade(signal)]) {
    await refuse(call, "an object such as", "{ signal }", "[object AbortSignal]");
  }
  await refuse(() => LeaseManager.open("k", "memory"), 'an object such as { store }; it is "memory"');
  await refuse(() => init(""), 'a URL, bytes or a WebAssembly.Module; it is ""');
  for (const odd of [new Map(), new Date(), Promise.resolve()]) await refuse(() => leases.acquire("k", odd), "an object such as");
  await refuse(() => leases.run("k", Promise.resolve()), "an object such as", "[object Promise]");
  await refuse(() => leases.acquireAll(["a", "b"]), "keys[0]", "{ key, mode }", '"a"');
  await refuse(() => leases.acquireAll(new Set(["a"])), "{ key, mode }", "[object Set]");
  await refuse(() => init(null), "null", "a URL");
  // The options may be an instance of a class, or have no prototype.
  class Wish { get timeoutMs() { return 0; } }
  for (const wish of [new Wish(), Object.create(null), Object.freeze({ timeoutMs: 0 })]) {
    await (await leases.acquire("k", wish)).release();
  }
  assert.equal((await leases.status("k")).holders.length, 0);
  await leases.close();
});

test("a property that is read on a proxy, or on an object that inherits it, says what to do", async () => {
  const leases = await openManager();
  const lease = await leases.acquire("k");
  const group = await leases.acquireAll([{ key: "a" }]);
  const told = (name) => (error) => error instanceof LeaseError && error.code === "InvalidOptions" && error.message.includes(name);
  for (const self of [new Proxy(leases, {}), Object.create(leases)]) {
    for (const name of ["holder", "locks"]) assert.throws(() => self[name], told(`leases.${name}`));
  }
  assert.throws(() => leases.addEventListener.call(new Proxy(leases, {}), "lost", () => {}), told("leases.addEventListener"));
  for (const name of ["token", "mode", "lost", "signal", "changedHands", "remainingMs", "valid", "expiresAt"]) {
    assert.throws(() => new Proxy(lease, {})[name], told(`lease.${name} `));
  }
  assert.throws(() => lease.clearChanged.call(undefined), told("lease.clearChanged"));
  for (const self of [new Proxy(group, {}), Object.create(group)]) {
    for (const name of ["lost", "signal"]) assert.throws(() => self[name], told(`group.${name}`));
  }
  for (const name of ["release", "verify"]) {
    const { [name]: method } = group;
    await assert.rejects(method(), told(`group.${name}`));
  }
  await leases.close();
});

test("isLeaseError() takes any value", () => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  for (const odd of [proxy, new Proxy({}, { has: fail }), undefined, null, 5, () => {}]) assert.equal(isLeaseError(odd), false);
});

test("locks say by a TypeError which value does not fit", async () => {
  const { locks } = await openManager();
  const refuse = (words, ...args) => assert.rejects(locks.request(...args), { name: "TypeError", message: words });
  await refuse(/request\(name, callback\).*; arguments: 1$/, "a");
  await refuse(/last argument, the callback, must be a function; it is 5/, "a", 5);
  await refuse(/the callback, must be a function; it is \[object Object\]/, "a", () => {}, {});
  await refuse(/options must be an object.*; it is 5/, "a", 5, () => {});
  await refuse(/mode must be "exclusive" or "shared"; it is "read"/, "a", { mode: "read" }, () => {});
  await refuse(/signal must be an AbortSignal; it is null/, "a", { signal: null }, () => {});
  await refuse(/signal must be an AbortSignal; it is \[object AbortController\]/, "a", { signal: new AbortController() }, () => {});
});

test("work that is given to acquire(), as navigator.locks takes it, is told where it goes", async () => {
  const leases = await openManager();
  const words = /^what holds the options must be an object such as { \w+ }; it is async \(\) => {}; only `run`, `tryRun` and `elect` take work$/;
  const work = async () => {};
  for (const ask of [() => leases.acquire("notes", work), () => leases.tryAcquire("notes", work), () => leases.acquireAll([{ key: "notes" }], work)]) {
    await assert.rejects(ask(), { code: "InvalidOptions", message: words });
  }
  await leases.close();
});

test("where a library replaced Promise, as zone.js does, no request is answered before its lease is granted", async (t) => {
  const { Promise: own } = globalThis;
  t.after(() => (globalThis.Promise = own));
  // No promise of an async function is an instance of this class.
  globalThis.Promise = class extends own {};
  const { signal } = new AbortController();
  const early = [];
  for (const [name, ask] of Object.entries(waits)) {
    const [leases, other] = await pair(`replaced ${name}`);
    const holding = name === "lock" ? other.locks.request("notes", never) : other.acquire("notes");
    await settle();
    const asked = ask(leases, signal).then((got) => (isHeld ? early.push(name) : got), (error) => early.push(`${name}: ${error}`));
    let isHeld = true;
    await settle();
    isHeld = false;
    holding.catch(() => {});
    await other.close();
    const got = await asked;
    if (got.release) assert.deepEqual([got.valid, await got.release()], [true, "released"], name);
    await leases.close();
  }
  assert.deepEqual(early, []);
});
