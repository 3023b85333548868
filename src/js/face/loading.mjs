// @ts-check
// Where the wasm comes from.
import load from "./leasehold.js";
import { LeaseError } from "./error.mjs";
import { check, harmless, isA } from "./options.mjs";

/** The source that was chosen: what identifies it, its name for messages, and its loading. */
let chosen;

/** The source that init() was given last. If it does not load, a later call without a source tries it again. */
let given;

/** The default source, and how to read from a URL. */
let own, read;

/** For the entries of the package, each of which gets the wasm in its own way. */
export function wasmFrom(source, reading = download) {
  own = source;
  read = reading;
}

export function init(source) {
  if (source === undefined && chosen) return chosen.ready;
  try {
    const wasm = source === undefined ? (given ?? located()) : source;
    const [identity, name] = harmless("InvalidOptions", "what init() takes", () => identify(wasm));
    if (!chosen) {
      given = source ?? given;
      chosen = { identity, name, ready: start(wasm, name) };
    }
    if (chosen.identity === identity) return chosen.ready;
    throw new LeaseError("InitConflict", `init() with ${name} comes too late: ${chosen.name} was chosen before; call init() once, before the first open()`);
  } catch (error) {
    return Promise.reject(error);
  }
}

/** A classic script, or one that is compiled for engines older than ES2020, has no URL of its own to start from. */
function located() {
  try {
    return own();
  } catch (cause) {
    const advice = 'build a module for ES2020 or newer, tell init() where the wasm is, or import from "leasehold/inline"';
    throw new LeaseError("InitFailed", `the wasm did not load: ${cause}; ${advice}`, { cause });
  }
}

/** Judges by the name of the type, as all checks here: in a simulated browser, two classes may have the same name. */
const isUrl = (source) => (typeof source === "string" && source) || isA("URL", source);

function identify(source) {
  if (isUrl(source)) return [String(source), String(source)];
  const bytes = isA("ArrayBuffer", source) ? new DataView(source) : source;
  if (ArrayBuffer.isView(bytes)) {
    const { buffer, byteOffset, byteLength } = bytes;
    let hash = 0;
    for (const byte of new Uint8Array(buffer, byteOffset, byteLength)) hash = Math.imul(hash ^ byte, 0x01000193);
    return [`${byteLength} bytes of hash ${hash}`, `an array of ${byteLength} bytes`];
  }
  if (!isA("WebAssembly.Module", source)) check("InvalidOptions", "what init() takes", "source", source);
  return [source, "a WebAssembly.Module"];
}

/** What to check if the fetch failed: a browser does not tell scripts why. */
const ACCESS = "; allow it in the Content-Security-Policy's connect-src, and by CORS";

async function start(wasm, name) {
  let advice = 'serve leasehold_bg.wasm there, or call init() with another source, or import from "leasehold/inline"';
  // Before version 8, Vite's development server moves the script but not the wasm: to .vite/deps/, in Nuxt to vite/client/deps/.
  if (/vite\/.*deps\//.test(name)) advice = 'set Vite\'s optimizeDeps: { exclude: ["leasehold"] }, or import from "leasehold/inline"';
  let source;
  try {
    source = isUrl(wasm) ? await read(wasm) : wasm;
    advice = "reload a page older than the wasm, or serve this version's leasehold_bg.wasm, and let the Content-Security-Policy allow 'wasm-unsafe-eval' in its script-src";
    if (!globalThis.WebAssembly) advice = "WebAssembly is switched off here; allow it in the browser's settings";
    // If WebAssembly is missing, this line fails before the glue looks at `Response`. That look would make Node.js load a wasm of its own,
    // and end because it cannot.
    await load(WebAssembly && source);
    given = undefined;
  } catch (cause) {
    // Another try may succeed.
    chosen = undefined;
    if (!source && cause instanceof TypeError) advice += ACCESS;
    throw cause instanceof LeaseError ? cause : new LeaseError("InitFailed", `the wasm did not load from ${name}: ${cause}; ${advice}`, { cause });
  }
}

/** How long a server may take for the whole wasm, in ms: long enough for the uncompressed wasm at 20 kbit a second. */
const LIMIT_MS = 120_000;

export async function download(url) {
  // The browser alone would wait for ever.
  const response = await fetch(url, { signal: AbortSignal.timeout?.(LIMIT_MS) });
  if (!response.ok) throw new Error(`HTTP status ${response.status}`);
  const type = response.headers.get("Content-Type");
  if (type === "application/wasm") return response;
  const bytes = await response.arrayBuffer();
  // A development server may answer with a page if it does not have the file.
  if (`${new Uint8Array(bytes).slice(0, 4)}` !== "0,97,115,109") throw new Error(`${type} is no wasm`);
  return bytes;
}
