// Makes what wasm-pack left in a folder the package that pkg.json describes: adds the hand-written files, drops the rest.
import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";

const folder = process.argv[2];

/** The name of the wasm's memory, by which .ci/shrink-wasm.mjs tells the builds apart. */
const MEMORY = /\bwasm\.(_[0-9a-f]{6})\.buffer\b/;
/** What hands the wasm to the glue. */
const FINALIZE = /^function __wbg_finalize_init\(instance, module\) \{\n[^}]*\}\n/m;

/** How the glue opens a channel. */
const OPENS_CHANNEL = /const ret = new BroadcastChannel\(.*;\n/;

const manifest = JSON.parse(readFileSync("pkg.json", "utf8"));
const crateVersion = readFileSync("Cargo.toml", "utf8").match(/^version = "(.*)"$/m)[1];
if (manifest.version !== crateVersion) {
  fail(`pkg.json says version ${manifest.version}, Cargo.toml ${crateVersion}: make them equal`);
}

cpSync("src/js/types", `${folder}/types`, { recursive: true });
cpSync("docs", `${folder}/docs`, { recursive: true });
for (const page of readdirSync(`${folder}/docs`)) leadHome(`${folder}/docs/${page}`);
for (const file of ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"]) copyFileSync(file, `${folder}/${file}`);

cpSync("src/js/face", folder, { recursive: true });
writeFileSync(`${folder}/leasehold.js`, withOwnLoader(readFileSync(`${folder}/leasehold.js`, "utf8")));
// One file per entry, of the face and the generated glue.
const entries = manifest.files.filter((file) => file.endsWith(".mjs"));
const bundle = ["--bundle", "--allow-overwrite", "--format=esm", "--target=es2022", "--external:node:*", "--loader:.wasm=base64"];
const small = ["--minify", "--legal-comments=none", "--log-level=warning"];
// Those for tests have a clock of their own in the place of the browser's.
const isForTests = (file) => file.startsWith("testing");
// If nobody catches an error, Node.js prints the whole line of code that threw it, and only then the message.
const isForNode = (file) => file.endsWith("node.mjs");
for (const [select, ...more] of [[isForNode, "--line-limit=160"], [(file) => !isForNode(file)]]) {
  const selected = entries.filter((file) => select(file));
  // The bundles for tests contain the other entries, and each bundle overwrites its source. So those for tests are built first.
  build(selected.filter((file) => isForTests(file)), ...more, `--inject:${folder}/clock.mjs`);
  build(selected.filter((file) => !isForTests(file)), ...more);
}

// Not before: by its `sideEffects` the parts of a bundle would lose what they do beside exporting.
copyFileSync("pkg.json", `${folder}/package.json`);

// npm packs these two whether they are listed or not.
const wanted = new Set(["package.json", "README.md", ...manifest.files]);
for (const file of readdirSync(folder)) {
  if (!wanted.has(file)) rmSync(`${folder}/${file}`, { recursive: true });
}
for (const file of wanted) {
  if (!existsSync(`${folder}/${file}`)) fail(`pkg.json lists ${file}, which the build did not make`);
}

function build(entries, ...more) {
  const sources = entries.map((file) => `${folder}/${file}`);
  const place = [`--outdir=${folder}`, "--out-extension:.js=.mjs"];
  execFileSync("esbuild", [...sources, ...bundle, ...small, ...place, ...more], { stdio: "inherit" });
}

/** Where a page links to what is not in the package, the link leads to the repository. */
function leadHome(page) {
  const home = manifest.repository.url.replace(/^git\+(.*)\.git$/, "$1/blob/HEAD/");
  const within = (path) => ["README.md", "CHANGELOG.md"].includes(path.split("#")[0]);
  const text = readFileSync(page, "utf8");
  writeFileSync(page, text.replace(/\]\(\.\.\/([^)]+)\)/g, (link, path) => (within(path) ? link : `](${home}${path})`)));
}

/** The glue with a loader that takes what face/loading.mjs gives it. The generated one warns in the console, and has a URL
 *  of its own, for which bundlers would emit the wasm a second time. */
