// Makes what wasm-pack left in a folder the package that pkg.json describes: adds the hand-written files, drops the rest.
import { copyFileSync, existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";

const folder = process.argv[2];
const manifest = JSON.parse(readFileSync("pkg.json", "utf8"));
const crateVersion = readFileSync("Cargo.toml", "utf8").match(/^version = "(.*)"$/m)[1];
if (manifest.version !== crateVersion) {
  fail(`pkg.json says version ${manifest.version}, Cargo.toml ${crateVersion}: make them equal`);
}

copyFileSync("pkg.json", `${folder}/package.json`);
copyFileSync("src/js/index.mjs", `${folder}/index.mjs`);
copyFileSync("src/js/types.d.ts", `${folder}/${manifest.types ?? manifest.exports["."].types}`);
for (const file of ["README.md", "LICENSE-MIT", "LICENSE-APACHE"]) copyFileSync(file, `${folder}/${file}`);

// Comments are an eighth of the generated glue, and some name files that are not in the package.
const glue = readFileSync(`${folder}/leasehold.js`, "utf8");
writeFileSync(`${folder}/leasehold.js`, glue.replace(/^\s*(\/\*[^]*?\*\/|\/\/.*)\n/gm, ""));

// npm packs these two whether they are listed or not.
const wanted = new Set(["package.json", "README.md", ...manifest.files]);
for (const file of readdirSync(folder)) {
  if (!wanted.has(file)) rmSync(`${folder}/${file}`, { recursive: true });
}
for (const file of wanted) {
  if (!existsSync(`${folder}/${file}`)) fail(`pkg.json lists ${file}, which the build did not make`);
}

function fail(sentence) {
  console.error(sentence);
  process.exit(1);
}
