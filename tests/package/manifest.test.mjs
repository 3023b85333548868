// What npm would be sent, as the tools that look at packages see it.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { dirname, join } from "node:path";
import { install, lacksBundlers, pack, place, root } from "./packed.mjs";

function run(tool, ...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(place, "node_modules", tool), ...args], { cwd: root, encoding: "utf8" });
  assert.equal(status, 0, stdout + stderr);
  return stdout;
}

test("publint has nothing to say", { skip: lacksBundlers }, () => {
  assert.match(run("publint/src/cli.js", "run", pack(), "--strict"), /All good!/);
});

test("attw finds no wrong types", { skip: lacksBundlers }, () => {
  const flags = ["--profile", "esm-only", "--exclude-entrypoints", "leasehold.wasm", "--no-emoji", "--no-color"];
  assert.match(run("@arethetypeswrong/cli/dist/index.js", pack(), ...flags), /"leasehold"/);
});

test("it holds what the manifest lists, one wasm, and nothing else", () => {
  const folder = join(install("node", "listed"), "node_modules/leasehold");
  const manifest = JSON.parse(readFileSync(join(root, "pkg.json"), "utf8"));
  assert.deepEqual(JSON.parse(readFileSync(join(folder, "package.json"), "utf8")), manifest);
  assert.deepEqual(readdirSync(folder).sort(), ["README.md", "package.json", ...manifest.files].sort());
  for (const conditions of Object.values(manifest.exports)) {
    const [first, ...others] = Object.keys(conditions);
    assert.ok(typeof conditions === "string" || (first === "types" && others.at(-1) === "default"));
  }
});

test("no page links to a file that the package has not", () => {
  const pages = ["README.md", "CHANGELOG.md", ...readdirSync(join(root, "pkg/docs")).map((page) => `docs/${page}`)];
  const dead = pages.flatMap((page) => {
    const links = [...readFileSync(join(root, "pkg", page), "utf8").matchAll(/\]\((?![a-z]+:|#)([^)#\s]+)/g)].map(([, link]) => link);
    return links.filter((link) => !existsSync(join(root, "pkg", dirname(page), link))).map((link) => `${page}: ${link}`);
  });
  assert.deepEqual(dead, []);
});

test("only what is for Node.js knows its modules, and only what is inline knows no file beside it", () => {
  for (const name of readdirSync(join(root, "pkg")).filter((name) => name.endsWith(".mjs"))) {
    const source = readFileSync(join(root, "pkg", name), "utf8");
    const found = [source.includes("node:"), source.split("import.meta").length - 1];
    assert.deepEqual(found, [name.includes("node"), name.startsWith("inline") ? 0 : 1], name);
  }
});
