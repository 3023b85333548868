// Makes what wasm-pack left in pkg/ the package that pkg.json describes: adds the hand-written files, drops the rest.
import { copyFileSync, existsSync, readFileSync, readdirSync, rmSync } from "node:fs";

const manifest = JSON.parse(readFileSync("pkg.json", "utf8"));
const crateVersion = readFileSync("Cargo.toml", "utf8").match(/^version = "(.*)"$/m)[1];
if (manifest.version !== crateVersion) {
  fail(`pkg.json says version ${manifest.version}, Cargo.toml ${crateVersion}: make them equal`);
}

copyFileSync("pkg.json", "pkg/package.json");
copyFileSync("src/js/index.mjs", "pkg/index.mjs");
copyFileSync("src/js/types.d.ts", `pkg/${manifest.types ?? manifest.exports["."].types}`);
for (const file of ["README.md", "LICENSE-MIT", "LICENSE-APACHE"]) copyFileSync(file, `pkg/${file}`);

// npm packs these two whether they are listed or not.
const wanted = new Set(["package.json", "README.md", ...manifest.files]);
for (const file of readdirSync("pkg")) {
  if (!wanted.has(file)) rmSync(`pkg/${file}`, { recursive: true });
}
for (const file of wanted) {
  if (!existsSync(`pkg/${file}`)) fail(`pkg.json lists ${file}, which the build did not make`);
}

function fail(sentence) {
  console.error(sentence);
  process.exit(1);
}
