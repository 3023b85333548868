// Drops every kind of handle to leases, has them collected, and prints what became of the leases. Part of leases.test.mjs.
import { openManager, settle } from "./pkg.mjs";

const watcher = await openManager({}, "collected");
const collected = [];
const registry = new FinalizationRegistry((name) => collected.push(name));
const warned = [];
console.warn = (sentence) => warned.push(sentence);
const dropped = ["manager", "kept", "lease", "shared", "stolen", "group", "of a group", "lost", "released", "idle manager"];

async function forget() {
  const leases = await openManager({ lingerMs: 0 }, "collected");
  const kept = await leases.acquire("kept");
  const group = await leases.acquireAll([{ key: "of a group" }]);
  const handles = [leases, kept, await leases.acquire("lease"), await leases.acquire("shared", { mode: "shared" })];
  handles.push(await leases.steal("stolen"), group, group.leases[0]);
  // Nobody need be warned of these two.
  handles.push(await leases.acquire("lost"), await leases.acquire("released"), await openManager({}, "collected"));
  await (await watcher.steal("lost")).release();
  await handles[8].release();
  handles.forEach((handle, at) => registry.register(handle, dropped[at]));
  // Work that can never end is no handle's to keep; an election goes on by itself.
  leases.run("running", () => new Promise(() => {}));
  (await openManager({}, "collected")).elect("leading", () => new Promise(() => {}));
  return kept.signal;
}

const signal = await forget();
for (let round = 0; round < 200 && (collected.length < dropped.length || warned.length < 6); round++) {
  await settle();
  globalThis.gc();
}
await settle();
const held = (await watcher.list()).map(({ key }) => key);
const keys = warned.map((sentence) => sentence.match(/^leasehold: a lease of "(.*)" was forgotten without release\(\); it stays held$/)[1]);
console.log(JSON.stringify({ collected: collected.sort(), held, warned: keys.sort(), aborted: signal.aborted }));
process.exit();
