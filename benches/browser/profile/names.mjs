// Guesses from a glue function's source what it does: its name in the package has only one or two letters.
const READINGS = [
  [/_wbg_cb_unref\(\)/, () => "drop a closure"],
  [/\b((?:set|clear)(?:Timeout|Interval)|queueMicrotask)\(/, ([, name]) => `${name}()`],
  [/\.__wrap\(/, () => "make an object of the wasm"],
  [/prototype\.set\.call/, () => "copy bytes"],
  [/\bnew ([A-Z]\w+)/, ([, type]) => `new ${type}`],
  // A method; not those by which the glue reaches the wasm's memory.
  [/\b(\w+)\.(?!apply\(|call\(\w+\(|set(?:Int32|Float64)\()([a-z]\w*)\(/, ([, owner, name]) => `${ownerOf(owner)}${name}()`],
  [/\w\[[^\]]+\]=/, () => "set a property"],
  [/\w\[\w+>>>0\]/, () => "an element"],
  [/\w\.([a-z]\w*)=[^=]/, ([, name]) => `set ${name}`],
  [/typeof \w+[!=]=+"(\w+)"/, ([, type]) => `a ${type}?`],
  [/typeof (\w{3,})/, ([, name]) => name],
  [/(?:=|return )\w\.([a-z]\w*)/, ([, name]) => `get ${name}`],
  [/return \w+===(null|void 0)/, ([, value]) => `${value}?`],
  [/(?:return |=)\w+\(\w+,\w+,[\w$]+\)/, () => "make a closure"],
  [/^\{\w+\(\w+\(\w,\w\)\)\}$/, () => "warn()"],
  [/(?:return |=)\w+\(\w+,\w+\)/, () => "make a text"],
  [/\{return \w+\}/, () => "make a number"],
  [/^\{\w\}$/, () => "drop a reference"],
];

const ownerOf = (owner) => (owner.length > 2 ? `${owner}.` : "");

export function nameOf(called) {
  const source = String(called).replace(/^\(\.\.\.\w\)=>\w\((.*),\w\)$/s, "$1");
  if (/^\w=>\w\(\w\(\w\)\)$/.test(source)) return "copy a reference";
  const body = source.replace(/^(?:\w|\([^)]*\))=>/, "");
  const text = (body.startsWith("{") ? body : `{return ${unwrapped(body)}}`)
    // The wasm has a number for each JavaScript value. Functions of one argument turn the one into the other, and are left out here.
    .replaceAll(/(?<![\w.])[a-z]\w?\((\w)\)/g, "$1");
  for (const [pattern, name] of READINGS) {
    const match = text.match(pattern);
    if (match) return name(match);
  }
  return text.slice(0, 24);
}

/** The argument, if the whole expression is the call of a function with one argument; else the expression. */
function unwrapped(expression) {
  const [, given] = /^\w{1,2}\((.*)\)$/s.exec(expression) ?? [];
  let depth = 0;
  const isOne = given && [...given].every((letter) => (depth += { "(": 1, ")": -1 }[letter] ?? 0) >= 0 && (depth > 0 || letter !== ","));
  return isOne ? given : expression;
}

export const CLOSURES = "promises and closures";

// Finds the method that calls each function of the wasm, in the source of the calling module.
export function callersIn(module) {
  return (name) => {
    if (new RegExp(`,\\w+\\.${name}[,)]|\\.${name}\\(\\w+,\\w+\\*`).test(module)) return "memory for texts";
    const at = module.search(new RegExp(`\\.${name}\\(`));
    if (at < 0) return "others";
    // The last head of a function or a method before the call.
    const before = module.slice(Math.max(0, at - 1_000), at);
    const heads = before.matchAll(/(?<=[{};]|function |static |get )(?!catch|if|for|while|switch)(\w+)\([\w,]*\)\{/g);
    const caller = [...heads].at(-1)?.[1] ?? "";
    // The minifier keeps the names of methods. A caller with a short name runs closures, for events and promises.
    return caller.length > 2 ? `${caller}()` : CLOSURES;
  };
}
