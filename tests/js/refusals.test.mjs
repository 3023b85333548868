// What callers may get wrong: each is a rejection with the value in its words. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { LeaseManager, bytes, createStore, init, isLeaseError, openManager, refused } from "./pkg.mjs";

const LEASE_ERROR = "LeaseError";

test("keys", async () => {
  const leases = await openManager();
  for (const verb of ["acquire", "tryAcquire", "status"]) {
    const refuse = (key, ...words) => refused(() => leases[verb](key), "InvalidKey", LEASE_ERROR, ...words);
    await refuse("", "empty");
    await refuse("k".repeat(1025), "1025", "1024");
    await refuse("\u{1f512}".repeat(513), "1026");
    await refuse("a\ud800b", "surrogate", "1");
    await refuse("\udc00", "surrogate", "0");
    await refuse(5, "5", "string");
    await refuse(undefined, "undefined");
    await refuse({}, "[object Object]");
    await refuse(Symbol("s"), "Symbol(s)");
  }
  for (const key of ["\u{1f512}".repeat(512), "\ufffd", "\0", "__proto__", '"'.repeat(1024)]) {
    const lease = await leases.acquire(key);
    assert.deepEqual([lease.key, (await leases.status(key)).key], [key, key]);
  }
  await leases.close();
});

test("times", async () => {
  const refuse = (options, ...words) => refused(() => openManager(options), "InvalidOptions", LEASE_ERROR, ...words);
  await refuse({ leaseMs: 0 }, "0 ms");
  await refuse({ leaseMs: 999 }, "999", "1000");
  await refuse({ leaseMs: 1e15 }, "1000000000000000");
  await refuse({ leaseMs: -5 }, "leaseMs", "-5");
  await refuse({ leaseMs: NaN }, "NaN");
  await refuse({ leaseMs: Infinity }, "Infinity");
  await refuse({ leaseMs: "20000" }, '"20000"');
  await refuse({ leaseMs: null }, "null");
  await refuse({ leaseMs: 20n }, "20");
  await refuse({ heartbeatMs: 10 }, "10 ms", "leave it out");
  await refuse({ storeTimeoutMs: 0 }, "0 ms", "leave it out");
  await refuse({ leaseMs: 20_000, heartbeatMs: 15_000 }, "20000", "15000");
  const leases = await openManager({ leaseMs: 1_000, heartbeatMs: undefined });
  await leases.close();
});

test("other options", async () => {
  const open = (options, ...words) => refused(() => openManager(options), "InvalidOptions", LEASE_ERROR, ...words);
  await refused(() => LeaseManager.open("array", []), "InvalidOptions", LEASE_ERROR, "an object");
  await open({ lease: 5 }, "`lease`", "did you mean `leaseMs`?");
  await open({ hearbeatMS: 5 }, "did you mean `heartbeatMs`?");
  await open({ storage: "memory" }, "did you mean `store`?");
  await open({ toString: 1 }, "`toString`", "there are leaseMs, heartbeatMs, storeTimeoutMs, lingerMs, beacon, instance, debug, store");
  await open({ timeoutMs: 5 }, "`timeoutMs`", "an option of `leases.acquire()`");
  await open({ beacon: 1 }, "beacon", "true or false");
  await open({ store: "disk" }, '"indexeddb" or "memory"', '"disk"');
  const leases = await openManager();
  const acquire = (options, ...words) =>
    refused(() => leases.acquire("notes", options), "InvalidOptions", LEASE_ERROR, ...words);
  await acquire({ timeout: 5 }, "did you mean `timeoutMs`?");
  for (const name of ["leaseMs", "heartbeatMs", "store"]) await acquire({ [name]: 5 }, `\`${name}\``, "an option of `LeaseManager.open()`");
  await acquire({ timeoutMs: -1 }, "-1");
  await acquire({ timeoutMs: NaN }, "timeoutMs must be a number of milliseconds, 0 or more, or Infinity; it is NaN");
  await acquire({ timeoutMs: "5" }, '"5"');
  await acquire({ timeoutMs: 5n }, "it is 5n");
  await acquire([1, 2], "an array of length 2");
  await acquire({ signal: {} }, "signal", "AbortSignal");
  await acquire({ signal: new AbortController() }, "[object AbortController]");
  await acquire({ signal: { aborted: false, addEventListener() {} } }, "signal", "AbortSignal");
  await acquire({ info: 5 }, "info", "string");
  await acquire({ info: "half \ud800" }, "info", "well-formed", '"half \\ud800"');
  await acquire(5, "5");
  await acquire(null, "null");
  await refused(() => leases.tryAcquire("notes", { timeoutMs: 5 }), "InvalidOptions", LEASE_ERROR, "`timeoutMs`", "`acquire`");
  assert.equal((await leases.status("notes")).lastToken, 0);
  await leases.close();
});

