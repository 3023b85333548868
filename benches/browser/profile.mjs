// The page of the profile, which shows where the time of an operation goes. It sets all hooks from outside, before the package loads. Each
// tab has one of these modes, because finer hooks slow the page more:
//   plain      no hook at all: how long an operation takes;
//   marks      when the package calls the browser, and when the browser answers; some thirty marks an operation;
//   crossings  whose code runs: each call into the wasm, out of it, and into the browser;
//   parts      the same, with a wasm that tells which part of its work it does: see .ci/pkg;
//   flipped    no hook, but the package calls `commit()` in Firefox, and in no other browser.
import { sleep } from "./wait.mjs";
import { hearParts } from "./profile/parts.mjs";
import { hookPlatform } from "./profile/platform.mjs";
import { calibrate } from "./profile/spans.mjs";
import { hookWasm } from "./profile/wasm.mjs";

const mode = location.search.slice(1);
const hooksCalls = mode === "crossings" || mode === "parts";
const calibration = hooksCalls ? await calibrate() : null;
if (mode === "parts") hearParts();
if (hooksCalls) await hookWasm(mode === "parts" ? "/marked-pkg/index.mjs" : "/pkg/index.mjs");
if (hooksCalls || mode === "marks") hookPlatform(hooksCalls);
// The package recognizes Firefox by this class, see src/store/indexed_db/connection.rs.
const commits = (mode === "flipped") === "InternalError" in globalThis;
if (mode === "flipped") globalThis.InternalError = commits ? undefined : class {};

const { operations } = await import("./profile/alone.mjs");
const { crowd, sumOf } = await import("./profile/crowd.mjs");
const { handOffs, serve } = await import("./profile/pair.mjs");
const { digest } = await import("./profile/digest.mjs");
const { take } = await import("./profile/take.mjs");

const samples = {};
let alone = {};

const more = (name, taken) => void (samples[name] ??= []).push(...taken);

window.profile = {
  calibration,
  // Whether the package calls `commit()` on its transactions.
  commits,
  // Returns the names of the operations. Only one tab of each mode calls this: it holds leases that a second tab would wait for.
  prepare: async () => Object.keys((alone = await operations(mode))),
  measure: async ({ name, times }) => {
    // WebDriver first sets up the page for a script that returns a promise. The pause keeps that out of the first sample.
    await sleep(20);
    more(name, await take(alone[name], times));
  },
  serve,
  handOffs: async (times) => more("hand-off", await handOffs(times)),
  digest: (name) => digest(samples[name], calibration, alone[name]?.batch),
  crowd,
  sumOf: (reports) => sumOf(reports, calibration),
};
window.ready = true;
