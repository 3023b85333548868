// The parts of the package's work in the wasm, in the order of `Part` in src/executor/part.rs. The wasm of `.ci/pkg marked` tells where
// each begins and ends.
import { beginSpan, endSpan, part } from "./spans.mjs";

const NAMES = ["machine", "decode", "apply", "encode"];

export function hearParts() {
  const parts = NAMES.map(part);
  globalThis.leaseholdParts = { begin: (at) => beginSpan(parts[at]), end: endSpan };
}