/** Throws whatever is done with it. */
const hostile = new Proxy(
  {},
  new Proxy({}, { get: () => () => { throw new Error("on purpose"); } }),
);
const getter = (name) => Object.defineProperty({}, name, { enumerable: true, get() { throw new Error("on purpose"); } });

test("nothing that is passed in makes a call throw, and every rejection has a code", async () => {
  const leases = await openManager();
  const [lease, group] = [await leases.acquire("held"), await leases.acquireAll([{ key: "group" }])];
  const work = () => {};
  const odd = [undefined, null, 5, 5n, "", Symbol("s"), true, NaN, [], {}, work, new Date(), Object.create(null), hostile];
  odd.push(new Proxy(work, {}), getter("timeoutMs"), getter("key"), getter("backendDB"), getter("parent"), getter(Symbol.toStringTag));
  odd.push(getter("then"), getter("aborted"), { signal: hostile }, { signal: getter("aborted") }, { timeoutMs: hostile }, [hostile], [getter("key")]);
  odd.push({ signal: new Proxy(new AbortController().signal, {}) });
  const calls = {
    open: (...args) => LeaseManager.open(...args),
    attach: (...args) => LeaseManager.attach(...args),
    delete: (...args) => LeaseManager.delete(...args),
    init: (...args) => init(...args),
  };
  const verbs = ["acquire", "tryAcquire", "steal", "acquireAll", "run", "tryRun", "elect", "leader", "status", "list"];
  for (const verb of verbs) calls[verb] = (...args) => leases[verb](...args);
  for (const verb of ["extend", "upgrade", "fence"]) calls[verb] = (...args) => lease[verb](...args);
  let refusals = 0;
  const call = async (name, ...args) => {
    // A synchronous throw ends the test.
    const promise = calls[name](...args);
    assert.ok(promise instanceof Promise, name);
    try {
      const got = await Promise.race([promise, new Promise((resolve) => setTimeout(resolve, 60_000, "hangs").unref())]);
      assert.notEqual(got, "hangs", name);
      await got?.release?.();
      await got?.close?.();
    } catch (error) {
      refusals += 1;
      assert.ok(isLeaseError(error) && error.code !== "Internal", `${name}: ${error?.stack ?? String(error)}`);
    }
  };
  for (const name of Object.keys(calls)) {
    await call(name);
    for (const value of odd) {
      await call(name, value);
      await call(name, "free", value);
      await call(name, "free", value, work);
      await call(name, [{ key: "free" }], value);
      await call(name, value, value, value);
    }
  }
  assert.ok(refusals > 1_000, `${refusals} refusals`);
  assert.deepEqual([await lease.verify(), await group.verify()], [true, true]);
  await refused(() => leases.acquire("k", hostile), "InvalidOptions", LEASE_ERROR, "options", "on purpose");
  await refused(() => leases.acquire("k", getter("info")), "InvalidOptions", LEASE_ERROR, "on purpose");
  await leases.close();
});

