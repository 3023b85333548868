// Both rivals ship CommonJS only. This loads such a file, and what it requires beside it, without a bundler.
export async function load(url) {
  const modules = new Map();
  await fetchAll(new URL(url, location.href), modules);
  return evaluate(new URL(url, location.href).href, modules);
}

async function fetchAll(url, modules) {
  if (modules.has(url.href)) return;
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url.pathname} is not there: npm ci --prefix benches installs it`);
  const source = await response.text();
  modules.set(url.href, { source });
  for (const [, path] of source.matchAll(/\brequire\("(\.[^"]+)"\)/g)) await fetchAll(resolve(path, url), modules);
}

function evaluate(href, modules) {
  const module = modules.get(href);
  if (!module.exports) {
    module.exports = {};
    const require = (path) => evaluate(resolve(path, href).href, modules);
    new Function("exports", "require", module.source)(module.exports, require);
  }
  return module.exports;
}

const resolve = (path, base) => new URL(path.endsWith(".js") ? path : `${path}.js`, base);
