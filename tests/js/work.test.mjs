// Work under a lease: run, tryRun, elect. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { LeaseError, isLeaseError, openManager, refused, settle } from "./pkg.mjs";

const pair = async (name) => [await openManager({}, name), await openManager({}, name)];
const never = () => new Promise(() => {});

/** What nobody heard. */
const unheard = [];
const hear = (reason) => unheard.push(reason);
process.on("unhandledRejection", hear);
after(() => {
  process.off("unhandledRejection", hear);
  assert.deepEqual(unheard, []);
});

test("work begins after the call that asks for it, also under a lease that lingers", async () => {
  const leases = await openManager({ lingerMs: 60_000 });
  await leases.run("notes", () => {});
  const { transactions } = leases.stats();
  for (const ask of [leases.run, leases.tryRun, leases.elect]) {
    let isAsking = true;
    const done = ask.call(leases, "notes", () => assert.ok(!isAsking));
    isAsking = false;
    await done;
  }
  assert.equal(leases.stats().transactions, transactions, "it lingered");
  await leases.close();
});

test("work is done under a lease, which is given back", async () => {
  const leases = await openManager();
  const order = [];
  const first = leases.run("notes", async (lease) => {
    assert.ok(lease.valid && lease.key === "notes");
    order.push("first begins");
    await settle();
    order.push("first ends");
    return lease;
  });
  const options = { timeoutMs: 60_000, priority: 1, info: "second", mode: "shared", share: true, onLost: "notify" };
  const second = leases.run("notes", options, (lease) => {
    order.push("second");
    return lease.mode;
  });
  const lease = await first;
  assert.deepEqual([lease.valid, await second, order], [false, "shared", ["first begins", "first ends", "second"]]);
  assert.deepEqual(await leases.tryRun("notes", () => "plain"), { ran: true, value: "plain", lost: null });
  assert.equal(await leases.run("notes", undefined, () => {}), undefined);
  const held = await leases.acquire("notes");
  assert.deepEqual(await leases.tryRun("notes", { mode: "shared", onLost: "abort" }, assert.fail), { ran: false });
  await held.release();
  assert.deepEqual((await leases.status("notes")).holders, []);
  await leases.close();
});

test("what the work throws is thrown as it is, and the lease given back", async () => {
  const leases = await openManager();
  for (const thrown of [new Error("why"), "a word", undefined, null, { not: "an error" }]) {
    for (const onLost of ["notify", "abort"]) {
      const works = [() => { throw thrown; }, async () => { throw thrown; }, () => ({ then: (_, reject) => reject(thrown) })];
      for (const work of works) {
        for (const verb of ["run", "tryRun"]) {
          await assert.rejects(leases[verb]("notes", { onLost }, work), (error) => error === thrown);
          assert.ok(await leases.tryAcquire("notes").then((lease) => lease.release()));
        }
        await assert.rejects(leases.elect("notes", work), (error) => error === thrown);
      }
    }
  }
  await leases.close();
});

test("a loss is told to work that goes on, and afterwards", async () => {
  const [one, two] = await pair("notified");
  const work = async (lease) => {
    await (await two.steal("notes")).release();
    assert.equal(await lease.lost, "Stolen");
    await settle();
    return lease.signal.aborted;
  };
  assert.deepEqual(await one.tryRun("notes", work), { ran: true, value: true, lost: "Stolen" });
  assert.equal(await one.run("notes", { onLost: "notify" }, work), true);
  await Promise.all([one.close(), two.close()]);
});

test("with abort a loss rejects at once, with the reason of the signal; what the work does later is unheard", async () => {
  const [one, two] = await pair("aborted");
  for (const verb of ["run", "tryRun"]) {
    for (const end of [never, () => settle(), () => settle().then(() => Promise.reject(new Error("too late")))]) {
      let lease;
      const running = one[verb]("notes", { onLost: "abort" }, (granted) => ((lease = granted), end()));
      await until(() => lease);
      await two.steal("notes").then((thief) => thief.release());
      await assert.rejects(running, (error) => {
        assert.ok(isLeaseError(error) && error === lease.signal.reason);
        assert.deepEqual([error.code, error.reason, error.token], ["LeaseLost", "Stolen", lease.token]);
        return true;
      });
      await settle();
    }
    // Work that fails because it listens to the signal fails with the same reason.
    const running = one[verb]("notes", { onLost: "abort" }, async (lease) => {
      await (await two.steal("notes")).release();
      await lease.lost;
      await settle();
      lease.signal.throwIfAborted();
    });
    await assert.rejects(running, { code: "LeaseLost", reason: "Stolen" });
  }
  await Promise.all([one.close(), two.close()]);
});

