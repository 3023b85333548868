// @ts-check
// Where the wasm comes from.
import load from "./leasehold.js";
import { LeaseError } from "./error.mjs";
import { check } from "./options.mjs";

/** The choice that counts: what identifies it, its name for people, and the loading. */
let chosen;

export function init(source) {
  if (source === undefined && chosen) return chosen.ready;
  try {
    const wasm = source ?? new URL("./leasehold_bg.wasm", import.meta.url);
    const [identity, name] = identify(wasm);
    chosen ??= { identity, name, ready: start(wasm, name) };
    if (chosen.identity === identity) return chosen.ready;
    throw new LeaseError("InitConflict", `init() with ${name} comes too late: ${chosen.name} was chosen before`);
  } catch (error) {
    return Promise.reject(error);
  }
}

function identify(source) {
  if (source instanceof WebAssembly.Module) return [source, "a WebAssembly.Module"];
  const bytes = source instanceof ArrayBuffer ? new DataView(source) : source;
  if (ArrayBuffer.isView(bytes)) {
    const { buffer, byteOffset, byteLength } = bytes;
    let hash = 0;
    for (const byte of new Uint8Array(buffer, byteOffset, byteLength)) hash = Math.imul(hash ^ byte, 0x01000193);
    const name = `${byteLength} bytes of hash ${hash}`;
    return [name, name];
  }
  if (!(source instanceof URL)) check("InvalidOptions", "what init() takes", "source", source);
  return [String(source), String(source)];
}

async function start(wasm, name) {
  try {
    const isUrl = typeof wasm === "string" || wasm instanceof URL;
    await load({ module_or_path: isUrl ? await download(wasm) : wasm });
  } catch (cause) {
    // Another try may succeed.
    chosen = undefined;
    const advice = "is it served, and does the Content-Security-Policy allow 'wasm-unsafe-eval'?";
    throw new LeaseError("InitFailed", `the wasm did not load from ${name}: ${cause}; ${advice}`, { cause });
  }
}

async function download(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`HTTP status ${response.status}`);
  // Of a response with another type, the glue would warn in the console.
  return response.headers.get("Content-Type") === "application/wasm" ? response : response.arrayBuffer();
}