function withOwnLoader(glue) {
  const [imports, generated, ...more] = glue.split(/^async function __wbg_load\b/m);
  if (!generated || more.length > 0 || !FINALIZE.test(imports) || !MEMORY.test(imports)) {
    fail("wasm-bindgen's glue has changed: see what has become of its loader");
  }
  if (!OPENS_CHANNEL.test(imports)) fail("the glue opens its channels in another way: call their unref() there, where they have it");
  // The wasm calls `warn` and `waitsLong` by these names.
  return `import { isA, warn } from "./options.mjs";
import { waitsLong } from "./own-wait.mjs";
${shorter(imports).replace(FINALIZE, "")}
function orNone(value) {
  return isLikeNone(value) ? 0 : addHeapObject(value);
}
function leaveText(place, text) {
  getDataViewMemory0().setInt32((place >>> 0) + 4, WASM_VECTOR_LEN, true);
  getDataViewMemory0().setInt32(place >>> 0, text, true);
}

export default async function load(source) {
  const made = await WebAssembly[isA("Response", source) ? "instantiateStreaming" : "instantiate"](source, __wbg_get_imports());
  const { exports } = made.instance ?? made;
  if (!exports.${imports.match(MEMORY)[1]}) throw new Error("another build");
  wasm = exports;
}\n`;
}

/** Writes the same glue in fewer bytes. The functions that the wasm imports use neither `this` nor their names, so arrow functions will do.
 *  No user can dispose of the wasm's classes. Each browser that can read the rest of the glue has `encodeInto`, `FinalizationRegistry` and
 *  `globalThis`. The face passes the wasm nothing that cannot be copied, so nothing has to be freed halfway. */
function shorter(glue) {
  const [, malloc, realloc] = glue.match(/passStringToWasm0\(\w+, (wasm\.\w+), (wasm\.\w+)\)/);
  return glue
    .replace("passStringToWasm0(arg, malloc, realloc)", `passStringToWasm0(arg, malloc = ${malloc}, realloc = ${realloc})`)
    // Our wasm always exports the `realloc` that this code could do without.
    .replace(/^ +if \(realloc === undefined\) \{\n[^}]*\}\n/m, "")
    .replace(/^( +)ptr = ptr >>> 0;\n +return decodeText\(getUint8ArrayMemory0\(\).*\n/m, "$1return decodeText(getArrayU8FromWasm0(ptr, len));\n")
    .replace("ptr / 1, ptr / 1 + len", "ptr, ptr + len")
    // Once a memory has grown, it has another buffer, and the earlier buffer is empty.
    .replace(/(\w+) === null \|\| \1\.byteLength === 0/, "!$1?.byteLength")
    .replace(/^( +if \()(\w+) === null \|\| \2\.buffer\.detached .* (wasm\.\w+\.buffer)\)\) \{$/m, "$1$2?.buffer !== $3) {")
    // In Node.js an open channel would keep the process alive.
    .replace(OPENS_CHANNEL, "$&ret.unref?.();\n")
    .replaceAll(/isLikeNone\((\w+)\) \? 0 : addHeapObject\(\1\)/g, "orNone($1)")
    .replaceAll(/typeof (\w+) === 'undefined' \? \w+ : \1;/g, "globalThis;")
    .replaceAll(/: function\(\) \{ return handleError\(function \(([^)]*)\) \{/g, ": (...given) => handleError(($1) => {")
    .replaceAll("}, arguments); },", "}, given),")
    .replaceAll(/(passStringToWasm0\(\w+), wasm\.\w+, wasm\.\w+\)/g, "$1)")
    .replaceAll(/(?:const|var) ptr1 = (.*);\n.* len1 = .*\n +getDataView.*, len1, true\);\n +getDataView.*, ptr1, true\);/g, "leaveText(arg0, $1);")
    .replaceAll(/^( +\w+): function\(([^)]*)\) \{/gm, "$1: ($2) => {")
    .replaceAll(/const ret = (.*);\n +return (\w+)\(ret\);/g, "return $2($1);")
    .replaceAll(/const ret = (.*);\n +return ret( .*)?;/g, "return $1$2;")
    .replaceAll(/try \{\n([^}]*)\} catch \(e\) \{\n(?: +if \(ptr\d\) .*\n)+ +throw e;\n +\}\n/g, "$1")
    .replaceAll(/\(typeof FinalizationRegistry === 'undefined'\)\n.*\n +: new/g, "new")
    .replaceAll(/^ +wasm(Instance|Module) = .*\n/gm, "")
    .replaceAll(/^if \(Symbol\.dispose\).*\n/gm, "")
    .replaceAll(/__destroy_into_raw\(\) \{\n([^}]*) +return ptr;\n +\}\n +free\(\) \{\n.*\n/g, "free() {\n$1")
    .replaceAll("__wbg_ptr", "_at")
    .replace(/^if \(!\('encodeInto' in cachedTextEncoder\)\) \{[^]*?^\}\n/m, "");
}

function fail(sentence) {
  console.error(sentence);
  process.exit(1);
}
