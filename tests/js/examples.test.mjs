// The examples in the types' comments: each compiles under a strict compiler; one that imports the package by itself and prints
// something runs, and prints what its comments say. Run as types.test.mjs is.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const types = join(root, "src/js/types");
const app = join(root, "target/examples");
const lacksTsc = spawnSync("tsc", ["--version"]).error && process.env.CI !== "true" ? "there is no tsc" : false;

/** A comment's example: what stands between the fences, without the stars. */
const EXAMPLE = /@example\n\s*\* ```(?:js|ts)\n((?:\s*\*.*\n)*?)\s*\* ```/g;

function examplesOf(file) {
  const text = readFileSync(join(types, file), "utf8");
  const found = [...text.matchAll(EXAMPLE)];
  assert.equal(found.length, text.split("@example").length - 1, `${file}: an example is a block of js or ts`);
  return found.map(({ 1: block, index }) => {
    const code = block.replace(/^\s*\* ?/gm, "");
    const line = text.slice(0, index).split("\n").length;
    const whole = /^import .* from "leasehold/m.test(code);
    return { name: `${file.replace(".d.ts", "")}-${line}.mts`, code, whole, runs: whole && code.includes("console.log(") };
  });
}

const examples = readdirSync(types).filter((file) => file.endsWith(".d.ts")).flatMap(examplesOf);

/** One that imports nothing of ours is the inside of a function, which finds in examples.d.ts what it speaks of. */
function moduleOf({ code, whole }) {
  if (whole) return code;
  const lines = code.split("\n");
  const isImport = (line) => line.startsWith("import ");
  const body = lines.filter((line) => !isImport(line)).join("\n");
  return `${lines.filter(isImport).join("\n")}\nexport async function example() {\n${body}\n}\n`;
}

rmSync(app, { recursive: true, force: true });
mkdirSync(join(app, "node_modules"), { recursive: true });
symlinkSync(join(root, "pkg"), join(app, "node_modules/leasehold"), "dir");
writeFileSync(join(app, "package.json"), `{ "type": "module" }`);
copyFileSync(join(root, "tests/js/examples.d.ts"), join(app, "examples.d.ts"));
for (const example of examples) writeFileSync(join(app, example.name), moduleOf(example));

test("each example in the types compiles", { skip: lacksTsc }, () => {
  const strict = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--types", "", "--target", "es2022"];
  const lib = ["--module", "nodenext", "--lib", "es2022,dom,dom.iterable,esnext.disposable"];
  const files = examples.map(({ name }) => name);
  const { status, stdout, error } = spawnSync("tsc", [...strict, ...lib, "examples.d.ts", ...files], { cwd: app, encoding: "utf8" });
  assert.equal(status, 0, `${error ?? stdout}`);
});

for (const { name, code } of examples.filter(({ runs }) => runs)) {
  test(`the example ${name} prints what it says`, () => {
    // After the colon stands why.
    const said = [...code.matchAll(/^console\.log\(.*\); \/\/ ([^:\n]*)/gm)].map(([, words]) => words.trim());
    assert.equal(said.length, code.split("console.log(").length - 1, "a comment beside each line that prints");
    writeFileSync(join(app, name.replace(".mts", ".mjs")), code);
    const args = ["--no-warnings", "--preserve-symlinks", name.replace(".mts", ".mjs")];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: app, encoding: "utf8", timeout: 60_000 });
    assert.equal(status, 0, stderr);
    assert.deepEqual(stdout.trim().split("\n"), said);
  });
}

test("there are examples of both kinds", () => {
  assert.ok(examples.some(({ runs }) => runs) && examples.some(({ runs }) => !runs), `${examples.length} examples`);
});
