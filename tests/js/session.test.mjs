// The sample of docs/refresh-a-token.md in Node.js, over fake-indexeddb: what it does without a session, and that it can be typed.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { openManager } from "./pkg.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const app = join(root, "target/session");
const libraries = join(root, "tests/browser/node_modules");
const inCi = process.env.CI === "true";
const skip = { skip: !existsSync(join(libraries, "fake-indexeddb")) && !inCi && "there is no fake-indexeddb: .ci/setup pages" };
const lacksTsc = spawnSync("tsc", ["--version"]).error && !inCi && "there is no tsc";

const [, code] = readFileSync(join(root, "docs/refresh-a-token.md"), "utf8").match(/```js\n(\/\/ session\.js\n[^]*?)```/);

rmSync(app, { recursive: true, force: true });
mkdirSync(join(app, "node_modules"), { recursive: true });
symlinkSync(join(root, "pkg"), join(app, "node_modules/leasehold"), "dir");
for (const name of ["idb", "fake-indexeddb"]) symlinkSync(join(libraries, name), join(app, "node_modules", name), "dir");
writeFileSync(join(app, "package.json"), `{ "type": "module" }`);
writeFileSync(join(app, "session.js"), `import "fake-indexeddb/auto";\n${code}`);

test("without a session there is no token, and an answer that comes after a logout is not stored", skip, async () => {
  const { accessToken, openSessions } = await import(join(app, "session.js"));
  const [db, leases] = [await openSessions(), await openManager()];
  assert.equal(await accessToken(db, leases, assert.fail), undefined);
  for (const ends of ["is answered", "is refused"]) {
    await db.put("session", { accessToken: "old", refreshToken: "used", expiresAt: 0 }, "mine");
    const askServer = async () => {
      await db.delete("session", "mine");
      if (ends === "is refused") throw Object.assign(new Error("it was used"), { code: "invalid_grant" });
      return { accessToken: "late", refreshToken: "new", expiresAt: Date.now() + 3_600_000 };
    };
    assert.equal(await accessToken(db, leases, askServer), undefined, ends);
    assert.equal(await db.get("session", "mine"), undefined, ends);
  }
  await leases.close();
  db.close();
});

test("if the tab that used a token is gone, the others wait for its answer at the same time, not in turn", skip, async () => {
  const { accessToken, openSessions } = await import(join(app, "session.js"));
  const db = await openSessions();
  await db.put("session", { accessToken: "old", refreshToken: "used", expiresAt: 0 }, "mine");
  const tabs = await Promise.all([1, 2, 3].map(() => openManager({}, "session")));
  const events = [];
  const askServer = async () => {
    events.push("asks");
    throw Object.assign(new Error("it was used"), { code: "invalid_grant" });
  };
  const refused = tabs.map((leases) => accessToken(db, leases, askServer, 1_000).catch(() => events.push("gives up")));
  await Promise.all(refused);
  assert.deepEqual(events, ["asks", "asks", "asks", "gives up", "gives up", "gives up"]);
  for (const leases of tabs) await leases.close();
  await db.delete("session", "mine");
  db.close();
});

/** What a user adds in TypeScript. */
const TYPES = `import type { DBSchema, IDBPDatabase } from "idb";
import type { LeaseManager } from "leasehold";
interface Session { accessToken: string; refreshToken: string; expiresAt: number }
interface Sessions extends DBSchema { session: { key: string; value: Session } }
type Database = IDBPDatabase<Sessions>;
`;
const TYPED = {
  "openDB(": "openDB<Sessions>(",
  "(db, leases, askServer,": "(db: Database, leases: LeaseManager, askServer: (token: string) => Promise<Session>,",
  "= (session) =>": "= (session: Session) =>",
  "store(db, used, answer)": "store(db: Database, used: Session, answer: Session)",
  "(read, used, patienceMs, refusal)": "(read: () => Promise<Session | undefined>, used: Session, patienceMs: number, refusal: unknown)",
  "catch (error)": "catch (error: any)",
};

test("it compiles with the types of its arguments", { skip: skip.skip || lacksTsc }, () => {
  const typed = Object.entries(TYPED).reduce((code, [plain, typed]) => {
    assert.ok(code.includes(plain), plain);
    return code.replace(plain, typed);
  }, code);
  writeFileSync(join(app, "session.ts"), TYPES + typed);
  const args = ["--noEmit", "--strict", "--noUncheckedIndexedAccess", "--module", "nodenext", "--target", "es2022", "--types", "", "session.ts"];
  const { status, stdout, error } = spawnSync("tsc", args, { cwd: app, encoding: "utf8" });
  assert.equal(status, 0, `${error ?? stdout}`);
});
