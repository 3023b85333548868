// A file server for what was built.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".css": "text/css",
  ".wasm": "application/wasm",
};

/**
 * Serves a folder until the process ends. `types` are others by the file's end, `policies` are the pages' Content-Security-Policy
 * by their path; `fallback` is what is sent, as by development servers, for what is not there. Brings its address.
 */
export async function serve(folder, { types = {}, policies = {}, fallback = undefined } = {}) {
  const server = createServer(async ({ url }, response) => {
    const { pathname } = new URL(url, "http://localhost");
    const path = pathname.endsWith("/") ? `${pathname}index.html` : pathname;
    const read = (path) => readFile(join(folder, normalize(path)));
    try {
      const [content, name] = await read(path).then(
        (content) => [content, path],
        async () => [await read(fallback), fallback],
      );
      const end = extname(name);
      response.setHeader("Content-Type", types[end] ?? TYPES[end] ?? "application/octet-stream");
      if (policies[path]) response.setHeader("Content-Security-Policy", policies[path]);
      response.end(content);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "localhost", () => resolve(undefined)));
  // It serves for as long as somebody else keeps the process alive.
  server.unref();
  return `http://localhost:${server.address().port}/`;
}
