// The installed package without a bundler: in pages and workers of each browser, under policies, and in Node.js.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { before, test } from "node:test";
import { join } from "node:path";
import { install } from "./packed.mjs";
import { serve } from "./served.mjs";
import { WHOLE } from "./whole.mjs";
import { visit } from "./visited.mjs";

const POLICY = "default-src 'self'";
const policies = {
  "/forbidden.html": POLICY,
  "/forbidden-inline.html": POLICY,
  "/allowed.html": `${POLICY}; script-src 'self' 'wasm-unsafe-eval'`,
};

/** What each page is to tell, by its server's way and its path. */
const refusedByPolicy = ({ code, message }) => {
  assert.equal(code, "InitFailed");
  assert.match(message, /Content-Security-Policy allow 'wasm-unsafe-eval' in its script-src/);
};
const whole = (told) => assert.deepEqual(told, WHOLE);
const PAGES = {
  "a bare page": ["usual", "page.html", whole],
  "a module worker": ["usual", "worker.html", whole],
  "a service worker": ["usual", "service.html", whole],
  "leasehold/inline": ["usual", "inline.html", whole],
  "a policy with 'wasm-unsafe-eval'": ["usual", "allowed.html", whole],
  "a policy without it": ["usual", "forbidden.html", refusedByPolicy],
  "a policy without it, and leasehold/inline": ["usual", "forbidden-inline.html", refusedByPolicy],
  "an import touches nothing": ["usual", "silent.html", ({ seen, proof, wasm }) => {
    assert.deepEqual([seen, proof, wasm], [[], ["fetch"], []]);
  }],
  "a server that knows no wasm": ["untyped", "page.html", whole],
  "a server that answers with a page": ["page instead", "page.html", ({ code, message }) => {
    assert.equal(code, "InitFailed");
    assert.match(message, /leasehold_bg\.wasm: Error: text\/html.* is no wasm; .*"leasehold\/inline"/);
  }],
  "a server without the wasm": ["absent", "page.html", ({ code, message }) => {
    assert.equal(code, "InitFailed");
    assert.match(message, /leasehold_bg\.wasm: Error: HTTP status 404; serve .*"leasehold\/inline"/);
  }],
};

let servers;
before(async () => {
  const usual = install("bare");
  const [without, instead] = ["bare without wasm", "bare with page"].map((name) => {
    const folder = install("bare", name.replaceAll(" ", "-"));
    execFileSync("rm", [join(folder, "node_modules/leasehold/leasehold_bg.wasm")]);
    return folder;
  });
  servers = {
    usual: await serve(usual, { policies }),
    untyped: await serve(usual, { types: { ".wasm": "application/octet-stream" } }),
    absent: await serve(without),
    "page instead": await serve(instead, { fallback: "page.html" }),
  };
});

for (const engine of ["chromium", "firefox", "webkit"]) {
  test(engine, async (engineTest) => {
    const addresses = Object.values(PAGES).map(([server, path]) => servers[server] + path);
    const outcomes = await visit(engine, addresses);
    if (outcomes.length === 0) return engineTest.skip(`${engine} is not here`);
    for (const [index, [name, [, , check]]] of Object.entries(PAGES).entries()) {
      await engineTest.test(name, () => {
        const { value, error } = outcomes[index];
        assert.equal(error, undefined);
        check(value);
      });
    }
  });
}

test("Node.js", () => {
  const folder = install("node");
  const printed = execFileSync(process.execPath, ["--no-warnings", "main.mjs"], { cwd: folder, encoding: "utf8" });
  const { refused, ...told } = JSON.parse(printed);
  assert.deepEqual(told, { seen: [], wasm: "leasehold_bg.wasm", name: "leasehold", own: WHOLE, inline: WHOLE });
  assert.deepEqual([refused.name, refused.code], ["NotSupportedError", "Unsupported"]);
  assert.match(refused.message, /\{ store: "memory" \}/);
});

test("Node.js tells of an error that nobody catches in short lines", () => {
  const script = 'import { LeaseManager } from "leasehold"; await LeaseManager.open("my-app");';
  const run = [process.execPath, ["--input-type=module", "--eval", script], { cwd: install("node"), encoding: "utf8" }];
  const { stderr } = spawnSync(...run);
  assert.match(stderr, /there is no IndexedDB here/);
  const longest = Math.max(...stderr.split("\n").map(({ length }) => length));
  assert.ok(longest < 400, `a line has ${longest} characters`);
});
