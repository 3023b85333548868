// Writes wasm-bindgen's glue again, shorter: what it repeats for each import becomes a function, and what it does for engines
// that cannot run the wasm anyway is left out. If wasm-bindgen writes something else than what was read here, the build fails.
import { createHash } from "node:crypto";

/** What is written anew: by name, how the generated text begins, the start of its SHA-256, and what takes its place. */
const PARTS = {
  makeClosure: ["function", "61aa972f", closure()],
  makeMutClosure: ["function", "f86b5f53", "const makeMutClosure = (arg0, arg1, f) => makeClosure(arg0, arg1, f, true);"],
  handleError: ["function", "369f8858", handleError()],
  passStringToWasm0: ["function", "edc66798", passString()],
  getDataViewMemory0: ["function", "66a0a402", "const getDataViewMemory0 = () => memory().view;"],
  getUint8ArrayMemory0: ["function", "37d2a545", "const getUint8ArrayMemory0 = () => memory().bytes;"],
  getFloat64ArrayMemory0: ["function", "60ebce72", "const getFloat64ArrayMemory0 = () => new Float64Array(wasm.memory.buffer);"],
  __wbg_finalize_init: ["function", "03fd7a8f", finalize()],
  CLOSURE_DTORS: ["const", "fe6166aa", "const CLOSURE_DTORS = finalization((state) => wasm.__wbindgen_destroy_closure(state.a, state.b));"],
};

/** What is left out. The wasm needs an engine that has all of this. */
const DROPPED = [
  /^if \(Symbol\.dispose\) \w+\.prototype\[Symbol\.dispose\] = \w+\.prototype\.free;\n/gm,
  /^let cached(DataView|Float64Array|Uint8Array)Memory0 = null;\n/gm,
  /^if \(!\('encodeInto' in cachedTextEncoder\)\) \{\n[^]*?^\}\n/gm,
];

/** The wasm imports from an array, "_": `places` are those of its imports by their names. */
export function shrinkGlue(generated) {
  let glue = generated.replace(/^ *\/\/.*\n|^ *\/\*\*[^]*?\*\/\n/gm, "");
  for (const [name, [kind, hash, short]] of Object.entries(PARTS)) glue = replacePart(glue, kind, name, hash, short);
  for (const pattern of DROPPED) glue = replaced(glue, pattern, "");
  glue = replaced(glue, /passStringToWasm0\((\w+), wasm\.__wbindgen_malloc, wasm\.__wbindgen_realloc\)/g, "passStringToWasm0($1)");
  glue = replaced(glue, /isLikeNone\((\w+)\) \? 0 : addToExternrefTable0\(\1\)/g, "optional($1)");
  glue = shrinkClasses(glue);
  const [head, list, tail] = apart(glue, /^    const import0 = \{\n        __proto__: null,\n([^]*?)^    \};\n    return \{\n        __proto__: null,\n        "[^"]+": import0,\n    \};\n/m);
  const [imports, places] = importsOf(list);
  return { glue: `${HELPERS}${head}    return ${imports};\n${tail}`, places };
}

/** One of all arguments: what is freed if the next one cannot be passed is left out. The face has checked them all. */
function shrinkClasses(glue) {
  glue = replaced(glue, /^        let deferred1_0;\n[^]*?const ret = (.*);\n[^]*?^        \} finally \{\n.*\n        \}\n/gm, "        return takeString($1);\n");
  glue = replaced(glue, /^        const ret = (.*);\n        let v1;\n        if \(ret\[0\] !== 0\) \{\n[^]*?^        \}\n        return v1;\n/gm, "        return takeString($1);\n");
  glue = replaced(glue, /^        try \{\n([^]*?)^        \} catch \(e\) \{\n(?: {12}if \(ptr\d\) \{.*\}\n)+ {12}throw e;\n {8}\}\n/gm, "$1");
  glue = replaced(glue, /^ {4}(static )?\w+\([^)]*\) \{\n[^]*?^ {4}\}\n/gm, withoutNumbers);
  glue = replaced(
    glue,
    /^export class (\w+) \{\n    static __wrap\(ptr\) \{\n[^]*?^    \}\n    __destroy_into_raw\(\) \{\n[^]*?^    \}\n    free\(\) \{\n.*\n        wasm\.(\w+)\(ptr, 0\);\n    \}\n/gm,
    "export class $1 extends Wrapped {\n    static drop(ptr, isCollected) { wasm.$2(ptr, isCollected); }\n",
  );
  glue = replaced(glue, /^const \w+Finalization = \(typeof FinalizationRegistry === 'undefined'\)\n.*\n.*;\n/gm, "");
  return glue;
}

