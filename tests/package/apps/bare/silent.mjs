// What an import touches of all that reaches beyond the script.
const touched = [];
const REACHING = ["fetch", "WebAssembly", "indexedDB", "BroadcastChannel", "Worker", "XMLHttpRequest", "localStorage", "atob"];
for (const name of REACHING) {
  const value = globalThis[name];
  Object.defineProperty(globalThis, name, { configurable: true, get: () => (touched.push(name), value) });
}
const listen = EventTarget.prototype.addEventListener;
EventTarget.prototype.addEventListener = function (...args) {
  touched.push(`listener of ${args[0]}`);
  return listen.apply(this, args);
};
const requests = () => performance.getEntriesByType("resource").map(({ name }) => name.replace(/.*\//, ""));

async function touches() {
  for (const entry of ["index", "inline", "testing"]) await import(`./node_modules/leasehold/${entry}.mjs`);
  const seen = [...touched];
  // Else they could not be told from what touches nothing.
  fetch("./silent.html");
  return { seen, proof: touched.slice(seen.length), wasm: requests().filter((name) => name.endsWith(".wasm")) };
}
window.outcome = touches();
