// Whose code has the processor. The time of a call is exclusive: what it spends in another call that is wrapped counts there.
const now = performance.now.bind(performance);
const DEEPEST = 512;

const began = new Float64Array(DEEPEST);
// What the calls inside took, and how many they were.
const inside = new Float64Array(DEEPEST);
const within = new Float64Array(DEEPEST);
const open = [];
let depth = 0;
const entries = [];

// The same function, whose time is noted under this name.
export function spanned(group, name, call) {
  const entry = entryOf(group, name);
  return function (...args) {
    beginSpan(entry);
    try {
      return call.apply(this, args);
    } finally {
      endSpan();
    }
  };
}

// Counts the time until `endSpan()` for this entry.
export function beginSpan(entry) {
  depth++;
  open[depth] = entry;
  inside[depth] = 0;
  within[depth] = 0;
  began[depth] = now();
}

export function endSpan() {
  const took = now() - began[depth];
  const entry = open[depth];
  entry.calls++;
  entry.within += within[depth];
  entry.ms += took - inside[depth];
  depth--;
  inside[depth] += took;
  within[depth]++;
}

// The entry of a part of the work in the wasm, for `beginSpan()`.
export const part = (name) => entryOf("part", name);

function entryOf(group, name) {
  const known = entries.find((entry) => entry.group === group && entry.name === name);
  if (known) return known;
  const entry = { group, name, calls: 0, within: 0, ms: 0 };
  entries.push(entry);
  return entry;
}

export function clearSpans() {
  for (const entry of entries) Object.assign(entry, { calls: 0, within: 0, ms: 0 });
}

export function spansSoFar() {
  return entries.filter(({ calls }) => calls > 0).map((entry) => ({ ...entry }));
}

// What the wrapping takes, so that it can be taken off: `withinMs` counts in the time of the wrapped call, `aroundMs` in its
// caller's. `partMs` is what the two calls take that begin and end a part. Measured by a wasm that calls an empty function again
// and again.
export async function calibrate() {
  const calls = 20_000;
  const bare = await caller(() => {});
  const wrapped = await caller(spanned("calibration", "empty", () => {}));
  const empty = part("empty");
  const marked = await caller(() => {
    beginSpan(empty);
    endSpan();
  });
  const best = { bare: Infinity, within: Infinity, whole: Infinity, marked: Infinity };
  for (let round = 0; round < 12; round++) {
    clearSpans();
    const bareMs = timed(() => bare(calls));
    const wholeMs = timed(() => wrapped(calls));
    const [{ ms }] = spansSoFar();
    // The first rounds are not compiled yet.
    if (round < 3) continue;
    best.bare = Math.min(best.bare, bareMs / calls);
    if (wholeMs / calls < best.whole) Object.assign(best, { whole: wholeMs / calls, within: ms / calls });
    best.marked = Math.min(best.marked, timed(() => marked(calls)) / calls);
  }
  clearSpans();
  return { bareMs: best.bare, withinMs: best.within, aroundMs: best.whole - best.within - best.bare, partMs: best.marked + best.bare };
}

function timed(work) {
  const started = now();
  work();
  return now() - started;
}

// (module (import "_" "f" (func)) (func (export "g") (param i32) the parameter says how often `f` is called))
const CALLER = [
  [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
  [1, 8, 2, 0x60, 0, 0, 0x60, 1, 0x7f, 0],
  [2, 7, 1, 1, 0x5f, 1, 0x66, 0, 0],
  [3, 2, 1, 1],
  [7, 5, 1, 1, 0x67, 0, 1],
  [10, 18, 1, 16, 0, 3, 0x40, 0x10, 0, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x0b],
];

async function caller(call) {
  const { instance } = await WebAssembly.instantiate(new Uint8Array(CALLER.flat()), { _: { f: call } });
  return instance.exports.g;
}
