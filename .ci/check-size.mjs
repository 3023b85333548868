// Prints what the package weighs, also as JSON, and fails over .ci/size-budget.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync, gzipSync } from "node:zlib";

const PARTS = {
  wasm: "leasehold_bg.wasm",
  glue: "index.mjs",
  node: "node.mjs",
  inline: "inline.mjs",
  testing: "testing.mjs",
};
const MEASURES = ["raw", "gzip", "brotli"];
/** How much a figure may grow over the accepted one. */
const GROWTH = 1.05;

function weigh(file) {
  const bytes = readFileSync(`pkg/${file}`);
  return [bytes, gzipSync(bytes, { level: 9 }), brotliCompressSync(bytes)].map(({ length }) => length);
}

const row = (...cells) => console.log(cells.map((cell) => String(cell).padStart(9)).join(""));
const weights = Object.fromEntries(Object.entries(PARTS).map(([part, file]) => [part, weigh(file)]));
row("bytes", ...MEASURES);
for (const [part, weight] of Object.entries(weights)) row(part, ...weight);

const figures = Object.entries(weights).flatMap(([part, weight]) =>
  MEASURES.map((measure, index) => [`${part}_${measure}_bytes`, weight[index]]),
);
mkdirSync("target/bench", { recursive: true });
writeFileSync("target/bench/size.json", `${JSON.stringify(Object.fromEntries(figures), null, 2)}\n`);

const complaints = [];
const accepted = new Map();
for (const line of readFileSync(".ci/size-budget", "utf8").split("\n").filter((line) => line && !line.startsWith("#"))) {
  const [kind, part, raw, gzip, brotli, ...reason] = line.trim().split(/\s+/);
  const bounds = [raw, gzip, brotli].map((bound) => (bound === "-" ? Infinity : Number(bound)));
  const isWhole = kind === "limit" || (kind === "accepted" && reason.length > 0);
  if (!isWhole || !(part in weights) || bounds.some(Number.isNaN)) complaints.push(`.ci/size-budget: what is "${line}"?`);
  else if (kind === "limit") compare(part, bounds, 1, "the limit");
  else accepted.set(part, bounds);
}
const advice = "make it lighter, or add a line to .ci/size-budget that says why";
for (const [part, bounds] of accepted) compare(part, bounds, GROWTH, `5 % more than what was accepted: ${advice}`);

function compare(part, bounds, factor, what) {
  weights[part].forEach((weight, index) => {
    const most = Math.floor(bounds[index] * factor);
    if (weight > most) complaints.push(`${part}: ${weight} bytes ${MEASURES[index]} are over ${most}, ${what}`);
  });
}

for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exitCode = 1;
