// Leases in a database that fake-indexeddb imitates, as in users' tests in Node.js. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { LeaseManager, bytes, createStore, init, refused } from "./pkg.mjs";

const libraries = new URL("../browser/", import.meta.url);
const urlOf = (name) => pathToFileURL(createRequire(new URL("package.json", libraries)).resolve(name)).href;
const isLacking = !existsSync(new URL("node_modules/fake-indexeddb", libraries)) && process.env.CI !== "true";
const skip = { skip: isLacking && "there is no fake-indexeddb: .ci/setup pages" };

let idb;
before(async () => {
  if (isLacking) return;
  await import(urlOf("fake-indexeddb/auto"));
  idb = await import(urlOf("idb"));
  await init(bytes);
});

const STORES = ["notes", "leasehold"];

/** A database, two managers over it, and a lease of the first. */
async function opened(name) {
  const upgrade = (db) => {
    db.createObjectStore("notes");
    createStore(db);
  };
  const db = await idb.openDB(name, 1, { upgrade });
  const [own, other] = [await LeaseManager.attach(db), await LeaseManager.attach(db)];
  const lease = await own.acquire("notes");
  const close = async () => {
    await Promise.all([own.close(), other.close()]);
    db.close();
  };
  return { db, other, lease, close };
}

test("a transaction of idb commits under a current lease, and writes nothing under a stale one", skip, async () => {
  const { db, other, lease, close } = await opened("fenced");
  const write = async (text) => {
    const tx = db.transaction(STORES, "readwrite");
    const put = tx.objectStore("notes").put(text, "today");
    const ended = Promise.allSettled([put, tx.done]);
    await lease.fence(tx).finally(() => ended);
  };
  await write("current");
  await other.steal("notes");
  await refused(() => write("stale"), "LeaseLost", "LeaseError", "Stolen");
  assert.equal(await db.get("notes", "today"), "current");
  await close();
});

/** The same, but what is read through the proxy is never answered. */
function unanswered(tx) {
  const wrap = (value, own) => new Proxy(value, { get: (at, name) => own[name] ?? bound(at, name) });
  // By a symbol, the package looks behind wrappings: not behind this one.
  const bound = (at, name) => (typeof name === "string" && typeof at[name] === "function" ? at[name].bind(at) : at[name]);
  const get = () => new EventTarget();
  return wrap(tx, { objectStore: (name) => wrap(tx.objectStore(name), { get }) });
}

test("a transaction that was committed before its fence was checked is not said to have written nothing", skip, async () => {
  const { db, lease, close } = await opened("unchecked");
  const tx = idb.unwrap(db.transaction(STORES, "readwrite"));
  tx.objectStore("notes").put("unchecked", "today");
  await refused(() => lease.fence(unanswered(tx)), "InvalidOptions", "LeaseError", "may be committed");
  assert.equal(await db.get("notes", "today"), "unchecked");
  await close();
});

test("a manager that opens a name and one that is attached to a database of that name see different leases", skip, async () => {
  const { lease, close } = await opened("both ways");
  const leases = await LeaseManager.open("both ways");
  assert.deepEqual((await leases.status("notes")).holders, []);
  const same = await leases.acquire("notes", { timeoutMs: 5_000 });
  assert.deepEqual([lease.valid, same.valid], [true, true]);
  await leases.close();
  await LeaseManager.delete("both ways");
  assert.equal(await lease.verify(), true);
  await close();
});

test("Web Locks that a script has put in place of the platform's prove no death", skip, async () => {
  const had = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  // As those of a polyfill within one page: nobody else's are seen, so each request is granted at once.
  const locks = { request: (name, options, granted) => Promise.resolve({ name }).then(granted), query: async () => ({ held: [], pending: [] }) };
  Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
  const { other, lease, close } = await opened("polyfill");
  assert.equal(await other.tryAcquire("notes"), null);
  await refused(() => other.acquire("notes", { timeoutMs: 1_000 }), "Timeout", "TimeoutError");
  assert.deepEqual([lease.valid, await lease.verify()], [true, true]);
  await close();
  if (had) Object.defineProperty(globalThis, "navigator", had);
  else delete globalThis.navigator;
});

test("neither a manager over a database nor a lease that is held keeps the process alive", skip, () => {
  const script = `
    import ${JSON.stringify(urlOf("fake-indexeddb/auto"))};
    import { LeaseManager, bytes, createStore, init } from ${JSON.stringify(new URL("pkg.mjs", import.meta.url))};
    await init(bytes);
    const request = indexedDB.open("alive", 1);
    request.onupgradeneeded = () => createStore(request.result);
    await new Promise((resolve) => (request.onsuccess = resolve));
    const [own, other] = [await LeaseManager.attach(request.result), await LeaseManager.attach(request.result)];
    const lease = await own.acquire("notes");
    const waiting = other.acquire("notes");
    await own.locks.request("lock", () => {});
    await lease.release();
    console.log((await waiting).valid);`;
  const args = ["--input-type=module", "--no-warnings", "--eval", script];
  const { stdout, stderr, signal } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 60_000 });
  assert.deepEqual([stdout, signal], ["true\n", null], stderr);
});