test("the options of requests", async () => {
  const leases = await openManager();
  const refuse = (verb, options, ...words) => refused(() => leases[verb]("k", options), "InvalidOptions", LEASE_ERROR, ...words);
  await refuse("acquire", { mode: "read" }, "mode", '"exclusive" or "shared"', '"read"');
  await refuse("acquire", { modus: "shared" }, "did you mean `mode`?");
  for (const verb of ["acquire", "tryAcquire"]) await refuse(verb, { shared: true }, '`shared`; use `mode: "shared"`');
  await refuse("elect", { shared: true }, "`shared`; there are signal, priority, info");
  await refuse("acquire", { share: "yes" }, "share", "true or false");
  for (const priority of [1.5, NaN, Infinity, 2 ** 31, "1", 1n]) await refuse("acquire", { priority }, "priority", "whole number", `${priority}`);
  await refuse("tryAcquire", { priority: 1 }, "`priority`", "mode, share, info");
  await refuse("tryAcquire", { timeoutMs: 5 }, "`timeoutMs`", "use `acquire` or `run`, which wait");
  const shared = await leases.acquire("upgrade", { mode: "shared" });
  await refused(() => shared.upgrade({ timeoutMs: 5 }), "InvalidOptions", LEASE_ERROR, "use `signal: AbortSignal.timeout(ms)`");
  await shared.release();
  const { stack } = await leases.acquire("").catch((error) => error);
  assert.match(stack, /the key is empty.*\n +at /, "an error has a stack, as each of the platform's");
  await refuse("steal", { mode: "shared" }, "`mode`", "info");
  await refuse("acquire", { onLost: "abort" }, "`onLost`");
  for (const instance of ["", 5, "a\ud800"]) await refused(() => openManager({ instance }), "InvalidOptions", LEASE_ERROR, "instance");
  await refused(() => openManager({ debug: 1 }), "InvalidOptions", LEASE_ERROR, "debug", "true or false");
  await refused(() => openManager({ verbose: true }), "InvalidOptions", LEASE_ERROR, "`verbose`");
  const lease = await leases.acquire("k");
  await refused(() => lease.upgrade({ timeoutMs: 5 }), "InvalidOptions", LEASE_ERROR, "`timeoutMs`", "signal");
  await refused(() => lease.fence({}, { renews: true }), "InvalidOptions", LEASE_ERROR);
  await leases.close();
});

