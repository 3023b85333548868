// What a manager tells of its leases. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { LeaseEvent, openManager, settle } from "./pkg.mjs";

const TYPES = ["waiting", "withdrawn", "granted", "suspect", "certain", "lost", "released"];

/** All that a manager tells, as plain objects. */
function hear(leases) {
  const heard = [];
  const own = ([name]) => name !== "isTrusted";
  const hear = (event) => heard.push({ type: event.type, ...Object.fromEntries(Object.entries(event).filter(own)) });
  for (const type of TYPES) leases.addEventListener(type, hear);
  return heard;
}

test("a lease is told from its wait to its end", async () => {
  const [one, two] = [await openManager({}, "told"), await openManager({}, "told")];
  const heard = hear(two);
  const first = await one.acquire("notes");
  const waiting = two.acquire("notes");
  await settle();
  await first.release();
  const lease = await waiting;
  await lease.release();
  await settle();
  const [, granted, released] = heard;
  const { waitedMs } = granted;
  assert.ok(waitedMs >= 0 && waitedMs < 60_000 && released.heldMs >= 0, JSON.stringify(heard));
  const [lock, token] = [{ key: "notes", mode: "exclusive" }, lease.token];
  assert.deepEqual(heard, [
    { type: "waiting", ...lock, ahead: 1 },
    { type: "granted", ...lock, token, holder: two.holder, waitedMs },
    { type: "released", ...lock, token, heldMs: released.heldMs },
  ]);
  await Promise.all([one.close(), two.close()]);
});

test("a wait in vain and a loss are told; nothing is after the close", async () => {
  const [one, two] = [await openManager({}, "ends"), await openManager({}, "ends")];
  const [heard, other] = [hear(one), hear(two)];
  await one.acquire("notes");
  await assert.rejects(two.acquire("notes", { timeoutMs: 20 }));
  await settle();
  assert.deepEqual(other.map(({ type }) => type), ["waiting", "withdrawn"]);
  assert.ok(other[1].waitedMs >= 20);
  await one.close();
  await settle();
  assert.deepEqual(heard.map(({ type, reason }) => [type, reason]), [["granted", undefined], ["lost", "Closed"]]);
  one.addEventListener("granted", assert.fail);
  await two.close();
});

test("a wait for a lease of the manager itself is told, and warned of once with debug", async (t) => {
  t.mock.method(console, "debug", () => {});
  const warn = t.mock.method(console, "warn", () => {});
  const leases = await openManager({ debug: true }, "own wait");
  const waits = [];
  leases.addEventListener("waiting", ({ key, ahead }) => waits.push([key, ahead]));
  for (let round = 0; round < 2; round++) {
    const nested = leases.run("n", () => leases.run("n", { timeoutMs: 20 }, assert.fail));
    await assert.rejects(nested, { code: "Timeout", key: "n" });
  }
  await settle();
  assert.deepEqual(waits, [["n", 0], ["n", 0]]);
  assert.deepEqual(warn.mock.calls.map(({ arguments: [said] }) => said.match(/own wait.*"n".*share: true/)?.length), [1]);
  // Those who share do not wait; nor does a try.
  await leases.run("n", { share: true }, () => leases.run("n", { share: true }, () => {}));
  await leases.run("n", () => leases.tryRun("n", assert.fail));
  assert.deepEqual([waits.length, leases.stats().waited], [2, 0], "nor do they queue in the store");
  await leases.close();
});

test("a type that the manager never emits is warned of", async (t) => {
  const warn = t.mock.method(console, "warn", () => {});
  const leases = await openManager();
  for (const type of ["Lost", "released", "loss", null]) leases.addEventListener(type, assert.fail);
  const told = (type) => [`leasehold: no event ${type}: there are waiting, withdrawn, granted, suspect, certain, lost, released`];
  assert.deepEqual(warn.mock.calls.map(({ arguments: said }) => said), ["Lost", "loss", "null"].map(told));
  await leases.close();
});

