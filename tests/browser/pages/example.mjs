// Runs one example, and brings what it printed, and what it or the browser complained of: none should.
const printed = [];
const complaints = [];
const text = (word) => (typeof word === "string" ? word : (JSON.stringify(word) ?? String(word)));
console.log = (...words) => printed.push(words.map(text).join(" "));
for (const kind of ["warn", "error"]) console[kind] = (...words) => complaints.push(`console.${kind}: ${words.join(" ")}`);
addEventListener("error", ({ message }) => complaints.push(`an error that nobody caught: ${message}`));
addEventListener("unhandledrejection", ({ reason }) => complaints.push(`a rejection that nobody heard: ${reason}`));

// No example speaks to the network.
const { fetch } = window;
window.fetch = async (url, options) => {
  if (new URL(url, location).pathname.startsWith("/pkg/")) return fetch(url, options);
  return String(url).endsWith(".wasm") ? fetch("/pkg/leasehold_bg.wasm") : new Response();
};

// What a bundler with hot replacement offers a module as `import.meta.hot`.
let accepts = false;
const disposals = [];
globalThis.hot = { data: {}, accept: () => (accepts = true), dispose: (dispose) => disposals.push(dispose) };

const settled = (request) => new Promise((resolve) => (request.onsuccess = request.onerror = resolve));

// Begins with an empty browser. A module that accepts its replacement is replaced once, as by an edit.
window.run = async ({ url, prelude }) => {
  localStorage.clear();
  for (const { name } of await indexedDB.databases()) await settled(indexedDB.deleteDatabase(name));
  try {
    if (prelude) await import("./prelude.mjs");
    await import(url);
    if (accepts) {
      for (const dispose of disposals.splice(0)) await dispose();
      await import(`${url}?edited`);
    }
  } catch (error) {
    complaints.push(`${error?.name} (${error?.code}): ${error?.message ?? error}`);
  }
  // What nobody caught is told in a later turn.
  await new Promise((resolve) => setTimeout(resolve, 20));
  return { printed, complaints };
};
