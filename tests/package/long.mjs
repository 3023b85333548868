// Next.js by webpack, which takes a minute: `make test-long`. Its server has no file at the wasm's address: there, leases in
// memory want `serverExternalPackages: ["leasehold"]`, or leasehold/inline.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { end, nextBuilds } from "./built.mjs";
import { lacksBundlers } from "./packed.mjs";
import { visit } from "./visited.mjs";
import { WHOLE } from "./whole.mjs";

after(end);

test("Next.js build --webpack", { skip: lacksBundlers }, async (context) => {
  const { url, wasm } = await nextBuilds("next-webpack", "--webpack");
  assert.equal(wasm, 1);
  const { code, message } = await (await fetch(`${url}api`)).json();
  assert.equal(code, "InitFailed");
  assert.match(message, /leasehold\/inline/);
  const [outcome] = await visit("chromium", [url]);
  if (!outcome) return context.skip("there is no Chromium");
  assert.deepEqual(outcome, { value: WHOLE });
});
