// Makes the wasm that wasm-bindgen left as small as it gets, compressed above all: node .ci/shrink-wasm.mjs WASM GLUE
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, rmSync, writeFileSync } from "node:fs";

const [file, glue] = process.argv.slice(2);
const text = `${file}.wat`;

/** What rustc takes for granted. The text does not say it. */
const FEATURES = [
  "bulk-memory",
  "bulk-memory-opt",
  "multivalue",
  "mutable-globals",
  "nontrapping-float-to-int",
  "reference-types",
  "sign-ext",
];
const SMALL = [
  "-Oz",
  "--converge",
  // What is inlined into its one caller takes part in no repetition any more, and compresses worse by a twentieth.
  "--always-inline-max-function-size=0",
  "--one-caller-inline-max-function-size=0",
  // The first KiB is the end of the stack: who reaches it is about to overflow.
  "--low-memory-unused",
];

optimize(file, ...SMALL, "-S", "-o", text);
rewrite(likeBesideLike);
keepFromInlining();
shortenNames();
optimize(text, "-o", file);
writeFileSync("target/wasm-functions.json", JSON.stringify(namesOf(readFileSync(text, "utf8"))));
rmSync(text);

/** The functions in their order, by names that the wasm no longer has: .ci/itemise-size.mjs asks for them. */
function namesOf(wasm) {
  return [...wasm.matchAll(/^ \(func \$("[^"]*"|\S+)/gm)].map(([, name]) => name.replaceAll('"', ""));
}

function optimize(...options) {
  const features = FEATURES.map((feature) => `--enable-${feature}`);
  if (spawnSync("wasm-opt", [...features, "--quiet", ...options], { stdio: "inherit" }).status !== 0) {
    throw new Error("wasm-opt failed");
  }
}

/** Changes the list of the functions, each a text of its own. */
function rewrite(change) {
  const [head, ...functions] = readFileSync(text, "utf8").split(/^(?= \(func )/m);
  const end = functions.length - 1;
  functions[end] = functions[end].replace(/\)\s*$/, "");
  writeFileSync(text, `${head}${change(functions).join("")})\n`);
}

/** If the prebuilt standard library is used, the wasm has functions that return references. V8 before version 13 (Node.js 20 and 22,
 *  Chromium of 2024) inlines a call of wasm into optimized JavaScript, and ends the whole process if that JavaScript is deoptimized
 *  during a call that returns a reference. V8 inlines no function that takes a `funcref`, so each function that returns a reference
 *  takes one more argument, a null. tests/js/optimized.test.mjs */
function keepFromInlining() {
  let wasm = readFileSync(text, "utf8");
  let javascript = readFileSync(glue, "utf8");
  const exported = [...wasm.matchAll(/^ \(export "(\w+)" \(func (.+)\)\)$/gm)];
  wasm = wasm.replaceAll(/^( \(func (\$"[^"]*"|\S+)(?: \(param \S+ \w+\))*) \(result externref\)$/gm, (whole, head, func) => {
    const names = exported.filter(([, , own]) => own === func).map(([, name]) => name);
    if (names.length === 0) return whole;
    if (wasm.includes(`(call ${func}`) || wasm.includes(`(ref.func ${func}`)) {
      throw new Error(`the wasm itself calls ${names}, and would lack the new argument: have keepFromInlining() add it there, too`);
    }
    for (const name of names) javascript = withLastArgument(javascript, `wasm.${name}(`, "null");
    return `${head} (param funcref) (result externref)`;
  });
  writeFileSync(text, wasm);
  writeFileSync(glue, javascript);
}

/** Adds an argument to each call that begins so. */
function withLastArgument(javascript, call, argument) {
  const [head, ...calls] = javascript.split(call);
  const longer = calls.map((rest) => {
    let depth = 1;
    const end = [...rest].findIndex((letter) => (depth += { "(": 1, ")": -1 }[letter] ?? 0) === 0);
    return `${call}${rest.slice(0, end)}${end > 0 ? ", " : ""}${argument}${rest.slice(end)}`;
  });
  return head + longer.join("");
}

/** Gives short names to all that the wasm and its glue give each other. Two builds use the same short
 *  names, so the name of the memory tells the builds apart. */
function shortenNames() {
  let count = 0;
  const short = () => (count++).toString(36);
  let wasm = readFileSync(text, "utf8");
  const build = createHash("sha256").update(wasm).digest("hex").slice(0, 6);
  let javascript = readFileSync(glue, "utf8");
  wasm = wasm.replaceAll(/^ \(export "(\w+)"/gm, (_, name) => {
    const letter = `_${name === "memory" ? build : short()}`;
    javascript = javascript.replaceAll(new RegExp(`\\bwasm\\.${name}\\b`, "g"), `wasm.${letter}`);
    return ` (export "${letter}"`;
  });
  wasm = wasm.replaceAll(/^ \(import "([^"]+)" "(\w+)"/gm, (_, module, name) => {
    const letter = `_${short()}`;
    javascript = javascript.replaceAll(new RegExp(`^( +)${name}\\b`, "gm"), `$1${letter}`).replaceAll(`"${module}"`, '"_"');
    return ` (import "_" "${letter}"`;
  });
  writeFileSync(text, wasm);
  writeFileSync(glue, javascript);
}

/** Puts each function behind the one that it has most in common with: what repeats itself nearby compresses best. */
function likeBesideLike(functions) {
  const pieces = functions.map(piecesOf);
  const places = new Map();
  pieces.forEach((own, at) => {
    for (const piece of own) places.has(piece) ? places.get(piece).push(at) : places.set(piece, [at]);
  });
  const left = new Set(functions.keys());
  const order = [];
  let next = 0;
  while (next !== undefined) {
    order.push(next);
    left.delete(next);
    next = mostAlike(order.slice(-8).reverse(), pieces, places, left) ?? left.keys().next().value;
  }
  return order.map((at) => functions[at]);
}

/** All that a function does in three steps. */
function piecesOf(code) {
  const steps = code.split("\n").slice(1).map((line) => line.trim());
  return new Set(steps.slice(2).map((step, at) => `${steps[at]} ${steps[at + 1]} ${step}`));
}

function mostAlike(recent, pieces, places, left) {
  const shared = new Map();
  recent.forEach((at, age) => {
    for (const piece of pieces[at]) {
      const others = places.get(piece);
      // What is everywhere tells nothing.
      if (others.length > 200) continue;
      for (const other of others) if (left.has(other)) shared.set(other, (shared.get(other) ?? 0) + 1 / (age + 1));
    }
  });
  let best;
  let most = 0;
  for (const [other, count] of shared) {
    const part = count / (pieces[other].size + 4);
    if (part > most) [best, most] = [other, part];
  }
  return best;
}
