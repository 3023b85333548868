// Runs in any context that contexts.mjs makes: opens the library there, and runs what it is sent.
import * as leasehold from "/pkg/index.mjs";

Object.assign(globalThis, leasehold);
const AsyncFunction = (async () => {}).constructor;
// What the scripts keep from one to the next.
const my = {};

async function run({ body }) {
  try {
    return { value: (await new AsyncFunction("my", body)(my)) ?? null };
  } catch ({ name, code, message }) {
    return { error: { name, code, message } };
  }
}

function serve({ ports: [port] }) {
  if (port) port.onmessage = async ({ data }) => port.postMessage({ id: data.id, ...(await run(data)) });
}

addEventListener("message", serve);
// A shared worker's.
addEventListener("connect", serve);
