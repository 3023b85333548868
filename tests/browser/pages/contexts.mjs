// Contexts beside the page, of every kind that the platform has. Each can be sent scripts, and most can be ended.

const script = new URL("context.mjs", import.meta.url);

const KINDS = {
  "dedicated worker": () => dedicated(script),
  "isolated worker": () => dedicated(new URL("isolated.mjs", import.meta.url)),
  "shared worker"() {
    const { port } = new SharedWorker(script, { type: "module" });
    return { port };
  },
  async "service worker"() {
    await navigator.serviceWorker.register(script, { type: "module" });
    const { active } = await navigator.serviceWorker.ready;
    return { port: channelTo((port) => active.postMessage(null, [port])) };
  },
  frame: () => framed(),
  "sandboxed frame": () => framed("allow-scripts"),
};

function dedicated(url) {
  const worker = new Worker(url, { type: "module" });
  return { port: channelTo((port) => worker.postMessage(null, [port])), end: () => worker.terminate() };
}

async function framed(sandbox) {
  const frame = document.createElement("iframe");
  if (sandbox) frame.setAttribute("sandbox", sandbox);
  frame.src = new URL("context.html", import.meta.url);
  await new Promise((resolve) => {
    frame.onload = resolve;
    document.body.append(frame);
  });
  return { port: channelTo((port) => frame.contentWindow.postMessage(null, "*", [port])), end: () => frame.remove() };
}

function channelTo(send) {
  const { port1, port2 } = new MessageChannel();
  send(port2);
  return port1;
}

/** Starts one. `run` is to it what WebDriver's scripts are to a page; `end` ends it, if the page can. */
export async function context(kind) {
  const { port, end } = await KINDS[kind]();
  const asked = new Map();
  port.onmessage = ({ data: { id, value, error } }) => {
    const { resolve, reject } = asked.get(id);
    asked.delete(id);
    if (error) reject(error);
    else resolve(value);
  };
  let id = 0;
  const run = (body) =>
    new Promise((resolve, reject) => {
      asked.set(++id, { resolve, reject });
      port.postMessage({ id, body });
    });
  return { run, end };
}