async function until(condition) {
  for (let round = 0; round < 1_000; round++) {
    if (condition()) return;
    await settle();
  }
  assert.fail("it did not come to be");
}

test("work that waits is not begun when it is aborted, too late or refused", async () => {
  const leases = await openManager();
  const lease = await leases.acquire("notes");
  await refused(() => leases.run("notes", { timeoutMs: 20 }, assert.fail), "Timeout", "TimeoutError");
  await refused(() => leases.run("notes", { timeoutMs: 0 }, assert.fail), "Timeout", "TimeoutError");
  const reason = { not: "an error" };
  for (const verb of ["run", "elect"]) {
    await assert.rejects(leases[verb]("notes", { signal: AbortSignal.abort(reason) }, assert.fail), (error) => error === reason);
    const controller = new AbortController();
    const waiting = leases[verb]("notes", { signal: controller.signal }, assert.fail);
    await settle();
    controller.abort(reason);
    await assert.rejects(waiting, (error) => error === reason);
    assert.deepEqual((await leases.status("notes")).queue, []);
  }
  const closed = ["run", "elect"].map((verb) => refused(() => leases[verb]("notes", assert.fail), "Closed", "InvalidStateError"));
  await settle();
  await Promise.all([leases.close(), ...closed]);
  assert.equal(await lease.release(), "lost");
  for (const verb of ["run", "tryRun", "elect"]) {
    await refused(() => leases[verb]("notes", assert.fail), "Closed", "InvalidStateError");
  }
  await refused(() => leases.leader("notes"), "Closed", "InvalidStateError");
});

test("an abort once the work has begun does nothing to run", async () => {
  const leases = await openManager();
  const controller = new AbortController();
  const value = await leases.run("notes", { signal: controller.signal }, async () => {
    controller.abort();
    await settle();
    return "done";
  });
  assert.equal(value, "done");
  await leases.close();
});

test("who is elected leads until its work ends, and is told of", async () => {
  const [one, two] = await pair("election");
  assert.equal(await one.leader("leader"), null);
  let end;
  const terms = [];
  const leading = one.elect("leader", { info: "one", priority: 1 }, (lease) => {
    terms.push(lease.token);
    return new Promise((resolve) => (end = resolve));
  });
  await until(() => end);
  const next = two.elect("leader", async (lease) => (terms.push(lease.token), "short"));
  await settle();
  const [mine, theirs] = [await one.leader("leader"), await two.leader("leader")];
  assert.deepEqual([mine.own, theirs.own, mine.info, theirs.holder], [true, false, "one", one.holder]);
  end("a long time");
  assert.deepEqual([await leading, await next], ["a long time", "short"]);
  assert.ok(terms[1] > terms[0]);
  const reader = await one.acquire("leader", { mode: "shared" });
  assert.equal(await one.leader("leader"), null, "who shares does not lead");
  await reader.release();
  await Promise.all([one.close(), two.close()]);
});

test("a lost lead is won anew with a new lease; whatever the work of the old one does", async () => {
  const [one, two] = await pair("won anew");
  const [terms, reasons] = [[], []];
  const ends = [never, () => Promise.reject(new Error("too late")), (lease) => Promise.reject(lease.signal.reason), () => "too late"];
  const leading = one.elect("leader", async (lease) => {
    const end = ends[terms.length];
    terms.push(lease);
    if (!end) return "done";
    await new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
    reasons.push(lease.signal.reason.reason);
    return end(lease);
  });
  for (let term = 1; term <= ends.length; term++) {
    await until(() => terms.length === term);
    await two.steal("leader").then((thief) => thief.release());
  }
  assert.equal(await leading, "done");
  assert.deepEqual(reasons, Array(4).fill("Stolen"));
  assert.ok(terms.every(({ token }, at) => at === 0 || token > terms[at - 1].token) && new Set(terms).size === 5);
  assert.deepEqual((await two.status("leader")).holders, []);
  await Promise.all([one.close(), two.close()]);
});

test("an aborted election gives the lead back and rejects with the reason", async () => {
  const [one, two] = await pair("given up");
  const [controller, reason] = [new AbortController(), { not: "an error" }];
  let lease;
  const leading = one.elect("leader", { signal: controller.signal }, (lead) => ((lease = lead), never()));
  await until(() => lease);
  controller.abort(reason);
  await assert.rejects(leading, (error) => error === reason);
  assert.deepEqual([lease.valid, await lease.release(), lease.signal.aborted], [false, "released", true]);
  // Aborted by the loss itself.
  const other = new AbortController();
  let second;
  const again = one.elect("leader", { signal: other.signal }, (lead) => ((second = lead), never()));
  await until(() => second);
  second.signal.addEventListener("abort", () => other.abort(reason));
  await two.steal("leader").then((thief) => thief.release());
  await assert.rejects(again, (error) => error === reason);
  assert.deepEqual((await two.status("leader")).queue, []);
  await Promise.all([one.close(), two.close()]);
});

