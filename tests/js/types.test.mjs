// The types, as a program with a strict compiler meets them, and as the face itself is checked. Run as leases.test.mjs is,
// with tsc on the PATH, as .ci/test has it.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const app = join(root, "target/types");
const strict = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--types", "", "--target", "es2022"];
const lacksTsc = spawnSync("tsc", ["--version"]).error && process.env.CI !== "true" ? "there is no tsc" : false;

/** A program that has the package among its own, as npm would install it. */
function makeApp() {
  rmSync(app, { recursive: true, force: true });
  mkdirSync(join(app, "node_modules"), { recursive: true });
  symlinkSync(join(root, "pkg"), join(app, "node_modules/leasehold"), "dir");
  writeFileSync(join(app, "package.json"), `{ "type": "module" }`);
  copyFileSync(join(root, "tests/js/sample.mts"), join(app, "sample.mts"));
}

function tsc(...args) {
  const { status, stdout, error } = spawnSync("tsc", args, { cwd: app, encoding: "utf8" });
  assert.equal(status, 0, `tsc ${args.join(" ")}\n${error ?? stdout}`);
}

test("a program that uses every export compiles", { skip: lacksTsc }, () => {
  makeApp();
  for (const resolution of [["--module", "nodenext"], ["--module", "esnext", "--moduleResolution", "bundler"]]) {
    for (const lib of ["es2022,dom", "es2022,webworker"]) tsc(...strict, ...resolution, "--lib", lib, "sample.mts");
  }
});

test("the face is as it says to tsc", { skip: lacksTsc }, () => {
  makeApp();
  cpSync(join(root, "src/js/face"), app, { recursive: true });
  // What the wasm offers is not checked here.
  writeFileSync(join(app, "leasehold.js"), "/** @type {any} */\nexport const LeaseManager = 0;\nexport default LeaseManager;\n");
  const options = ["--noEmit", "--allowJs", "--strict", "false", "--types", "", "--module", "nodenext"];
  tsc(...options, "--target", "es2022", "--lib", "es2022,dom,esnext.disposable", "index.mjs");
});

test("the exports lead to the package's files", () => {
  makeApp();
  const script = `
    const { init, LeaseManager, ...rest } = await import("leasehold");
    const { readFile } = await import("node:fs/promises");
    await init(await readFile(new URL(import.meta.resolve("leasehold/leasehold.wasm"))));
    await (await LeaseManager.open("app", { store: "memory" })).close();
    const { default: { name, sideEffects } } = await import("leasehold/package.json", { with: { type: "json" } });
    console.log(name, sideEffects, Object.keys(rest).sort().join());`;
  const args = ["--no-warnings", "--preserve-symlinks", "--input-type=module", "--eval", script];
  const printed = execFileSync(process.execPath, args, { cwd: app, encoding: "utf8" });
  assert.equal(
    printed.trim(),
    "leasehold false Lease,LeaseError,LeaseEvent,LeaseGroup,Lock,LockManager,createStore,install,isLeaseError",
  );
});

const lacksRequire = !process.features.require_module && "this Node.js cannot require an ES module";
test("a CommonJS module can require the package, and compiles", { skip: lacksTsc || lacksRequire }, () => {
  makeApp();
  writeFileSync(join(app, "common.cts"), `import { LeaseManager } from "leasehold";\nexport const opening = LeaseManager.open("app");\n`);
  tsc(...strict, "--module", "nodenext", "--lib", "es2022,dom", "common.cts");
  const script = `
    for (const entry of ["leasehold", "leasehold/inline", "leasehold/testing"]) console.log(typeof require(entry).LeaseManager);`;
  const args = ["--no-warnings", "--preserve-symlinks", "--input-type=commonjs", "--eval", script];
  assert.equal(execFileSync(process.execPath, args, { cwd: app, encoding: "utf8" }), "function\n".repeat(3));
});
