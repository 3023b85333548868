// The page of the profile. It shows where the time of an operation goes. All hooks are set from outside, before the package loads. Each
// tab has one of these modes, for what is finer costs more:
//   plain      no hook at all: how long an operation takes;
//   marks      when the package calls the browser, and when the browser answers; some thirty marks an operation;
//   crossings  who has the processor: each call into the wasm, out of it, and into the browser;
//   parts      the same, with a wasm that tells which part of the work it is at: see .ci/pkg;
//   flipped    no hook, but the package calls `commit()` where it would not, and does not where it would.
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
// The package tells Firefox by this class, see src/store/indexed_db/connection.rs.
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
  // Whether the package's transactions are told to commit.
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
