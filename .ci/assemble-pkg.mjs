// Makes what wasm-pack left in a folder the package that pkg.json describes: adds the hand-written files, drops the rest.
import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";

const folder = process.argv[2];
const manifest = JSON.parse(readFileSync("pkg.json", "utf8"));
const crateVersion = readFileSync("Cargo.toml", "utf8").match(/^version = "(.*)"$/m)[1];
if (manifest.version !== crateVersion) {
  fail(`pkg.json says version ${manifest.version}, Cargo.toml ${crateVersion}: make them equal`);
}

copyFileSync("pkg.json", `${folder}/package.json`);
cpSync("src/js/types", `${folder}/types`, { recursive: true });
for (const file of ["README.md", "LICENSE-MIT", "LICENSE-APACHE"]) copyFileSync(file, `${folder}/${file}`);

// One file of the face and the generated glue. Names stay: they stand in stack traces.
cpSync("src/js/face", folder, { recursive: true });
const bundle = [`${folder}/index.mjs`, "--bundle", "--allow-overwrite", "--format=esm", "--target=es2022"];
const small = ["--minify-whitespace", "--minify-syntax", "--legal-comments=none", "--log-level=warning"];
execFileSync("esbuild", [...bundle, ...small, `--outfile=${folder}/index.mjs`], { stdio: "inherit" });

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