/** The engine itself makes numbers of what it passes to the wasm, which does not look at one that it is told to be absent. */
function withoutNumbers(method) {
  const numbers = [...method.matchAll(/^ +const (val\d) = \+(?:\(isLikeNone\((\w+)\) \? 0 : \2\)|(\w+));\n/gm)];
  return numbers.reduce((code, [line, local, maybe, sure]) => renamed(code.replace(line, ""), local, maybe ?? sure), method);
}

function importsOf(list) {
  const [plainOnes, caughtOnes] = [{}, {}];
  const rest = list.replaceAll(
    /^        (\w+): function\(([^)]*)\) \{(?: return handleError\(function \(([^)]*)\) \{)?\n([^]*?)^        \}(, arguments\); \})?,\n/gm,
    (_, name, plain, caught, body, isCaught) => {
      if (!isCaught !== (caught === undefined) || /\bthis\b|\barguments\b/.test(body)) fail(`the import ${name}`);
      const call = `(${caught ?? plain}) => ${expression(body)}`;
      (isCaught ? caughtOnes : plainOnes)[name] = call;
      return "";
    },
  );
  if (rest.trim() !== "") fail(`the imports: ${rest}`);
  // Like beside like, and the same only once.
  const [plain, caught] = [plainOnes, caughtOnes].map((ones) => [...new Set(Object.values(ones))].sort());
  const places = {};
  for (const [name, call] of Object.entries(plainOnes)) places[name] = plain.indexOf(call);
  for (const [name, call] of Object.entries(caughtOnes)) places[name] = plain.length + caught.indexOf(call);
  return [`{ _: [\n${plain.join(",\n")},\n...[\n${caught.join(",\n")},\n].map(handleError)] }`, places];
}

/** What an import does, in one expression if it can be; what it returns beyond its type, nobody sees. */
function expression(body) {
  const lines = body.replace(/^ +/gm, "").replace(/^const (obj|val) = (\w+);\n([^]*)/, (_, local, arg, rest) => renamed(rest, local, arg));
  const steps = lines
    .replace(/^const ret = typeof (\w+) === 'undefined' \? undefined : \1;\n/, "const ret = globalThis;\n")
    .replace(/^const ret = (.*);\nreturn optional\(ret\);\n$/, "optional($1);\n")
    .replace(/^const ret = (.*);\n(?:var|const) ptr1 = (?:isLikeNone\(ret\) \? 0 : )?passStringToWasm0\(ret\);\n.* len1 = WASM_VECTOR_LEN;\n.*len1, true\);\n.*ptr1, true\);\n$/, "giveString(arg0, $1);\n")
    .replace(/^const ret = (.*);\nreturn ret;\n$/, "$1;\n");
  return /^(?!throw|const|let|var|return|try|if).*;\n$/.test(steps) ? `(${steps.slice(0, -2)})` : `{\n${lines}}`;
}

function renamed(code, from, to) {
  return code.replaceAll(new RegExp(`\\b${from}\\b`, "g"), to);
}

function replacePart(glue, kind, name, hash, short) {
  const pattern = kind === "function" ? `^function ${name}\\([^]*?^\\}\\n` : `^const ${name} =[^]*?;\\n`;
  const [head, text, tail] = apart(glue, new RegExp(`(${pattern})`, "m"), name);
  const found = createHash("sha256").update(text).digest("hex").slice(0, 8);
  if (found !== hash) fail(`${name}: see what it does now, and then put ${found} in the place of ${hash}`);
  return `${head}${short}\n${tail}`;
}

