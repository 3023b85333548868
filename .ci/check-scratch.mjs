// Looks for classes of leasehold and for a panic hook in two builds of one application: there must be none in the first,
// and some of each kind in the second, or this look has gone blind.
import { readFileSync } from "node:fs";

function look(path) {
  const module = new WebAssembly.Module(readFileSync(path));
  // Without the notes on what is imported: those bear the browser's names.
  const exported = WebAssembly.Module.exports(module).map(({ name }) => name).filter((name) => !/describe___wbg/.test(name));
  // The names of all functions that the linker kept; other sections also name those that it dropped.
  const functions = WebAssembly.Module.customSections(module, "name").map((section) => Buffer.from(section)).join();
  return {
    classes: exported.filter((name) => /(^|_)lease|manager/i.test(name)),
    "panic hooks": functions.match(/\w*panicking\w*set_hook\w*/g) ?? [],
  };
}

const [web, traces] = process.argv.slice(2).map(look);
for (const kind of Object.keys(web)) {
  console.log(`${kind}: ${web[kind].length} with web, ${traces[kind].length} where there are some`);
  if (web[kind].length > 0) fail(`an application with \`web\` gets ${kind} of ours: ${web[kind].join(", ")}`);
  if (traces[kind].length === 0) fail(`no ${kind} seen where there are some: this check looks in the wrong place`);
}

function fail(sentence) {
  console.error(sentence);
  process.exitCode = 1;
}
