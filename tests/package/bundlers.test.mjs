// The installed package in programs that bundlers build or serve, without a word of configuration, in Chromium.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { end, esbuildBuilds, esbuildBuildsService, nextBuilds, nextServes } from "./built.mjs";
import { viteBuilds, viteRenders, viteServes, webpackBuilds } from "./built.mjs";
import { lacksBundlers } from "./packed.mjs";
import { visit } from "./visited.mjs";
import { WHOLE } from "./whole.mjs";

const PROGRAMS = {
  "Vite dev": () => viteServes("vite", "vite-dev"),
  "Vite build": () => viteBuilds("vite", "vite-build"),
  "Vite 7 dev": () => viteServes("vite-7", "vite-7-dev"),
  "Vite 7 build": () => viteBuilds("vite-7", "vite-7-build"),
  webpack: webpackBuilds,
  "esbuild, the wasm copied": () => esbuildBuilds("esbuild", "alone", true),
  "esbuild alone": () => esbuildBuilds("esbuild-alone", "alone", false),
  "esbuild into a classic script": () => esbuildBuilds("esbuild-iife", "alone", true, { format: "iife" }),
  "esbuild for engines older than ES2020": () => esbuildBuilds("esbuild-es2019", "alone", true, { target: "es2019" }),
  "esbuild with leasehold/inline": () => esbuildBuilds("esbuild-inline", "inline", false),
  "esbuild, leasehold/inline for leasehold in a classic service worker": () => esbuildBuildsService("esbuild-service"),
  "Next.js dev": () => nextServes("next-dev"),
  "Next.js build": () => nextBuilds("next-build"),
};

/** By program: what came of building it, and what its page told. */
const seen = {};
before(async () => {
  if (lacksBundlers) return;
  for (const [name, make] of Object.entries(PROGRAMS)) {
    const start = performance.now();
    seen[name] = await make().catch((error) => ({ error }));
    seen[name].ms = Math.round(performance.now() - start);
  }
  seen["Vite 7 dev, leasehold/inline"] = { ...seen["Vite 7 dev"], url: `${seen["Vite 7 dev"].url}inline.html` };
  const made = Object.values(seen).filter(({ error }) => !error);
  const outcomes = await visit("chromium", made.map(({ url }) => url));
  made.forEach((program, index) => (program.outcome = outcomes[index]));
});
after(end);

const skip = { skip: lacksBundlers };

/** A program that puts out this many wasm files, and whose page tells what passes the check. */
function program(name, wasm, check) {
  test(name, skip, (context) => {
    const { error, ms, outcome, wasm: found } = seen[name];
    if (error) throw error;
    context.diagnostic(`made in ${ms} ms`);
    assert.equal(found, wasm, "the number of wasm files");
    if (!outcome) return context.skip("there is no Chromium");
    assert.equal(outcome.error, undefined);
    check(outcome.value);
  });
}

const alone = (told) => assert.deepEqual(told, WHOLE);
const withWorker = (told) => assert.deepEqual(told, [WHOLE, WHOLE]);
const advised = ({ code, message }) => {
  assert.equal(code, "InitFailed");
  assert.match(message, /import from "leasehold\/inline"/);
};
program("Vite dev", undefined, withWorker);
program("Vite build", 1, withWorker);
// Up to this version it has no wasm at the address that it makes of ours.
program("Vite 7 dev", undefined, ([page, worker]) => [page, worker].map(advised));
program("Vite 7 dev, leasehold/inline", undefined, alone);
program("Vite 7 build", 1, withWorker);
program("webpack", 1, withWorker);
program("esbuild alone", undefined, advised);
program("esbuild, the wasm copied", undefined, alone);
for (const name of ["esbuild into a classic script", "esbuild for engines older than ES2020"]) {
  program(name, undefined, (told) => {
    advised(told);
    assert.match(told.message, /build a module for ES2020 or newer/);
  });
}
program("esbuild with leasehold/inline", undefined, alone);
program("esbuild, leasehold/inline for leasehold in a classic service worker", undefined, alone);
program("Next.js dev", undefined, alone);
program("Next.js build", 1, alone);

test("Vite renders on the server, loaded and built", skip, async () => {
  for (const render of await viteRenders("vite", "vite-ssr")) assert.deepEqual(await render(), WHOLE);
});

for (const name of ["Next.js dev", "Next.js build"]) {
  test(`${name} renders on the server, and takes leases in memory in a route; a server component is told what to do`, skip, async () => {
    const { url, error } = seen[name];
    if (error) throw error;
    assert.match(await (await fetch(url)).text(), /<p>function<\/p>/);
    assert.deepEqual(await (await fetch(`${url}api`)).json(), WHOLE);
    assert.match(await (await fetch(`${url}memory`)).text(), /InitFailed.*serverExternalPackages: .*leasehold\/inline/);
  });
}
