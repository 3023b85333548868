// Says what each part of the wasm weighs, on the terminal and in docs/size.md: node .ci/itemise-size.mjs, after .ci/pkg
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const WASM = "pkg/leasehold_bg.wasm";
const PAGE = "docs/size.md";
const CODE_SECTION = 10;

/** The parts of the code, each with how the names of its functions begin. The first that fits counts. */
const PARTS = [
  ["what a store does: records, the queue, their text", /^leasehold::machine::record/],
  ["what a context does: asking, heartbeats, doubt, waiting", /^leasehold::machine::context/],
  ["keys, times and options, shared by stores and contexts", /^leasehold::machine/],
  ["the driver: timers, transactions in flight, events", /^leasehold::(driver|oneshot|events)/],
  ["the manager, requests and guards", /^leasehold::client/],
  ["what JavaScript calls", /^(leasehold::js|lease[a-z]*_|jslease|__wbg)/],
  ["IndexedDB", /^leasehold::store::(indexed_db|fenced)/],
  ["the store in memory", /^leasehold::store/],
  ["BroadcastChannel and Web Locks, as signals", /^leasehold::signal::broadcast/],
  ["signals within one context", /^leasehold::signal/],
  ["the executor of browsers", /^leasehold::executor/],
  ["dropping values", /drop_in_place/],
  ["the allocator", /^(rlsf|__rustc|__rust_)/],
  ["Rust's standard library", /^(core|alloc|std|str|u8|u32|u64|i32|usize|f64|compiler_builtins|mem)\b/],
  ["wasm-bindgen, js-sys and web-sys", /^(wasm_bindgen|js_sys|web_sys|__externref|__wbindgen|gloo)/],
  ["futures", /^futures/],
  ["the rest", /^/],
];

const wasm = readFileSync(WASM);
const names = JSON.parse(readFileSync("target/wasm-functions.json", "utf8"));
const functions = functionsOf(wasm);
if (functions.length !== names.length) {
  throw new Error(`${WASM} has ${functions.length} functions, but the last build had ${names.length}; rebuild it with .ci/pkg`);
}
functions.forEach((item, at) => (item.part = PARTS.findIndex(([, begins]) => begins.test(pathOf(names[at])))));

const whole = gzip(wasm);
const rows = PARTS.map(([part], at) => row(part, functions.filter((item) => item.part === at)));
const code = rows.reduce((sum, { bytes }) => sum + bytes, 0);
rows.sort((one, other) => other.bytes - one.bytes);
const data = { part: "texts and tables, types, imports and exports", count: "", bytes: wasm.length - code, alone: "" };
const table = [
  "| part | functions | bytes | saved, gzip, without it |",
  "| --- | --: | --: | --: |",
  ...[...rows, data].filter(({ bytes }) => bytes > 0).map(lineOf),
  lineOf({ part: "**the whole**", count: functions.length, bytes: wasm.length, alone: whole }),
].join("\n");

console.log(table);
const page = readFileSync(PAGE, "utf8");
const marked = /(<!-- items -->\n\n)[^]*(\n\n<!-- end of items -->)/;
if (!marked.test(page)) throw new Error(`${PAGE} has no place for the table; put the lines <!-- items --> and <!-- end of items --> into it`);
writeFileSync(PAGE, page.replace(marked, (_, before, after) => before + table + after));

function row(part, own) {
  const bytes = own.reduce((sum, { start, end }) => sum + end - start, 0);
  return { part, count: own.length, bytes, alone: whole - gzip(without(own)) };
}

function lineOf({ part, count, bytes, alone }) {
  return `| ${part} | ${shown(count)} | ${shown(bytes)} | ${shown(alone)} |`;
}

function shown(number) {
  return number.toLocaleString("en");
}

function gzip(bytes) {
  return gzipSync(bytes, { level: 9 }).length;
}

/** The wasm without the code of these functions: no browser would take it, but it compresses as one that lacks them. */
function without(own) {
  const kept = [];
  let from = 0;
  for (const { start, end } of own) {
    kept.push(wasm.subarray(from, start));
    from = end;
  }
  return Buffer.concat([...kept, wasm.subarray(from)]);
}

/** The path of the type or function that a name begins with, without the crates' hashes. */
function pathOf(name) {
  return name
    .replace(/^byn\$\S*?\$/, "")
    .replace(/\[[0-9a-f]+\]/g, "")
    .replace(/^[<&[*]*(mut |dyn |const )*/, "");
}

/** Where each function stands: https://webassembly.github.io/spec/core/binary/modules.html#code-section */
function functionsOf(bytes) {
  let at = 8;
  for (;;) {
    const section = bytes[at];
    const [length, start] = numberAt(bytes, at + 1);
    if (section === CODE_SECTION) return bodiesOf(bytes, start);
    at = start + length;
  }
}

function bodiesOf(bytes, start) {
  const [count, first] = numberAt(bytes, start);
  const bodies = [];
  let at = first;
  while (bodies.length < count) {
    const [length, body] = numberAt(bytes, at);
    bodies.push({ start: at, end: body + length });
    at = body + length;
  }
  return bodies;
}

/** A number of the wasm, in LEB128, and where it ends. */
function numberAt(bytes, at) {
  let value = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at++];
    value += (byte & 127) * 2 ** shift;
    if (byte < 128) return [value, at];
  }
}
