// The same as the package's main entry; only the way to the wasm differs.
export * from "./index.js";
