// What the inspector of the page makes of what it hears and sees. It needs no package. Run as leases.test.mjs is.
import assert from "node:assert/strict";
import { test } from "node:test";
import { History, WINDOW_MS, isSilent } from "../../www/history.mjs";

const T = 1_000_000;
const holder = { amber: "a".repeat(32), jade: "b".repeat(32) };

/** A history with the voices of two tabs in it. */
function world() {
  const history = new History();
  const says = (name) => (at, type, details = {}) => {
    const events = type ? [{ type, key: "k", mode: "exclusive", at: T + at, ...details }] : [];
    history.hear({ id: name, name, holder: holder[name], at: T + at, events });
  };
  const lane = (name, at) => history.lanes(T + at).find((lane) => lane.name === name);
  const spans = (name, at) =>
    lane(name, at).spans.map(({ kind, from, to, end }) => [kind, from - T, to === null ? null : to - T, end]);
  return { history, amber: says("amber"), jade: says("jade"), lane, spans };
}

const held = (name, token, info = name) => ({ holder: holder[name], token, info, own: false });

test("a wait, a hand-off and a release are spans and marks", () => {
  const { amber, jade, lane, spans } = world();
  amber(0, "granted", { token: 1 });
  jade(100, "waiting", { ahead: 1 });
  // The successor may be heard first.
  jade(2_010, "granted", { token: 2 });
  amber(2_000, "released", { token: 1 });
  assert.deepEqual(spans("amber", 3_000), [["holding", 0, 2_000, "released"]]);
  assert.deepEqual(spans("jade", 3_000), [["waiting", 100, 2_010, "granted"], ["holding", 2_010, null, null]]);
  assert.deepEqual(lane("amber", 3_000).marks.map(({ type }) => type), ["granted", "released"]);
});

test("who is replaced while it is silent holds no more, and its loss is marked when it wakes up", () => {
  const { history, amber, jade, lane, spans } = world();
  amber(0, "granted", { token: 1 });
  jade(100, "waiting", { ahead: 1 });
  for (let at = 500; at <= 12_000; at += 500) {
    history.looked();
    jade(at);
  }
  assert.ok(isSilent(lane("amber", 12_000)) && !isSilent(lane("jade", 12_000)));
  jade(12_100, "granted", { token: 2 });
  assert.deepEqual(spans("amber", 12_200), [["holding", 0, 12_100, "replaced"]]);
  amber(20_000, "lost", { token: 1, reason: "Expired" });
  assert.deepEqual(spans("amber", 20_100), [["holding", 0, 12_100, "replaced"]]);
  assert.deepEqual(lane("amber", 20_100).marks.at(-1), { type: "lost", key: "k", token: 1, reason: "Expired", at: T + 20_000 });
  assert.deepEqual(lane("amber", 20_100).silences, [{ from: T, to: T + 20_000 }]);
  assert.ok(!isSilent(lane("amber", 20_100)));
});

test("a late answer is no silence, nor is one that nobody asked for", () => {
  const { history, amber, lane } = world();
  amber(0);
  history.looked();
  amber(5_000);
  for (let look = 0; look < 9; look++) history.looked();
  history.rested(T + 60_000);
  amber(60_500);
  assert.deepEqual([lane("amber", 60_500).silences, isSilent(lane("amber", 60_500))], [[], false]);
});

test("whoever looks, and was frozen itself, finds its own silence and nobody else's", () => {
  const { history, jade, lane } = world();
  const own = (at) => history.hear({ id: "me", name: "me", holder: "c".repeat(32), own: true, at: T + at });
  for (const at of [0, 500, 20_500]) {
    history.looked();
    own(at);
    jade(at + 5);
  }
  assert.deepEqual(lane("me", 20_600).silences, [{ from: T + 500, to: T + 20_500 }]);
  assert.deepEqual(lane("jade", 20_600).silences, []);
});

test("what nobody tells is taken from the records, once it is settled", () => {
  const { history, amber, spans } = world();
  const status = { key: "k", holders: [held("jade", 5, "another page")], queue: [held("amber")] };
  amber(0);
  history.observe([status], T + 1_500, T + 1_510);
  assert.deepEqual(spans("another page", 1_600), [["holding", 1_510, null, null]]);
  assert.deepEqual(spans("amber", 1_600), [["waiting", 1_510, null, null]]);
  // An answer from before the grant must not undo it.
  amber(2_000, "granted", { token: 6 });
  history.observe([status], T + 1_990, T + 2_020);
  history.observe([], T + 2_500, T + 2_510);
  assert.deepEqual(spans("amber", 2_600), [["waiting", 1_510, 2_000, "granted"], ["holding", 2_000, null, null]]);
  assert.deepEqual(spans("another page", 2_600)[0][3], "replaced");
  history.observe([], T + 3_500, T + 3_510);
  assert.deepEqual(spans("amber", 3_600).at(-1), ["holding", 2_000, 3_510, "vanished"]);
});

test("a grant that is heard after its record was seen is no second turn", () => {
  const { history, amber, lane } = world();
  amber(0, "waiting", { ahead: 1 });
  history.observe([{ key: "k", holders: [held("amber", 5)], queue: [] }], T + 5_000, T + 5_010);
  amber(5_020, "granted", { token: 5 });
  assert.deepEqual(lane("amber", 5_100).spans.map(({ kind, turns, token }) => [kind, turns, token]), [
    ["waiting", 1, undefined],
    ["holding", 1, 5],
  ]);
});

test("a context that was seen before it spoke has one lane", () => {
  const { history, jade } = world();
  history.observe([{ key: "k", holders: [held("jade", 5)], queue: [] }], T, T + 10);
  jade(500);
  const [lane, ...rest] = history.lanes(T + 600);
  assert.deepEqual([lane.id, lane.spans.length, rest], ["jade", 1, []]);
});

test("many short turns are one span that counts them", () => {
  const { amber, lane } = world();
  for (let turn = 0; turn < 500; turn++) {
    amber(turn * 10, "waiting", { ahead: 1 });
    amber(turn * 10 + 4, "granted", { token: turn + 1 });
    amber(turn * 10 + 8, "released", { token: turn + 1 });
  }
  const { spans, marks } = lane("amber", 5_000);
  assert.deepEqual(spans.filter(({ kind }) => kind === "holding").map(({ turns }) => turns), [500]);
  assert.ok(spans.length <= 2 && marks.length <= 3, `${spans.length} spans, ${marks.length} marks`);
});

test("a tab that said farewell, and what is long over, goes", () => {
  const { history, amber, jade, lane, spans } = world();
  amber(0, "granted", { token: 1 });
  jade(0);
  history.hear({ id: "amber", name: "amber", holder: holder.amber, at: T + 1_000, bye: true });
  assert.deepEqual([spans("amber", 1_100), lane("amber", 1_100).gone], [[["holding", 0, 1_000, "closed"]], true]);
  const later = T + 1_100 + WINDOW_MS;
  history.looked();
  jade(WINDOW_MS);
  assert.deepEqual(history.lanes(later).map(({ name }) => name), ["jade"]);
  history.hear({ id: "silver", name: "silver", holder: "c".repeat(32), at: T + 1_000, bye: true });
  assert.equal(lane("silver", 1_000), undefined, "one that did nothing goes at once");
});