/** What stands before the match, its group, and what stands behind it. */
function apart(text, pattern, name = pattern) {
  const match = pattern.exec(text);
  if (!match) fail(`there is no ${name}`);
  return [text.slice(0, match.index), match[1], text.slice(match.index + match[0].length)];
}

function replaced(text, pattern, by) {
  if (text.search(pattern) < 0) fail(`nothing is like ${pattern}`);
  return text.replaceAll(pattern, by);
}

function fail(what) {
  throw new Error(`wasm-bindgen's glue is not as .ci/shrink-glue.mjs knows it: ${what}`);
}

/** With the mark, what it stands for cannot be reached while it runs, as Rust wants it of an `FnMut`. */
function closure() {
  return `function makeClosure(arg0, arg1, f, isMut) {
  const state = { a: arg0, b: arg1, cnt: 1 };
  const real = (...args) => {
    state.cnt++;
    const a = state.a;
    if (isMut) state.a = 0;
    try {
      return f(a, state.b, ...args);
    } finally {
      state.a = a;
      real._wbg_cb_unref();
    }
  };
  real._wbg_cb_unref = () => {
    if (--state.cnt === 0) {
      wasm.__wbindgen_destroy_closure(state.a, state.b);
      state.a = 0;
      CLOSURE_DTORS.unregister(state);
    }
  };
  CLOSURE_DTORS.register(real, state, state);
  return real;
}`;
}

function handleError() {
  return `const handleError = (call) => (...args) => {
  try {
    return call(...args);
  } catch (error) {
    wasm.__wbindgen_exn_store(addToExternrefTable0(error));
  }
};`;
}

/** What is ASCII needs no encoder. */
function passString() {
  return `function passStringToWasm0(arg) {
  let len = arg.length;
  let ptr = wasm.__wbindgen_malloc(len, 1) >>> 0;
  const { bytes } = memory();
  let offset = 0;
  for (; offset < len; offset++) {
    const code = arg.charCodeAt(offset);
    if (code > 127) break;
    bytes[ptr + offset] = code;
  }
  if (offset !== len) {
    arg = arg.slice(offset);
    ptr = wasm.__wbindgen_realloc(ptr, len, (len = offset + arg.length * 3), 1) >>> 0;
    offset += cachedTextEncoder.encodeInto(arg, memory().bytes.subarray(ptr + offset, ptr + len)).written;
    ptr = wasm.__wbindgen_realloc(ptr, len, offset, 1) >>> 0;
  }
  WASM_VECTOR_LEN = offset;
  return ptr;
}`;
}

function finalize() {
  return `function __wbg_finalize_init(instance, module) {
  wasm = instance.exports;
  wasm.__wbindgen_start();
}`;
}

/** When the memory grows, what was seen of it has no length any more. */
const HELPERS = `
class Wrapped {
  static __wrap(ptr) {
    const object = Object.create(this.prototype);
    object.__wbg_ptr = ptr;
    WRAPPED.register(object, [this, ptr], object);
    return object;
  }
  free() {
    const ptr = this.__wbg_ptr;
    this.__wbg_ptr = 0;
    WRAPPED.unregister(this);
    this.constructor.drop(ptr, 0);
  }
}
const WRAPPED = finalization(([type, ptr]) => type.drop(ptr, 1));
function finalization(drop) {
  return globalThis.FinalizationRegistry ? new FinalizationRegistry(drop) : { register() {}, unregister() {} };
}
let seen = { bytes: new Uint8Array() };
function memory() {
  if (seen.bytes.length === 0) {
    const { buffer } = wasm.memory;
    seen = { bytes: new Uint8Array(buffer), view: new DataView(buffer) };
  }
  return seen;
}
function optional(value) {
  return isLikeNone(value) ? 0 : addToExternrefTable0(value);
}
function giveString(to, text) {
  const ptr = isLikeNone(text) ? 0 : passStringToWasm0(text);
  const { view } = memory();
  view.setInt32((to >>> 0) + 4, WASM_VECTOR_LEN, true);
  view.setInt32(to >>> 0, ptr, true);
}
function takeString([ptr, len]) {
  if (ptr === 0) return;
  const text = getStringFromWasm0(ptr, len);
  wasm.__wbindgen_free(ptr, len, 1);
  return text;
}
`;
