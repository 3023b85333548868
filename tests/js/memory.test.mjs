// What ends leaves nothing behind: the memory of a wasm only grows.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes } from "./pkg.mjs";
import { LeaseManager, init } from "../../pkg/node.mjs";

/** Enough of each for even 50 bytes left behind by one to show. */
const OFTEN = 10_000;

let memory;
const instantiate = WebAssembly.instantiate;
WebAssembly.instantiate = async (...args) => {
  const made = await instantiate(...args);
  memory = Object.values((made.instance ?? made).exports).find((thing) => thing instanceof WebAssembly.Memory);
  return made;
};
await init(bytes);

const OPERATIONS = {
  "a lease that nobody watches": (leases) => leases.run("k", () => {}),
  "a signal": (leases) => leases.run("k", (lease) => void lease.signal),
  "a promise of the loss": (leases) => leases.run("k", (lease) => void lease.lost),
  "work that is aborted by a loss": (leases) => leases.run("k", { onLost: "abort" }, () => {}),
  "a lock": (leases) => leases.locks.request("q", () => {}),
};
for (const [name, operation] of Object.entries(OPERATIONS)) {
  test(`${name} leaves nothing in the memory of the wasm`, async () => {
    const leases = await LeaseManager.open(name, { store: "memory" });
    for (let round = 0; round < 1_000; round++) await operation(leases);
    const before = memory.buffer.byteLength;
    for (let round = 0; round < OFTEN; round++) await operation(leases);
    assert.ok(memory.buffer.byteLength - before < 50 * OFTEN, `${memory.buffer.byteLength - before} bytes`);
    await leases.close();
  });
}