test("it is an EventTarget like any other", async () => {
  const leases = await openManager();
  const [heard, controller] = [[], new AbortController()];
  const listener = { handleEvent: (event) => heard.push(event) };
  leases.addEventListener("granted", listener, { once: true });
  leases.addEventListener("granted", () => heard.push("aborted"), { signal: controller.signal });
  const removed = () => heard.push("removed");
  leases.addEventListener("granted", removed);
  leases.removeEventListener("granted", removed);
  // More than Node.js finds sound: it takes a note of that in the object, and warns.
  const warned = once(process, "warning");
  for (let count = 0; count < 12; count++) leases.addEventListener("lost", () => count);
  assert.equal((await warned)[0].name, "MaxListenersExceededWarning");
  controller.abort();
  await (await leases.acquire("notes")).release();
  await (await leases.acquire("notes")).release();
  await settle();
  const [event, ...rest] = heard;
  assert.deepEqual(rest, []);
  assert.ok(leases instanceof EventTarget && event instanceof LeaseEvent && event instanceof Event);
  assert.deepEqual([event.target, event.cancelable, event.bubbles], [leases, false, false]);
  assert.throws(() => (event.token = 1), TypeError);
  assert.throws(() => new LeaseEvent("granted", {}), TypeError);
  leases.addEventListener("of the user's own", (event) => heard.push(event.type));
  leases.dispatchEvent(new Event("of the user's own"));
  assert.equal(heard.at(-1), "of the user's own");
  await leases.close();
});

test("a listener that throws breaks nothing", () => {
  // In a process of its own: what a listener throws is reported to all of the process, as in a browser to the page.
  const script = `
    import { openManager, settle } from "${new URL("pkg.mjs", import.meta.url)}";
    process.on("uncaughtException", (error) => console.log("reported:", error.message));
    const leases = await openManager();
    leases.addEventListener("granted", () => { throw new Error("on purpose"); });
    for (const type of ["granted", "released"]) leases.addEventListener(type, () => console.log(type));
    await (await leases.acquire("notes")).release();
    await settle();
    await leases.close();
    console.log("closed");`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], { encoding: "utf8" });
  const lines = stdout.trim().split("\n");
  assert.deepEqual([lines.sort(), stderr], [["closed", "granted", "released", "reported: on purpose"], ""]);
});

test("a listener may ask back", async () => {
  const leases = await openManager();
  const answers = [];
  leases.addEventListener("granted", async ({ key }) => {
    answers.push(leases.stats().granted, await leases.tryAcquire(key), (await leases.status(key)).holders.length);
  });
  await leases.acquire("notes");
  await settle();
  assert.deepEqual(answers, [1, null, 1]);
  await leases.close();
});

/** What a fresh process prints that runs this script, in which every method of the console is printed as it is called. */
function consoleOf(options) {
  const script = `
    import { openManager, settle } from "${new URL("pkg.mjs", import.meta.url)}";
    const called = [];
    for (const name of Object.keys(console)) {
      if (typeof console[name] === "function") console[name] = (...args) => called.push([name, ...args]);
    }
    const [one, two] = [await openManager(${options}, "told"), await openManager({}, "told")];
    const lease = await one.acquire("notes", { mode: "shared" });
    const upgrading = lease.upgrade();
    await upgrading;
    await lease.extend(30_000);
    await (await two.steal("notes")).release();
    await lease.lost;
    await one.run("notes", { onLost: "abort" }, async () => (await two.steal("notes")).release().then(() => new Promise(() => {}))).catch(() => {});
    const held = await one.acquire("notes");
    await two.acquire("notes", { timeoutMs: 5 }).catch(() => {});
    await (await one.acquireAll([{ key: "a" }, { key: "b" }])).release();
    await one.acquire("", { wrong: 1 }).catch(() => {});
    await held.fence({}).catch(() => {});
    await Promise.all([one.close(), two.close()]);
    await settle();
    for (const [name, text, event] of called) process.stdout.write(name + " " + text + " " + event?.type + "\\n");
    process.exit();`;
  const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], { encoding: "utf8" });
  assert.equal(stderr, "");
  return stdout.trim().split("\n").filter(Boolean);
}

test("the console is silent, whatever happens", () => {
  assert.deepEqual(consoleOf("{}"), []);
  assert.deepEqual(consoleOf("{ debug: false }"), []);
});

test("with debug each event is written to console.debug, and nothing else", () => {
  const lines = consoleOf("{ debug: true }");
  assert.ok(lines.every((line) => /^debug leasehold told: (\w+) "\w+" \1$/.test(line)), lines.join("\n"));
  const told = new Set(lines.map((line) => line.split(" ").at(-1)));
  assert.deepEqual([...told].sort(), ["granted", "lost", "released", "waiting"]);
  assert.equal(lines.filter((line) => /"notes" lost/.test(line)).length, 3, lines.join("\n"));
});
