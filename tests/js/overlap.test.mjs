// Calls on one object that overlap, in each pair: none traps, and each is answered. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LeaseError, isLeaseError, openManager, settle } from "./pkg.mjs";

/** Everything that a lease can be asked. */
const OF_A_LEASE = {
  verify: (lease) => lease.verify(),
  extend: (lease) => lease.extend(30_000),
  upgrade: (lease) => lease.upgrade(),
  "upgrade, aborted": (lease) => lease.upgrade({ signal: AbortSignal.timeout(1) }),
  downgrade: (lease) => lease.downgrade(),
  fence: (lease) => lease.fence({}),
  release: (lease) => lease.release(),
  lost: (lease) => Promise.race([lease.lost, settle()]),
  signal: (lease) => lease.signal.aborted,
  shows: (lease) => [lease.key, lease.token, lease.mode, lease.valid, lease.remainingMs, lease.expiresAt, lease.changedHands],
  clearChanged: (lease) => lease.clearChanged(),
};

/** Everything that a manager can be asked. */
const OF_A_MANAGER = {
  acquire: (leases) => leases.acquire("notes", { timeoutMs: 20 }).then((lease) => lease.release()),
  "acquire, aborted": (leases) => leases.acquire("notes", { signal: AbortSignal.timeout(1) }).then((lease) => lease.release()),
  tryAcquire: (leases) => leases.tryAcquire("notes", { mode: "shared" }).then((lease) => lease?.release()),
  acquireAll: (leases) => leases.acquireAll([{ key: "notes" }, { key: "b" }], { timeoutMs: 20 }).then((group) => group.release()),
  "acquireAll at once": (leases) => leases.acquireAll([{ key: "notes" }], { timeoutMs: 0 }).then((group) => group.release()),
  steal: (leases) => leases.steal("notes").then((lease) => lease.release()),
  run: (leases) => leases.run("notes", { timeoutMs: 20, onLost: "abort" }, settle),
  tryRun: (leases) => leases.tryRun("notes", settle),
  elect: (leases) => leases.elect("notes", { signal: AbortSignal.timeout(20) }, settle),
  leader: (leases) => leases.leader("notes"),
  status: (leases) => leases.status("notes"),
  list: (leases) => leases.list(),
  stats: (leases) => [leases.stats(), leases.holder],
  listen: (leases) => leases.addEventListener("granted", () => leases.stats()),
  close: (leases) => leases.close(),
};

/** What may come of a call in such company; a trap is an `Internal` error. */
const EXPECTED = new Set(["LeaseLost", "Closed", "Timeout", "InvalidOptions", "UpgradeConflict"]);

async function ended(call) {
  try {
    await call;
  } catch (error) {
    const known = isLeaseError(error) ? EXPECTED.has(error.code) : error.name === "TimeoutError";
    assert.ok(known, `${error.code} ${error.stack}`);
  }
}

async function eachPair(calls, makeObject, end) {
  for (const [first, one] of Object.entries(calls)) {
    for (const [second, other] of Object.entries(calls)) {
      const object = await makeObject();
      // Each in the midst of the other, and once more when the first may be over.
      const pair = [one(object), other(object), one(object)];
      await null;
      pair.push(other(object));
      const late = new Promise((_, reject) => setTimeout(reject, 60_000, new Error(`${first} and ${second} hang`)).unref());
      await Promise.race([Promise.all(pair.map(ended)), late]);
      await end(object);
    }
  }
}

test("of a lease, exclusive or shared, alone or not", async () => {
  for (const [mode, company] of [["exclusive", false], ["shared", false], ["shared", true]]) {
    const [leases, other] = [await openManager({}, "overlap"), await openManager({}, "overlap")];
    const reader = company && (await other.acquire("notes", { mode }));
    // Who shares with others never gets to be alone: those calls end with the release.
    const calls = company ? { ...OF_A_LEASE, upgrade: OF_A_LEASE["upgrade, aborted"] } : OF_A_LEASE;
    await eachPair(calls, () => leases.acquire("notes", { mode }), (lease) => lease.release());
    if (reader) await reader.release();
    assert.ok(await leases.tryAcquire("notes"), "the manager is whole");
    await Promise.all([leases.close(), other.close()]);
  }
});

test("of a manager, alone or not", async () => {
  let count = 0;
  for (const busy of [false, true]) {
    const others = [];
    const open = async () => {
      const name = `overlap ${(count += 1)}`;
      if (busy) {
        others.push(await openManager({}, name));
        others.at(-1).acquire("notes").then((lease) => setTimeout(() => lease.release().catch(() => {}), 5));
      }
      return openManager({}, name);
    };
    await eachPair(OF_A_MANAGER, open, (leases) => leases.close());
    await Promise.all(others.map((leases) => leases.close()));
  }
});

test("what is closed or given back answers with a sentence, to everything", async () => {
  const leases = await openManager();
  const [lease, group] = [await leases.acquire("notes"), await leases.acquireAll([{ key: "a" }])];
  await Promise.all([lease.release(), group.release()]);
  const look = async (calls, object) => {
    for (const [name, call] of Object.entries(calls)) {
      try {
        await call(object);
      } catch (error) {
        assert.ok(error instanceof LeaseError && EXPECTED.has(error.code), `${name}: ${error.code} ${error.message}`);
        assert.match(error.message, /^[a-z].{15,}$/, name);
      }
    }
  };
  await look(OF_A_LEASE, lease);
  await leases.close();
  await look(OF_A_LEASE, lease);
  const { listen: _, ...calls } = OF_A_MANAGER;
  await look(calls, leases);
  for (const name of ["acquire", "tryAcquire", "acquireAll", "acquireAll at once", "steal", "run", "tryRun", "elect", "leader", "status", "list"]) {
    await assert.rejects(async () => calls[name](leases), { code: "Closed", name: "InvalidStateError" }, name);
  }
  assert.deepEqual([group.valid, await group.verify(), await group.release()], [false, false, "released"]);
});
