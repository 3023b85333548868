// @ts-check
// The package's face where no file can be served beside it: with the wasm as text within.
import base64 from "./leasehold_bg.wasm";
import { wasmFrom } from "./loading.mjs";

export * from "./exports.mjs";

wasmFrom(() => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
