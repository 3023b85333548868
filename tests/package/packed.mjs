// The package as npm makes it of pkg/, installed beside programs that use it.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url));
/** Where the bundlers are, and with them the programs: they are found from there as from any project. */
export const place = join(root, "target/package");

/** Why what needs the bundlers is left out, for node:test; in CI it is not. */
export const lacksBundlers =
  !existsSync(join(place, "node_modules/vite")) && process.env.CI !== "true" && "no bundlers here: .ci/setup bundlers";

const npm = (folder, ...args) => execFileSync("npm", args, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
let tarball;

/** The file that `npm publish` would send. */
export function pack() {
  if (tarball) return tarball;
  const folder = join(place, `packed-${process.pid}`);
  mkdirSync(folder, { recursive: true });
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const [{ filename }] = Object.values(JSON.parse(npm(join(root, "pkg"), "pack", "--json", "--pack-destination", folder)));
  return (tarball = join(folder, filename));
}

/** The folder of a new program: that of apps/ with the package installed. */
export function install(app, name = app) {
  const folder = join(place, name);
  rmSync(folder, { recursive: true, force: true });
  cpSync(new URL(`apps/${app}`, import.meta.url), folder, { recursive: true });
  cpSync(new URL("apps/turn.mjs", import.meta.url), join(folder, "turn.mjs"));
  writeFileSync(join(folder, "package.json"), `{ "name": "${name}", "private": true, "type": "module" }`);
  npm(folder, "install", "--no-save", "--offline", "--no-audit", "--no-fund", "--install-links", pack());
  return folder;
}
