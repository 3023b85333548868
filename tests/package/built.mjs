// Programs that use the package, as bundlers serve and build them: each brings the address of its page, and how many wasm
// files its browser's half has.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { copyFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { install, place } from "./packed.mjs";
import { serve } from "./served.mjs";

const require = createRequire(join(place, "package.json"));
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const endings = [];

/** Ends all servers. */
export const end = () => Promise.all(endings.map((ending) => ending()));

const wasmIn = (folder) => readdirSync(folder, { recursive: true }).filter((file) => file.endsWith(".wasm")).length;

/** Its development server, of a folder of apps/ that `prepare` adds to. */
export async function viteServes(vite, name, app = "bundled", prepare = (folder) => folder) {
  const root = install(app, name);
  prepare(root);
  const { createServer } = await load(vite);
  const server = await createServer({ root, configFile: false, logLevel: "silent", server: { port: 0 } });
  await server.listen();
  endings.push(() => server.close());
  return { server, url: server.resolvedUrls.local[0] };
}

export async function viteBuilds(vite, name) {
  const root = install("bundled", name);
  const { build } = await load(vite);
  await build({ root, configFile: false, logLevel: "silent" });
  return { url: await serve(join(root, "dist")), wasm: wasmIn(join(root, "dist")) };
}

/** What renders in the server's process: by the development server, and built. */
export async function viteRenders(vite, name) {
  const { server } = await viteServes(vite, name);
  const { root } = server.config;
  const { build } = await load(vite);
  await build({ root, configFile: false, logLevel: "silent", build: { ssr: "src/server.mjs" } });
  const [file] = readdirSync(join(root, "dist")).filter((file) => file.startsWith("server."));
  const built = await import(pathToFileURL(join(root, "dist", file)).href);
  return [(await server.ssrLoadModule("/src/server.mjs")).render, built.render];
}

export async function webpackBuilds() {
  const context = install("bundled", "webpack");
  const path = join(context, "dist");
  const { default: webpack } = await load("webpack");
  const compiler = webpack({ context, entry: "./src/main.mjs", mode: "production", output: { path } });
  const { compilation } = await new Promise((resolve, reject) => {
    compiler.run((error, stats) => (error ? reject(error) : resolve(stats)));
  });
  // The wasm is larger than what webpack likes to see.
  const complaints = [...compilation.errors, ...compilation.warnings].filter(({ name }) => !/SizeLimit/.test(name));
  assert.deepEqual(complaints, []);
  return { url: await page(path), wasm: wasmIn(path) };
}

/** It leaves the wasm where it is: `copies` it beside the script, as its users do. */
export async function esbuildBuilds(name, entry, copies, options = {}) {
  const folder = install("bundled", name);
  const { build } = await load("esbuild");
  const entryPoints = [join(folder, `src/${entry}.mjs`)];
  await build({ entryPoints, bundle: true, format: "esm", outfile: join(folder, "dist/main.js"), logLevel: "error", ...options });
  const wasm = "leasehold_bg.wasm";
  if (copies) copyFileSync(join(folder, "node_modules/leasehold", wasm), join(folder, "dist", wasm));
  return { url: await page(join(folder, "dist")) };
}

/** A page, and the classic service worker that it registers: a script without imports, in which leasehold/inline replaces leasehold. */
export async function esbuildBuildsService(name) {
  const folder = install("bundled", name);
  const { build } = await load("esbuild");
  // What an alias leads to is found from the working folder.
  const make = (entry, outfile, more) =>
    build({ entryPoints: [`src/${entry}.mjs`], outfile, absWorkingDir: folder, bundle: true, logLevel: "error", ...more });
  await make("leasing", "dist/leasing.js", { format: "iife", alias: { leasehold: "leasehold/inline" } });
  await make("service", "dist/main.js", { format: "esm" });
  return { url: await page(join(folder, "dist")) };
}

function page(folder) {
  writeFileSync(join(folder, "index.html"), '<!doctype html><title>built</title><script type="module" src="main.js"></script>');
  return serve(folder);
}

export async function nextBuilds(name, ...flags) {
  const folder = install("next", name);
  const [next, options] = nextIn(folder);
  execFileSync(process.execPath, [next, "build", ...flags], { ...options, stdio: ["ignore", "ignore", "inherit"] });
  return { url: await nextListens(folder, "start"), wasm: wasmIn(join(folder, ".next/static")) };
}

/** Its development server. */
export const nextServes = async (name) => ({ url: await nextListens(install("next", name), "dev") });

function nextIn(folder) {
  // Vite sets NODE_ENV to what suits itself.
  const { NODE_ENV, ...env } = process.env;
  return [join(place, "node_modules/next/dist/bin/next"), { cwd: folder, env: { ...env, NEXT_TELEMETRY_DISABLED: "1" } }];
}

async function nextListens(folder, verb) {
  const [next, options] = nextIn(folder);
  const args = [next, verb, "--hostname", "localhost", "--port", "0"];
  const server = spawn(process.execPath, args, { ...options, stdio: ["ignore", "pipe", "inherit"] });
  endings.push(() => new Promise((resolve) => (server.exitCode === null ? server.once("exit", resolve) && server.kill() : resolve())));
  return new Promise((resolve, reject) => {
    let told = "";
    server.stdout.on("data", (text) => {
      const [address] = (told += text).match(/http:\/\/localhost:\d+/) ?? [];
      if (address) resolve(`${address}/`);
    });
    server.once("exit", () => reject(Error(`next ${verb} ended: ${told}`)));
  });
}
