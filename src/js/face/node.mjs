// @ts-check
// The package's face in Node.js, for server-side rendering and tests: it reads the wasm from the disk.
import { readFile } from "node:fs/promises";
import { download, wasmFrom } from "./loading.mjs";

export * from "./exports.mjs";

// Asynchronous also where it fails: the loader forgets a choice that did not load only after it has made it.
const read = async (url) => (String(url).startsWith("file:") ? readFile(new URL(url)) : download(url));
wasmFrom(() => new URL("./leasehold_bg.wasm", import.meta.url), read);
