// A lock that is stolen by a page which is frozen at that moment: the page does not steal it again when it wakes up.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LeaseManager, clock } from "../../pkg/testing-node.mjs";
import { take } from "../browser/pages/locks/tools.mjs";

let pages = 0;

/** A manager of a page that can be frozen, and two others. */
async function open() {
  const name = `thieves ${(pages += 1)}`;
  const page = Object.assign(new EventTarget(), { hidden: false, defaultView: globalThis });
  const leases = async () => LeaseManager.open(name, { store: "memory" });
  globalThis.document = page;
  let frozen;
  try {
    frozen = await leases();
  } finally {
    delete globalThis.document;
  }
  const freeze = (freezes) => page.dispatchEvent(new Event(freezes ? "freeze" : "resume"));
  return { frozen, freeze, others: [await leases(), await leases()] };
}

test("a page that is frozen while it steals a lock steals it once", async () => {
  for (const steps of [0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20]) {
    const { frozen, freeze, others } = await open();
    const told = [];
    const [first, next] = [take(others[0].locks, "a"), take(others[1].locks, "a")];
    await first.start;
    first.done.catch(() => told.push("first lost"));
    next.start.then(
      () => told.push("next granted"),
      () => {},
    );
    next.done.catch(() => told.push("next lost"));
    await clock.advance(200);
    const theft = frozen.locks.request("a", { steal: true }, () => new Promise(() => {}));
    theft.catch(() => {});
    for (let step = 0; step < steps; step++) await null;
    freeze(true);
    await clock.advance(30_000);
    freeze(false);
    await clock.advance(5_000);
    assert.ok(!told.includes("next granted") || !told.includes("next lost"), `${steps}: ${told}`);
    await Promise.all([frozen, ...others].map((leases) => leases.close()));
  }
});
