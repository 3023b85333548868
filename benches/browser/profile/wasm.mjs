// Wraps all that a wasm and its glue call of each other. The glue takes any object for the exports of an instance.
import { CLOSURES, callersIn, nameOf } from "./names.mjs";
import { spanned } from "./spans.mjs";

export async function hookWasm(module) {
  const callerOf = callersIn(await (await fetch(module)).text());
  // Memories and tables are as they were.
  const exportOf = (called, name) => (typeof called === "function" ? entered(callerOf(name), called) : called);
  for (const way of ["instantiate", "instantiateStreaming"]) {
    const native = WebAssembly[way];
    WebAssembly[way] = async (source, imports) => {
      const made = await native.call(WebAssembly, source, mapped(imports, importsOf));
      const instance = { exports: mapped((made.instance ?? made).exports, exportOf) };
      return made.instance ? { module: made.module, instance } : instance;
    };
  }
}

const mapped = (object, change) => Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value, name)]));

// The same exports of the wasm handle every kind of event. They are called with a number for the event, but `window.event` is the event
// itself. Only the first call within an event handles it: the later ones are for promises that were settled meanwhile.
let handled;
function entered(name, called) {
  const plain = spanned("wasm", name, called);
  if (name !== CLOSURES) return plain;
  const byType = {};
  return (...args) => {
    const { event } = globalThis;
    if (!event || event === handled) return plain(...args);
    handled = event;
    return (byType[event.type] ??= spanned("wasm", `on ${event.type}`, called))(...args);
  };
}

const importsOf = (imports) =>
  mapped(imports, (called) => (typeof called !== "function" || isMark(called) ? called : spanned("import", nameOf(called), called)));

// The calls that begin and end a part are not the package's own.
const isMark = (called) => String(called).includes("leaseholdParts");