test("the signal of an election reaches the work by the signal of the lease, with its reason", async () => {
  const [one, two] = await pair("resigned");
  const [controller, reason] = [new AbortController(), new Error("enough")];
  const heard = [];
  const leading = one.elect("leader", { signal: controller.signal }, async (lease) => {
    lease.signal.addEventListener("abort", () => heard.push(lease.signal.reason, lease.signal.reason === reason || lease.valid));
    await never();
  });
  await until(() => one.stats().granted === 1);
  await settle();
  // A lead that was lost before has its own reason.
  await two.steal("leader").then((thief) => thief.release());
  await until(() => one.stats().granted === 2);
  await settle();
  assert.deepEqual([heard.length, heard[0].reason], [2, "Stolen"]);
  controller.abort(reason);
  await assert.rejects(leading, (error) => error === reason);
  assert.deepEqual(heard.slice(2), [reason, true]);
  assert.deepEqual((await two.status("leader")).holders, []);
  // Also for whoever asks for the signal only when it is too late.
  const late = new AbortController();
  let lease;
  const again = one.elect("leader", { signal: late.signal }, (lead) => ((lease = lead), late.abort(reason), never()));
  await assert.rejects(again, (error) => error === reason);
  assert.ok(lease.signal.aborted && lease.signal.reason === reason);
  await Promise.all([one.close(), two.close()]);
});

test("a close ends an election", async () => {
  const leases = await openManager();
  let lease;
  const leading = refused(() => leases.elect("leader", (lead) => ((lease = lead), never())), "Closed", "InvalidStateError");
  await until(() => lease);
  await Promise.all([leases.close(), leading]);
  assert.equal(lease.signal.reason.reason, "Closed");
});

test("an abort at any moment of an election leaves nothing held", async () => {
  const leases = await openManager({ lingerMs: 0 });
  for (let steps = 0; steps < 25; steps++) {
    const controller = new AbortController();
    const leading = leases.elect("leader", { signal: controller.signal }, never);
    for (let step = 0; step < steps; step++) await null;
    controller.abort("enough");
    await assert.rejects(leading, (error) => error === "enough");
    await settle();
    assert.deepEqual(await leases.list(), [], `after ${steps} steps`);
  }
  await leases.close();
});

test("what is no work, no key and no option is refused before anything is asked", async () => {
  const leases = await openManager();
  for (const verb of ["run", "tryRun", "elect"]) {
    const options = (args, ...words) => refused(() => leases[verb](...args), "InvalidOptions", "LeaseError", ...words);
    for (const odd of [undefined, null, 5, "work", {}, Symbol("s")]) await options(["notes", {}, odd], "the work", "a function");
    await options(["notes"], "the work", "undefined");
    await options(["notes", null, assert.fail], "null");
    await options(["notes", assert.fail, assert.fail], "options");
    await options(["notes", { onLoss: "abort" }, assert.fail], "`onLoss`");
    await refused(() => leases[verb](), "InvalidKey", "LeaseError", "undefined");
    await refused(() => leases[verb](Symbol("s"), assert.fail), "InvalidKey", "LeaseError", "Symbol(s)");
    await refused(() => leases[verb]("", assert.fail), "InvalidKey", "LeaseError", "empty");
  }
  await refused(() => leases.run("k", { onLost: "ignore" }, assert.fail), "InvalidOptions", "LeaseError", '"notify" or "abort"', '"ignore"');
  await refused(() => leases.run("k", { onloss: "abort" }, assert.fail), "InvalidOptions", "LeaseError", "did you mean `onLost`?");
  await refused(() => leases.leader(), "InvalidKey", "LeaseError");
  assert.equal(leases.stats().transactions, 0);
  await leases.close();
  assert.ok(new LeaseError("Closed", "") instanceof DOMException);
});

test("work that asks for its own lease shares it, although another manager waits", async () => {
  const [one, other] = await pair("own");
  const save = () => one.run("sync", { share: true }, () => "saved");
  const saved = one.run("sync", { share: true }, async () => {
    const waits = other.run("sync", () => "waited");
    // For 50 ms, a lease is handed on although others wait.
    await new Promise((done) => setTimeout(done, 100));
    return [await save(), waits];
  });
  const [said, waits] = await saved;
  assert.deepEqual([said, await waits], ["saved", "waited"]);
  await Promise.all([one.close(), other.close()]);
});
