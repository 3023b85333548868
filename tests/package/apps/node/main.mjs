// Prints what it sees, as JSON.
const reaching = ["fetch", "WebAssembly", "indexedDB", "BroadcastChannel", "setTimeout", "atob"];
const touched = [];
for (const name of reaching) {
  const value = globalThis[name];
  Object.defineProperty(globalThis, name, { configurable: true, get: () => (touched.push(name), value) });
}
const { LeaseManager } = await import("leasehold");
const inline = await import("leasehold/inline");
await import("leasehold/testing");
const seen = [...touched];
const { told, turn } = await import("./turn.mjs");

const open = (manager) => told(turn(manager, { store: "memory" }));
const { default: manifest } = await import("leasehold/package.json", { with: { type: "json" } });
const wasm = import.meta.resolve("leasehold/leasehold.wasm").replace(/.*\//, "");
const refused = await told(LeaseManager.open("packed"));
console.log(JSON.stringify({ seen, wasm, name: manifest.name, own: await open(LeaseManager), inline: await open(inline.LeaseManager), refused }));
