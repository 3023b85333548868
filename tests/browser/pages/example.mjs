// Runs one example of the guides, and brings what it printed. What it complains of is printed, too: no example should.
const lines = [];
const print = (...words) => lines.push(words.map((word) => (typeof word === "string" ? word : JSON.stringify(word))).join(" "));
console.log = print;
for (const kind of ["warn", "error"]) console[kind] = (...words) => print(`console.${kind}:`, ...words.map(String));
addEventListener("error", ({ message }) => print("error that nobody caught:", message));
addEventListener("unhandledrejection", ({ reason }) => print("rejection that nobody heard:", String(reason)));

// What a bundler with hot replacement offers a module as `import.meta.hot`.
const disposals = [];
globalThis.hot = { dispose: (dispose) => disposals.push(dispose) };

const settled = (request) => new Promise((resolve) => (request.onsuccess = request.onerror = resolve));

// Begins with an empty browser. A module that wants to be told of its replacement is replaced once, as by an edit.
window.run = async (url) => {
  localStorage.clear();
  for (const { name } of await indexedDB.databases()) await settled(indexedDB.deleteDatabase(name));
  try {
    await import(url);
    if (disposals.length) {
      for (const dispose of disposals.splice(0)) await dispose();
      await import(`${url}?edited`);
    }
  } catch (error) {
    print(`${error?.name} (${error?.code}):`, error?.message ?? String(error));
  }
  // What nobody caught is told in a later turn.
  await new Promise((resolve) => setTimeout(resolve, 20));
  return lines.join("\n");
};
