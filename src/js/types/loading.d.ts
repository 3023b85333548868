/** Where the wasm comes from: its URL, its bytes, or the compiled module. */
export type WasmSource = string | URL | ArrayBuffer | ArrayBufferView | WebAssembly.Module;

/**
 * Chooses where the wasm comes from; needed only where `leasehold_bg.wasm` does not lie beside `index.mjs`, or `fetch()`
 * cannot reach it. It loads once: another call with the same source, or with none, gives the same promise.
 *
 * @throws {LeaseError} `InitFailed`; `InitConflict` if another source was chosen before; `InvalidOptions`.
 * @example
 * ```js
 * import { readFile } from "node:fs/promises";
 * await init(await readFile(new URL(import.meta.resolve("leasehold/leasehold.wasm"))));
 * ```
 */
export function init(source?: WasmSource): Promise<void>;
