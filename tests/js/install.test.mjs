// `install()` while the wasm is on its way. A file of its own: it loads once.
import assert from "node:assert/strict";
import { test } from "node:test";
import { init, install, isLeaseError } from "../../pkg/index.mjs";
import { bytes, settle } from "./pkg.mjs";

/** How each fetch ends, told by the test. */
const fetches = [];
globalThis.fetch = () => new Promise((resolve, reject) => fetches.push({ resolve, reject }));
Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true, writable: true });
install({ store: "memory" });
const { locks } = navigator;

test("what fails to load rejects all that came by then, in a sentence; an abort does not wait for it", async () => {
  const controller = new AbortController();
  const aborted = locks.request("a", { signal: controller.signal }, assert.fail);
  const others = [locks.request("a", assert.fail), locks.request("a", { ifAvailable: true }, assert.fail), locks.query()];
  others.forEach((promise) => promise.catch(() => {}));
  await settle();
  assert.equal(fetches.length, 1);
  controller.abort("enough");
  assert.equal(await Promise.race([aborted.catch((reason) => reason), settle()]), "enough");
  fetches[0].reject(new Error("no network"));
  for (const promise of others) {
    await assert.rejects(promise, (error) => isLeaseError(error) && error.code === "InitFailed" && error.message.includes("no network"));
  }
});

test("what comes before it is loaded happens in its order, and nothing of it needs to be asked again", async () => {
  const told = [];
  const ended = (label) => (lock) => void told.push(lock ? label : `${label}: null`);
  let finish;
  const controller = new AbortController();
  const all = [
    locks.request("a", () => new Promise((resolve) => (told.push("first"), (finish = resolve)))),
    locks.request("a", { mode: "shared" }, ended("second")),
    locks.request("a", { signal: controller.signal }, ended("aborted")).catch((reason) => told.push(reason)),
    locks.query(),
    locks.request("a", { ifAvailable: true }, ended("third")),
    locks.request("a", { mode: "shared" }, ended("fourth")),
    locks.request("b", { steal: true }, ended("fifth")),
  ];
  const robbed = locks.request("c", () => new Promise(() => {}));
  robbed.catch(({ name }) => told.push(name));
  all.push(locks.request("c", { steal: true }, ended("thief")));
  await settle();
  controller.abort("enough");
  await settle();
  assert.deepEqual(told.splice(0), ["enough"]);
  assert.equal(fetches.length, 2, "another try");
  fetches[1].resolve(new Response(bytes, { headers: { "Content-Type": "application/wasm" } }));
  await init();
  await settle();
  const show = ({ name, mode }) => `${name} ${mode}`;
  const { held, pending } = await all[3];
  // It was asked for before the abort, and sees what that ended.
  assert.deepEqual([held.map(show), pending.map(show)], [["a exclusive"], ["a shared", "a exclusive"]]);
  assert.deepEqual(told.splice(0).sort(), ["AbortError", "fifth", "first", "thief", "third: null"].sort());
  const later = (await locks.query()).pending.map(show);
  assert.deepEqual(later, ["a shared", "a shared"]);
  finish();
  await Promise.all(all);
  assert.deepEqual(told, ["second", "fourth"]);
});

test("WL3 where there is no storage, that is said before all else but wrong arguments", async () => {
  Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
  install();
  const named = (name) => (error) => error instanceof DOMException && error.name === name;
  const { signal } = new AbortController();
  const wrong = [["-", () => {}], ["a", { steal: true, ifAvailable: true }, () => {}], ["a", { signal, steal: true }, () => {}]];
  for (const args of [...wrong, ["a", () => {}], ["a", { signal: AbortSignal.abort("mine") }, () => {}]]) {
    await assert.rejects(navigator.locks.request(...args), named("SecurityError"));
  }
  await assert.rejects(navigator.locks.query(), named("SecurityError"));
  await assert.rejects(navigator.locks.request("-"), TypeError);
});
