// Makes the wasm that wasm-bindgen left as small as it gets, compressed above all: node .ci/shrink-wasm.mjs WASM GLUE
import { spawnSync } from "node:child_process";
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

/** Gives short names to all that the wasm and its glue give each other. */
function shortenNames() {
  let count = 0;
  const short = () => (count++).toString(36);
  let wasm = readFileSync(text, "utf8");
  let javascript = readFileSync(glue, "utf8");
  wasm = wasm.replaceAll(/^ \(export "(\w+)"/gm, (_, name) => {
    const letter = `_${short()}`;
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
    next = mostAlike(order.slice(-12).reverse(), pieces, places, left) ?? left.keys().next().value;
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
