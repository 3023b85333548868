// @ts-check
// The package's face in browsers. Bundlers find the wasm by this way to write its URL.
import { wasmFrom } from "./loading.mjs";

export * from "./exports.mjs";

wasmFrom(() => new URL("./leasehold_bg.wasm", import.meta.url));
