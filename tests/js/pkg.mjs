// What the tests of the package share: the package that `make pkg` built, with its wasm from the disk.
import { readFile } from "node:fs/promises";
import { LeaseError, LeaseManager, init, isLeaseError } from "../../pkg/index.mjs";
import assert from "node:assert/strict";

export * from "../../pkg/index.mjs";

export const bytes = await readFile(new URL("../../pkg/leasehold_bg.wasm", import.meta.url));

let opened = 0;

/** A manager whose leases are in memory, under a name of its own unless one is given. */
export async function openManager(options, name = `store ${(opened += 1)}`) {
  await init(bytes);
  return LeaseManager.open(name, { store: "memory", ...options });
}

/** Expects a rejection, not a throw, with a LeaseError of this code and name, whose message has all of these words. */
export async function refused(call, code, name, ...words) {
  const promise = call();
  await assert.rejects(promise, (error) => {
    assert.ok(error instanceof LeaseError && error instanceof DOMException && isLeaseError(error), `${error}`);
    assert.deepEqual([error.code, error.name], [code, name], error.message);
    for (const word of words) assert.ok(error.message.includes(word), `${word} is not in: ${error.message}`);
    return true;
  });
}

/** Lets everything happen that waits for no timer. */
export const settle = () => new Promise((resolve) => setTimeout(resolve, 5));
