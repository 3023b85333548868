// Pages as browsers see them, by the WebDriver harness of tests/browser.
import { spawn } from "node:child_process";
import { root } from "./packed.mjs";

/** What the pages at these addresses bring to pass: `{ value }` or `{ error }` each; nothing where there is no such browser. */
export async function visit(engine, urls) {
  const args = ["run", "--quiet", "-p", "leasehold-browser-tests", "--bin", "visit", "--", engine, ...urls];
  const child = spawn("cargo", args, { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
  let printed = "";
  child.stdout.on("data", (text) => (printed += text));
  const status = await new Promise((resolve) => child.on("close", resolve));
  if (status !== 0) throw new Error(`visit ${engine} ended with ${status}`);
  return printed.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}
