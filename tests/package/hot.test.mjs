// The guide's modules under Vite's development server, which replaces them when they are edited, in Chromium.
import assert from "node:assert/strict";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { end, viteServes } from "./built.mjs";
import { lacksBundlers, root } from "./packed.mjs";
import { visit } from "./visited.mjs";

after(end);

const guide = readFileSync(join(root, "docs/frameworks.md"), "utf8");

/** A block of the guide, by the name in its first line. */
const block = (name) => guide.match(new RegExp(`\`\`\`js\n(// ${name}\n[^\`]*)\`\`\``))[1];

test("a module that is edited gets its lease again, from the manager that stays open", { skip: lacksBundlers }, async (context) => {
  const { server, url } = await viteServes("vite", "vite-hot", "hot", (folder) => {
    for (const name of ["leases.js", "editor.js"]) writeFileSync(join(folder, name), block(name));
  });
  server.ws.on("edit", (file) => appendFileSync(join(server.config.root, file), "// edited\n"));
  const [outcome] = await visit("chromium", [url]);
  if (!outcome) return context.skip("there is no Chromium");
  assert.deepEqual(outcome, { value: ["it is mine", "it is mine", "it is mine"] });
});
