// The size budget: what is over it fails the build of the package.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { join } from "node:path";
import { place, root } from "./packed.mjs";

/** What the check says of a package whose wasm has this many bytes, and how it ends. */
function check(bytes, budget) {
  const folder = join(place, "size");
  for (const name of ["pkg", ".ci"]) mkdirSync(join(folder, name), { recursive: true });
  writeFileSync(join(folder, "pkg/leasehold_bg.wasm"), "w".repeat(bytes));
  for (const name of ["index", "node", "inline", "testing"]) writeFileSync(join(folder, `pkg/${name}.mjs`), "");
  writeFileSync(join(folder, ".ci/size-budget"), `# a remark\n\n${budget}\n`);
  const { status, stderr } = spawnSync(process.execPath, [join(root, ".ci/check-size.mjs")], { cwd: folder, encoding: "utf8" });
  return [status, stderr.trim()];
}

test("a limit holds to the byte", () => {
  assert.deepEqual(check(1000, "limit wasm 1000 - -"), [0, ""]);
  assert.deepEqual(check(1001, "limit wasm 1000 - -"), [1, "wasm: 1001 bytes raw are over 1000, the limit"]);
  assert.match(check(1000, "limit wasm - 1 -")[1], /bytes gzip are over 1,/);
  assert.match(check(1000, "limit wasm - - 1")[1], /bytes brotli are over 1,/);
});

test("growth by more than 5 % wants a line that says why", () => {
  assert.deepEqual(check(1050, "accepted wasm 1000 - - as it was"), [0, ""]);
  const [status, said] = check(1051, "accepted wasm 1000 - - as it was");
  assert.equal(status, 1);
  assert.match(said, /1051 bytes raw are over 1050, 5 % more .*add a line to \.ci\/size-budget that says why/);
  assert.deepEqual(check(1051, "accepted wasm 1000 - - as it was\naccepted wasm 1051 - - a new feature"), [0, ""]);
  assert.match(check(1051, "accepted wasm 1051 - -")[1], /what is "accepted wasm/);
});

test("what it weighs is left as figures", () => {
  check(1000, "limit wasm 1000 - -");
  const figures = JSON.parse(readFileSync(join(place, "size/target/bench/size.json"), "utf8"));
  assert.equal(figures.wasm_raw_bytes, 1000);
  assert.equal(figures.wasm_gzip_bytes < 100, true);
});

test("the budget has limits for the wasm and the glue, and the figures of each", () => {
  const budget = readFileSync(join(root, ".ci/size-budget"), "utf8");
  for (const kind of ["limit", "accepted"]) {
    for (const part of ["wasm", "glue"]) assert.match(budget, new RegExp(`^${kind} +${part} `, "m"));
  }
});
