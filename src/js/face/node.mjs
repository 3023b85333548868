// @ts-check
// The package's face in Node.js, for server-side rendering and tests: it reads the wasm from the disk.
import { readFile } from "node:fs/promises";
import { LeaseError } from "./error.mjs";
import { download, wasmFrom } from "./loading.mjs";

export * from "./exports.mjs";

/** A bundler that builds for a server may write an address that only a browser can fetch. */
const REMEDY =
  'if a bundler wrote this address, keep it from bundling the package for the server (Next.js: serverExternalPackages: ["leasehold"]), ' +
  'or import from "leasehold/inline"; if it is the path of a file, pass pathToFileURL(path) to init()';

// It is async so that a failure comes later, too: the loader must have stored its choice before it forgets one that failed.
async function read(url) {
  if (/^(?!\w+:)/.test(url)) throw new LeaseError("InitFailed", `the wasm did not load from ${url}: in Node.js this is no URL; ${REMEDY}`);
  return String(url).startsWith("file:") ? readFile(new URL(url)) : download(url);
}
wasmFrom(() => new URL("./leasehold_bg.wasm", import.meta.url), read);
