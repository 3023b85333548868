// Prints what the package weighs and fails over .ci/size-budget.
import { readFileSync, readdirSync } from "node:fs";
import { brotliCompressSync, gzipSync } from "node:zlib";

const files = readdirSync("pkg");
const parts = {
  wasm: files.filter((file) => file.endsWith(".wasm")),
  glue: files.filter((file) => /\.m?js$/.test(file)),
};

function weigh(part) {
  const weight = { raw: 0, gzip: 0, brotli: 0 };
  for (const file of part) {
    const bytes = readFileSync(`pkg/${file}`);
    weight.raw += bytes.length;
    weight.gzip += gzipSync(bytes, { level: 9 }).length;
    weight.brotli += brotliCompressSync(bytes).length;
  }
  return weight;
}

const complaints = [];
const row = (...cells) => console.log(cells.map((cell) => String(cell).padStart(9)).join(""));
row("bytes", "raw", "gzip", "brotli");
const lines = readFileSync(".ci/size-budget", "utf8").split("\n").filter((line) => line && !line.startsWith("#"));
for (const line of lines) {
  const [name, raw, gzip] = line.split(/\s+/);
  const weight = weigh(parts[name]);
  row(name, weight.raw, weight.gzip, weight.brotli);
  for (const [measure, limit] of Object.entries({ raw, gzip })) {
    if (limit === "-" || weight[measure] <= Number(limit)) continue;
    complaints.push(`${name}: ${weight[measure]} bytes ${measure} are over the ${limit} of .ci/size-budget`);
  }
}
for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exitCode = 1;
