// The installed package's types, as TypeScript's oldest and newest versions that we know to work see them.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { before, test } from "node:test";
import { join } from "node:path";
import { install, lacksBundlers, place, root } from "./packed.mjs";

const STRICT = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--verbatimModuleSyntax"];
const CHECKED = [...STRICT, "--skipLibCheck", "false", "--typeRoots", "none", "--target", "es2022"];
const NODE16 = ["--module", "node16", "--moduleResolution", "node16"];
const NODE_NEXT = ["--module", "nodenext", "--moduleResolution", "nodenext"];
const BUNDLER = ["--module", "esnext", "--moduleResolution", "bundler"];
const LIBS = ["es2022,webworker", "esnext,dom,dom.iterable", "es2022,dom,esnext.disposable"];
const LIB = "es2022,dom";

/** By compiler, each way to find modules in it. */
const COMPILERS = {
  "typescript-5.2": [NODE16, BUNDLER],
  typescript: [NODE16, NODE_NEXT, BUNDLER, ["--module", "preserve"]],
};

let folder;
before(() => {
  if (lacksBundlers) return;
  folder = install("compiled");
  const sample = readFileSync(join(root, "tests/js/sample.mts"), "utf8");
  writeFileSync(join(folder, "sample.mts"), sample);
  writeFileSync(join(folder, "inline.mts"), sample.replace('from "leasehold";', 'from "leasehold/inline";'));
});

function tsc(compiler, ...args) {
  const program = join(place, "node_modules", compiler, "bin/tsc");
  return spawnSync(process.execPath, [program, ...CHECKED, ...args], { cwd: folder, encoding: "utf8" });
}

function compiles(compiler, module, lib, ...files) {
  test(`${compiler} ${module.join(" ")} --lib ${lib}: ${files}`, { skip: lacksBundlers }, () => {
    const { status, stdout } = tsc(compiler, ...module, "--lib", lib, ...files);
    assert.equal(status, 0, stdout);
  });
}

for (const [compiler, modules] of Object.entries(COMPILERS)) {
  for (const module of modules) compiles(compiler, module, LIB, "sample.mts", "inline.mts");
  for (const lib of LIBS) compiles(compiler, BUNDLER, lib, "sample.mts");
}

test("the TypeScript lines in the guide on frameworks compile", { skip: lacksBundlers }, () => {
  const guide = readFileSync(join(root, "docs/frameworks.md"), "utf8");
  const [, lines] = guide.match(/Code that TypeScript has compiled\s+needs these lines[^`]*```js\n([^]*?)```/);
  writeFileSync(join(folder, "symbols.mts"), lines);
  for (const compiler of Object.keys(COMPILERS)) {
    for (const lib of LIBS) {
      const { status, stdout } = tsc(compiler, ...BUNDLER, "--lib", lib, "symbols.mts");
      assert.equal(status, 0, stdout);
    }
  }
});

test("what is wrong is refused, line by line", { skip: lacksBundlers }, () => {
  for (const compiler of Object.keys(COMPILERS)) {
    const { stdout } = tsc(compiler, ...NODE_NEXT, "--lib", LIB, "--pretty", "false", "wrong.mts");
    const refused = stdout.match(/^wrong\.mts\(\d+/gm).map((place) => Number(place.slice("wrong.mts(".length)));
    assert.deepEqual(refused, [3, 4, 6, 7, 8], stdout);
  }
});

test("a LeaseError is an Error to tools that ask for its base types, as typescript-eslint does", { skip: lacksBundlers }, () => {
  const ts = createRequire(join(place, "package.json"))("typescript-5.2");
  const file = join(folder, "node_modules/leasehold/types/error.d.ts");
  const program = ts.createProgram([file], { strict: true, target: ts.ScriptTarget.ES2022, types: [] });
  const checker = program.getTypeChecker();
  const named = checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)));
  const isError = (type) => type.symbol?.name === "Error" || (type.isClassOrInterface() && checker.getBaseTypes(type).some(isError));
  assert.ok(isError(checker.getDeclaredTypeOfSymbol(named.find(({ name }) => name === "LeaseError"))));
});
