// What the profile of the browser (benches/browser/profile/) makes of its hooks. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { digest } from "../../benches/browser/profile/digest.mjs";
import { hearParts } from "../../benches/browser/profile/parts.mjs";
import { begin, end, mark, wait } from "../../benches/browser/profile/sample.mjs";
import { calibrate, spanned } from "../../benches/browser/profile/spans.mjs";
import { hookWasm } from "../../benches/browser/profile/wasm.mjs";

// Before the package is loaded, as in the page.
const module = await readFile(new URL("../../pkg/index.mjs", import.meta.url), "utf8");
await hookWasm(`data:text/javascript,${encodeURIComponent(module)}`);
const { openManager } = await import("./pkg.mjs");

const busyFor = (ms) => {
  const until = performance.now() + ms;
  while (performance.now() < until);
};

test("the package works behind the hooks, and its calls are seen under names", async () => {
  const leases = await openManager();
  begin();
  const lease = await leases.acquire("a key");
  await lease.release();
  const sample = end();
  await leases.close();
  const named = (group) => sample.spans.filter((span) => span.group === group).map(({ name }) => name);
  assert.ok(named("wasm").includes("request()") && named("wasm").includes("release()"), named("wasm"));
  assert.ok(named("import").includes("performance.now()"), named("import"));
  // A name is words, not code.
  for (const name of named("import")) assert.match(name, /^[\w.]+(\(\)|\??)$|^[a-z]+ [\w ]+\??$/i);
  const sum = sample.spans.reduce((ms, span) => ms + span.ms, 0);
  assert.ok(sum > 0 && sum <= sample.ended - sample.began, `${sum} ms`);
});

test("the time of a call is without that of the calls in it", () => {
  const inner = spanned("test", "inner", () => busyFor(20));
  const outer = spanned("test", "outer", () => {
    inner();
    busyFor(5);
  });
  begin();
  outer();
  const { began, ended, spans } = end();
  const ms = (wanted) => spans.find(({ name }) => name === wanted).ms;
  assert.ok(ms("inner") >= 20 && ms("outer") >= 5, `${ms("inner")}, ${ms("outer")}`);
  assert.ok(ms("inner") + ms("outer") <= ended - began, "no time counts twice");
});

test("a part is told apart from the call that it is in, and from the calls in it", () => {
  hearParts();
  const inner = spanned("test", "within a part", () => {});
  const outer = spanned("test", "around a part", () => {
    leaseholdParts.begin(1);
    inner();
    leaseholdParts.end();
  });
  begin();
  outer();
  const seen = end().spans.map(({ group, name, within }) => [group, name, within]);
  assert.deepEqual(seen.sort(), [["part", "decode", 1], ["test", "around a part", 1], ["test", "within a part", 0]]);
});

test("a call that throws ends its time", () => {
  const failing = spanned("test", "failing", () => {
    throw new RangeError("on purpose");
  });
  const outer = spanned("test", "outer", () => assert.throws(failing, RangeError));
  begin();
  outer();
  const seen = end().spans.map(({ name, calls, within }) => [name, calls, within]);
  assert.deepEqual(seen.sort(), [["failing", 1, 0], ["outer", 1, 1]]);
});

test("a digest has the course, the counts and the waits of the middle half", () => {
  const sample = (ms) => ({
    began: 0,
    ended: ms,
    marks: [["asked", ms / 4], ["answered", ms / 2]],
    waits: [["asked to answered", ms / 4]],
    spans: [{ group: "test", name: "work", calls: 2, within: 1, ms: ms / 10 }],
  });
  const { us, medianUs, course, marks, waits, spans } = digest([1, 2, 2, 100].map(sample), { withinMs: 0.01, aroundMs: 0.02 });
  assert.deepEqual([us, medianUs, marks], [2_000, 2_000, { asked: 1, answered: 1 }]);
  assert.deepEqual(course.steps.map(({ us }) => us), [500, 500, 1_000]);
  assert.deepEqual(waits, [{ name: "asked to answered", count: 1, us: 500 }]);
  // Taken off: what two calls take within themselves, and what one takes around.
  assert.equal(Math.round(spans[0].us), 200 - 2 * 10 - 20);
});

test("nothing is marked between two samples", () => {
  mark("before");
  begin();
  const answered = wait("a wait");
  const { marks, waits } = end();
  mark("after");
  answered();
  assert.deepEqual([marks, waits.length], [[], 1]);
});

test("wrapping a call takes less than 20 µs", async () => {
  const { bareMs, withinMs, aroundMs } = await calibrate();
  for (const ms of [bareMs, withinMs, aroundMs]) assert.ok(ms > -0.001 && ms < 0.02, `${ms}`);
});
