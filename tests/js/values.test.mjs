// If the wasm has a number for each JavaScript value, the glue keeps the values in a table. An operation that has ended must leave none
// there. The wasm's memory, which memory.test.mjs watches, would not show a value that stays.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { bytes } from "./pkg.mjs";

const OFTEN = 500;
const TABLE = /([\w$]+)=new Array\(\d+\)\.fill\(void 0\)/;

/** The package, and its table of values; without a table if the wasm holds the references itself. */
async function withTable() {
  const text = await readFile(new URL("../../pkg/index.mjs", import.meta.url), "utf8");
  const [, name] = TABLE.exec(text) ?? [];
  const folder = await mkdtemp(join(tmpdir(), "leasehold-"));
  try {
    const file = join(folder, "index.mjs");
    await writeFile(file, `${text}\nexport const table = ${name};\n`);
    return await import(pathToFileURL(file).href);
  } finally {
    await rm(folder, { recursive: true });
  }
}

const { LeaseManager, init, table } = await withTable();
await init(bytes);

/** Aborts what waits. */
async function aborted(ask) {
  const controller = new AbortController();
  const asked = ask(controller.signal).catch(() => {});
  controller.abort();
  await asked;
}

const OPERATIONS = {
  "work under a lease": (leases) => leases.run("k", { signal: new AbortController().signal, info: "i" }, () => {}),
  "a request that is aborted": (leases) => leases.run("k", () => aborted((signal) => leases.acquire("k", { signal }))),
  "a request that is refused": (leases) => leases.acquire("").catch(() => {}),
  "a try": (leases) => leases.run("k", () => leases.tryAcquire("k")),
  "several leases": async (leases) => {
    const group = await leases.acquireAll([{ key: "a" }, { key: "b", mode: "shared" }]);
    await (group.signal, group.lost, group.release());
  },
  "several leases whose request is aborted": (leases) =>
    leases.run("a", () => aborted((signal) => leases.acquireAll([{ key: "a" }, { key: "b" }], { signal }))),
  "a theft": async (leases) => {
    const robbed = await leases.acquire("k");
    const lease = await leases.steal("k");
    await robbed.lost;
    await Promise.all([robbed.release(), lease.release()]);
  },
  "an upgrade": async (leases) => {
    const lease = await leases.acquire("k", { mode: "shared" });
    await lease.upgrade();
    await lease.downgrade();
    await lease.extend(1_000);
    await lease.verify();
    await lease.release();
    await lease.extend(1_000).catch(() => {});
  },
  "a look": (leases) => leases.run("k", async () => [await leases.status("k"), await leases.list(), leases.stats(), leases.holder]),
  "a lead": (leases) => leases.elect("e", () => {}),
  "a lock": (leases) => leases.locks.request("q", () => leases.locks.query()),
};
for (const [name, operation] of Object.entries(OPERATIONS)) {
  test(`${name} leaves nothing in the table of values`, { skip: !table && "the wasm holds references itself" }, async () => {
    const leases = await LeaseManager.open(name, { store: "memory" });
    leases.addEventListener("granted", () => {});
    for (let round = 0; round < 50; round++) await operation(leases);
    const before = table.length;
    for (let round = 0; round < OFTEN; round++) await operation(leases);
    assert.ok(table.length - before < OFTEN / 5, `${table.length - before} more places after ${OFTEN} rounds`);
    await leases.close();
  });
}
