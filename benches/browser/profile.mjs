// The page of the profile. It shows where the time of an operation goes, and needs nothing of the package for that: all
// hooks are set from outside, before the package loads. Each tab has one of three modes, for what is finer costs more:
//   plain      no hook at all: how long an operation takes;
//   marks      when the package calls the browser, and when the browser answers; some thirty marks an operation;
//   crossings  who has the processor: each call into the wasm, out of it, and into the browser.
import { sleep } from "./wait.mjs";
import { hookPlatform } from "./profile/platform.mjs";
import { calibrate } from "./profile/spans.mjs";
import { hookWasm } from "./profile/wasm.mjs";

const mode = location.search.slice(1);
const calibration = mode === "crossings" ? await calibrate() : null;
if (mode === "crossings") await hookWasm("/pkg/index.mjs");
if (mode !== "plain") hookPlatform(mode);

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
