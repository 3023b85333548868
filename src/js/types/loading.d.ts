/** Where the wasm comes from: its URL, its bytes, or the compiled module. */
export type WasmSource = string | URL | ArrayBuffer | ArrayBufferView | WebAssembly.Module;

/**
 * Chooses where the wasm comes from; needed only where it is not beside the package's own code. It loads once, at the first
 * `open()` or `attach()` at the latest: another call with the same source, or with none, gives the same promise. If the source does
 * not load, the next `open()` or `init()` without a source tries it again, unless `init()` has named another one by then. In Node.js it
 * is read from the disk. Where no file can be served, import everything from `leasehold/inline`, which embeds the wasm.
 *
 * @throws {LeaseError} `InitFailed`; `InitConflict` if another source was chosen before; `InvalidOptions`.
 * @example
 * ```js
 * import { init } from "leasehold";
 * await init("https://static.example.org/leasehold_bg.wasm");
 * ```
 */
export function init(source?: WasmSource): Promise<void>;