test("a long value is shown by its beginning", async () => {
  const leases = await openManager();
  const long = "k".repeat(100_000);
  for (const call of [() => leases.acquireAll([{ key: long }]), () => leases.acquire("notes", { mode: long })]) {
    await assert.rejects(call, ({ message }) => message.includes(`"${"k".repeat(50)}`) && message.includes('k…"') && message.length < 300);
  }
  // The cut is in the middle of a letter.
  await assert.rejects(leases.acquire("notes", { mode: `${"k".repeat(98)}😀` }), ({ message }) => /^\P{Cs}*…"$/u.test(message));
  // A function is shown by its source.
  for (const odd of [AbortSignal, Symbol(long), Object.assign(() => {}, { toString: () => long })]) {
    await assert.rejects(leases.acquire("notes", { signal: odd }), ({ message }) => message.includes("…") && message.length < 300);
  }
  await leases.close();
});

test("names of stores", async () => {
  for (const name of ["", undefined, 5, null, "a\ud800"]) {
    await refused(() => LeaseManager.open(name, { store: "memory" }), "InvalidOptions", LEASE_ERROR, "the name");
    await refused(() => LeaseManager.delete(name), "InvalidOptions", LEASE_ERROR, "the name");
  }
});

test("what cannot be attached to or fenced", async (t) => {
  const unheard = t.mock.fn();
  process.on("unhandledRejection", unheard);
  const leases = await openManager();
  const lease = await leases.acquire("k");
  for (const odd of [undefined, null, 5, "db", {}, new EventTarget(), { idbtrans: null }, { backendDB: () => ({}) }]) {
    const refuse = (call, ...words) => refused(call, "InvalidOptions", LEASE_ERROR, ...words);
    await refuse(() => LeaseManager.attach(odd), "IDBDatabase", "idb", "Dexie");
    await refuse(() => lease.fence(odd), "IDBTransaction", "idb", "Dexie");
    // Need not be awaited.
    lease.fence(odd);
    assert.throws(() => createStore(odd), { code: "InvalidOptions" });
  }
  const [own, one] = [{}, { parent: {} }];
  own.parent = own;
  one.parent.parent = one;
  for (const circle of [own, one]) await refused(() => lease.fence(circle), "InvalidOptions", LEASE_ERROR, "IDBTransaction");
  // What is no transaction is none of ours to abort.
  const controller = new AbortController();
  lease.fence(controller);
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(controller.signal.aborted, false);
  assert.equal(unheard.mock.callCount(), 0);
  process.off("unhandledRejection", unheard);
  await leases.close();
});

test("a Dexie database that is not open yet is told to be opened", async () => {
  for (const closed of [{ backendDB: () => null }, { backendDB: () => undefined }]) {
    await refused(() => LeaseManager.attach(closed), "InvalidOptions", LEASE_ERROR, "await db.open()");
  }
});

test("what other locks do by an option is done by a method", async () => {
  const leases = await openManager();
  const refuse = (options, word) => refused(() => leases.acquire("k", options), "InvalidOptions", LEASE_ERROR, word);
  await refuse({ steal: true }, "`steal`; use `steal(key)`");
  await refuse({ ifAvailable: true }, "`ifAvailable`; use `tryAcquire(key)`");
  await refuse({ onLost: "abort" }, "`onLost`; it is an option of `run()`");
  for (const verb of ["run", "tryRun", "elect"]) {
    const swapped = () => leases[verb]("k", () => {}, { info: "why" });
    await refused(swapped, "InvalidOptions", LEASE_ERROR, "the work comes last", `${verb}(key, options, work)`);
  }
  await leases.close();
});

test("a method that was taken off its object says so, as a rejection", async () => {
  const leases = await openManager();
  const lease = await leases.acquire("k");
  const verbs = ["acquire", "tryAcquire", "steal", "acquireAll", "run", "tryRun", "elect", "leader", "status", "list", "close"];
  const told = (object, name, self) =>
    refused(() => object[name].call(self, "k", () => {}), "InvalidOptions", LEASE_ERROR, `${name}()`, `.${name}(…)`);
  for (const self of [undefined, {}, new Proxy(leases, {})]) {
    for (const verb of verbs) await told(leases, verb, self);
    for (const verb of ["verify", "extend", "upgrade", "downgrade", "release", "fence"]) await told(lease, verb, self);
  }
  assert.throws(() => leases.stats.call(undefined), { code: "InvalidOptions", message: /stats\(\)/ });
  // Locks fail as the browser's do: by a TypeError.
  for (const verb of ["request", "query"]) {
    const { [verb]: method } = leases.locks;
    await assert.rejects(method("k", () => {}), { name: "TypeError", message: new RegExp(`call locks.${verb}`) });
  }
  assert.ok(await lease.verify());
  await leases.close();
});

test("a time-out names the key, the time and who held it", async () => {
  const [one, two] = [await openManager({}, "late"), await openManager({}, "late")];
  await one.acquire("notes", { info: "tab 1" });
  for (const verb of ["acquire", "run", "acquireAll"]) {
    for (const [timeoutMs, words] of [[20, "was not granted within the time-out of 20 ms"], [0, "is taken"]]) {
      const options = { timeoutMs };
      const late = (leases) => {
        const asked = verb === "acquireAll" ? [[{ key: "notes" }, { key: "other" }], options] : ["notes", options, () => {}];
        return leases[verb](...asked).then(assert.fail, (error) => error);
      };
      const error = await late(two);
      assert.deepEqual([error.code, error.name], ["Timeout", "TimeoutError"]);
      // Timers of Node.js may come up to 1 ms early.
      assert.ok(error.waitedMs > timeoutMs - 1 && error.waitedMs < 60_000, `${error.waitedMs}`);
      assert.ok(error.message.includes(words), error.message);
      assert.deepEqual([error.key, error.holder.own, error.holder.info, error.holder.holder], ["notes", false, "tab 1", one.holder]);
      assert.ok(error.message.includes(`"notes" ${words}: "tab 1" ${one.holder} holds it`), error.message);
      const own = await late(one);
      assert.equal(own.holder.own, true);
      const remedy = verb === "acquireAll" ? /itself holds it; release the lease first/ : /itself holds it.*share: true/;
      assert.match(own.message, remedy);
    }
  }
  // Who merely tries is not held up by a look at the holder.
  const { transactions } = two.stats();
  assert.deepEqual([await two.tryAcquire("notes"), (await two.tryRun("notes", assert.fail)).ran], [null, false]);
  const tries = two.stats().transactions - transactions;
  assert.ok(tries <= 4, `${tries} transactions`);
  await Promise.all([one.close(), two.close()]);
});

test("a time-out names the own manager if it is one of those who share the key", async () => {
  const [one, two] = [await openManager({}, "shared with others"), await openManager({}, "shared with others")];
  await one.acquire("notes", { mode: "shared" });
  await two.acquire("notes", { mode: "shared" });
  for (const leases of [one, two]) {
    const error = await leases.acquire("notes", { timeoutMs: 20 }).then(assert.fail, (error) => error);
    assert.ok(error.holder.own && error.message.includes("this manager itself holds it"), error.message);
  }
  await Promise.all([one.close(), two.close()]);
});

test("no IndexedDB, and never memory in its place", async () => {
  await init(bytes);
  await refused(() => LeaseManager.open("app"), "Unsupported", "NotSupportedError", "IndexedDB", '{ store: "memory" }');
  // It has no such option: the sentence says what has.
  await refused(() => LeaseManager.delete("app"), "Unsupported", "NotSupportedError", "IndexedDB", "LeaseManager.open(name, {");
});

test("init chooses once", async () => {
  const first = init(bytes);
  assert.equal(first, init(new Uint8Array(bytes)));
  assert.equal(first, init());
  assert.equal(await first, undefined);
  const conflict = (source, ...words) =>
    refused(() => init(source), "InitConflict", "InvalidStateError", "init", `${bytes.length}`, ...words);
  await conflict(new Uint8Array([0, 97, 115, 109]), "4 bytes");
  await conflict("https://example.org/other.wasm", "https://example.org/other.wasm");
  await conflict(new WebAssembly.Module(bytes), "Module");
  for (const source of [5, {}]) await refused(() => init(source), "InvalidOptions", LEASE_ERROR, "init()");
});

/** What a fresh process prints that runs this module. */
function run(script, before = "", entry = "index") {
  const index = new URL(`../../pkg/${entry}.mjs`, import.meta.url);
  const source = `${before} const { init, LeaseManager } = await import("${index}"); ${script}`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", source], { encoding: "utf8" });
  assert.equal(stderr, "");
  return stdout.trim();
}

test("wasm that does not load is told, and another try is free", () => {
  const wasm = JSON.stringify(new URL("../../pkg/leasehold_bg.wasm", import.meta.url));
  const script = `
    const tell = (error) => console.log(error.code, error.message);
    await init(new Uint8Array(8)).catch(tell);
    await init("http://127.0.0.1:1/node_modules/.vite/deps/leasehold_bg.wasm").catch(tell);
    // As in Nuxt.
    await init("http://127.0.0.1:1/_nuxt/@fs/node_modules/.cache/vite/client/deps/leasehold_bg.wasm").catch(tell);
    await LeaseManager.open("app", { store: "memory" }).catch(tell);
    const module = new WebAssembly.Module((await import("node:fs")).readFileSync(new URL(${wasm})));
    await init(module);
    console.log(init(module) === init());
    await (await LeaseManager.open("app", { store: "memory" })).close();`;
  const [broken, moved, elsewhere, absent, same, ...rest] = run(script).split("\n");
  for (const told of [moved, elsewhere]) assert.match(told, /^InitFailed .*Vite's optimizeDeps: \{ exclude: \["leasehold"\] \}/);
  assert.match(broken, /^InitFailed .*8 bytes.*'wasm-unsafe-eval'/);
  assert.match(absent, /^InitFailed .*leasehold_bg\.wasm/);
  assert.deepEqual([same, rest], ["true", []]);
});

test("the wasm of another program or build is refused, and another try is free", () => {
  const wasm = JSON.stringify(new URL("../../pkg/leasehold_bg.wasm", import.meta.url));
  const script = `
    const tell = ({ code, message }) => console.log(code, message);
    await init(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])).catch(tell);
    const bytes = (await import("node:fs")).readFileSync(new URL(${wasm}));
    const { name } = WebAssembly.Module.exports(new WebAssembly.Module(bytes)).find(({ kind }) => kind === "memory");
    // In another build, only the memory has another name.
    const other = Buffer.from(bytes);
    other.write("_" + "x".repeat(name.length - 1), other.indexOf(name));
    await init(other).catch(tell);
    await init(bytes);
    await (await LeaseManager.open("app", { store: "memory" })).close();
    console.log("loaded");`;
  const [empty, other, ...rest] = run(script).split("\n");
  assert.match(empty, /^InitFailed .* 8 bytes: Error: another build; reload a page older than the wasm, or serve this version's leasehold_bg\.wasm/);
  assert.match(other, /^InitFailed .* bytes: Error: another build; reload a page older than the wasm, or serve this version's leasehold_bg\.wasm/);
  assert.deepEqual(rest, ["loaded"]);
});

test("a server that never answers fails open() at last, and another try is free", () => {
  const wasm = JSON.stringify(new URL("../../pkg/leasehold_bg.wasm", import.meta.url));
  // Where nothing more comes, two minutes pass in 0.1 s.
  const before = `
    const limits = [];
    let answers = "nothing";
    const { timeout } = AbortSignal;
    AbortSignal.timeout = (ms) => limits.push(ms) && timeout.call(AbortSignal, answers === "all" ? ms : 100);`;
  const script = `
    const tell = ({ code, message }) => console.log(code, message);
    const bytes = (await import("node:fs")).readFileSync(new URL(${wasm}));
    const server = (await import("node:http")).createServer((_, response) => {
      if (answers === "nothing") return;
      response.setHeader("Content-Type", "application/wasm");
      if (answers === "all") response.end(bytes);
      else response.write(bytes.subarray(0, 1000));
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const url = "http://127.0.0.1:" + server.address().port + "/leasehold_bg.wasm";
    await init(url).catch(tell);
    answers = "the beginning";
    await init(url).catch(tell);
    answers = "all";
    await (await LeaseManager.open("app", { store: "memory" })).close();
    console.log(limits.join(" "));
    server.closeAllConnections();
    server.close();`;
  const [silent, slow, limits, ...rest] = run(script, before).split("\n");
  assert.match(silent, /^InitFailed .*leasehold_bg\.wasm: TimeoutError: .*; serve leasehold_bg\.wasm there, or call init\(\) with another source/);
  assert.match(slow, /^InitFailed .*leasehold_bg\.wasm: TimeoutError: /);
  assert.deepEqual([limits, rest], ["120000 120000 120000", []]);
});

test("a fetch that a browser may have refused names what must allow it", () => {
  const script = `
    const tell = ({ code, message }) => console.log(code, message);
    await init("http://127.0.0.1:1/leasehold_bg.wasm").catch(tell);
    globalThis.fetch = async () => new Response("", { status: 404 });
    await init("http://127.0.0.1:1/leasehold_bg.wasm").catch(tell);`;
  const [refused, absent] = run(script).split("\n");
  assert.match(refused, /^InitFailed .*: TypeError: .*; serve .*; allow it in the Content-Security-Policy's connect-src, and by CORS$/);
  assert.match(absent, /^InitFailed .*: Error: HTTP status 404; serve .*"leasehold\/inline"$/);
});

test("an address that is none leaves another try free", () => {
  const wasm = JSON.stringify(new URL("../../pkg/leasehold_bg.wasm", import.meta.url));
  const script = `
    await init("file://[").catch(({ code }) => console.log(code));
    await init(${wasm}).then(() => console.log("loaded"), ({ code }) => console.log(code));`;
  assert.equal(run(script, "", "node"), "InitFailed\nloaded");
});

test("what init() takes may be of another realm, as in a simulated browser", () => {
  const wasm = JSON.stringify(new URL("../../pkg/leasehold_bg.wasm", import.meta.url));
  const script = `
    const bytes = (await import("node:fs")).readFileSync(new URL(${wasm}));
    const buffer = (await import("node:vm")).runInNewContext("(length) => new ArrayBuffer(length)")(bytes.length);
    new Uint8Array(buffer).set(bytes);
    const there = new URL("file:///nowhere/leasehold_bg.wasm");
    globalThis.URL = class extends URL {};
    await init(there).catch(({ code, message }) => console.log(code, message.includes("nowhere")));
    await init(buffer);
    console.log("loaded");`;
  assert.equal(run(script, "", "node"), "InitFailed true\nloaded");
});

test("where WebAssembly is switched off, the failure is told, and nothing else happens", () => {
  const script = 'await LeaseManager.open("app", { store: "memory" }).catch(({ code, message }) => console.log(code, message));';
  for (const entry of ["node", "inline"]) {
    assert.match(run(script, "delete globalThis.WebAssembly;", entry), /^InitFailed .*switched off/);
  }
});

test("a lock is granted where Object.prototype is frozen", () => {
  const script = `
    const leases = await LeaseManager.open("app", { store: "memory" });
    await leases.locks.request("notes", ({ name }) => console.log(name)).catch((error) => console.log(String(error)));
    await leases.close();`;
  assert.equal(run(script, "Object.freeze(Object.prototype);", "node"), "notes");
});

test("a source that failed is tried again until another one is named", () => {
  const wasm = JSON.stringify(new URL("../../pkg/leasehold_bg.wasm", import.meta.url));
  const script = `
    const bytes = (await import("node:fs")).readFileSync(new URL(${wasm}));
    const asked = [];
    let status = 503;
    globalThis.fetch = async (url) => {
      asked.push(String(url).replace(/.*pkg/, ""));
      return new Response(bytes, { status, headers: { "Content-Type": "application/wasm" } });
    };
    const tell = (error) => console.log(error.code, error.message);
    const open = async () => (await LeaseManager.open("app", { store: "memory" })).close();
    await open().catch(tell);
    await init("/cdn.wasm").catch(tell);
    await open().catch(tell);
    await init().catch(tell);
    await init("/mirror.wasm").catch(tell);
    await init(null).catch(tell);
    status = 200;
    await open();
    await init("/cdn.wasm").catch(tell);
    console.log(asked.join(" "));`;
  const [own, ...more] = run(script).split("\n");
  const [asked, conflict, none] = more.splice(-3).reverse();
  assert.match(own, /^InitFailed .*leasehold_bg\.wasm: .*503/);
  assert.deepEqual(more.map((said) => /from (\S+):/.exec(said)?.[1]), ["/cdn.wasm", "/cdn.wasm", "/cdn.wasm", "/mirror.wasm"]);
  for (const said of more) assert.match(said, /^InitFailed .*503; serve leasehold_bg\.wasm there, or call init\(\) with another source, /);
  assert.match(none, /^InvalidOptions .*null/);
  assert.match(conflict, /^InitConflict .*\/mirror\.wasm was chosen before/);
  assert.equal(asked, "/leasehold_bg.wasm /cdn.wasm /cdn.wasm /cdn.wasm /mirror.wasm /mirror.wasm");
});

test("an address that only a browser can fetch is refused in Node.js with the remedy", () => {
  const script = `
    for (const url of ["/_next/static/media/leasehold_bg.wasm", "leasehold_bg.wasm"]) {
      await init(url).catch((error) => console.log(error.code, error.message));
    }`;
  const said = run(script, "", "node").split("\n");
  for (const [at, url] of ["/_next/static/media/leasehold_bg.wasm", "leasehold_bg.wasm"].entries()) {
    assert.ok(said[at].startsWith(`InitFailed the wasm did not load from ${url}: `), said[at]);
    for (const word of ['serverExternalPackages: ["leasehold"]', '"leasehold/inline"', "pathToFileURL"]) assert.ok(said[at].includes(word), said[at]);
  }
});

test("bytes load where there is no Response, as in a simulated browser", () => {
  const wasm = JSON.stringify(new URL("../../pkg/leasehold_bg.wasm", import.meta.url));
  const script = `
    await init((await import("node:fs")).readFileSync(new URL(${wasm})));
    console.log("loaded");`;
  assert.equal(run(script, "delete globalThis.Response;"), "loaded");
});

test("importing touches nothing", () => {
  const trap = `for (const name of ["fetch", "WebAssembly", "indexedDB", "navigator", "BroadcastChannel"])
    Object.defineProperty(globalThis, name, { get() { throw new Error(name); } });`;
  assert.equal(run("console.log('silent')", trap), "silent");
});
