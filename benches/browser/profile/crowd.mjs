// Many tabs want the same lease again and again, and do nothing with it: what one turn takes of all of them together.
import { LeaseManager } from "/pkg/index.mjs";
import { inTime } from "../wait.mjs";
import { counted, spans, waited } from "./digest.mjs";
import { begin, end } from "./sample.mjs";

const mode = location.search.slice(1);
const starts = new BroadcastChannel(`profile-starts-${mode}`);

// One tab's part: all that it marked, and when it began and ended by the clock that all tabs read.
export async function crowd({ turns }) {
  const leases = await LeaseManager.open(`profile-crowd-${mode}`, { lingerMs: 0 });
  await (await leases.acquire(`warm ${Math.random()}`)).release();
  await going();
  // The first ones are not counted: engines compile what runs often, and only then.
  await inTime(repeat(leases, turns), 60_000);
  begin();
  const started = Date.now();
  await inTime(repeat(leases, turns), 60_000);
  const ended = Date.now();
  const { marks, waits, spans } = end();
  await leases.close();
  return { turns, started, ended, names: marks.map(([name]) => name), waits, spans };
}

async function repeat(leases, turns) {
  for (let turn = 0; turn < turns; turn++) {
    const lease = await leases.acquire("crowd");
    await lease.release();
  }
}

// Resolves when somebody says so.
function going() {
  window.standsReady = true;
  return new Promise((resolve) => {
    starts.onmessage = () => {
      window.standsReady = false;
      resolve();
    };
  });
}

// All reports together, per turn.
export function sumOf(reports, calibration) {
  const turns = reports.reduce((sum, report) => sum + report.turns, 0);
  const ms = Math.max(...reports.map(({ ended }) => ended)) - Math.min(...reports.map(({ started }) => started));
  return {
    samples: turns,
    batch: 1,
    us: (1e3 * ms) / turns,
    marks: counted(reports.flatMap(({ names }) => names), turns),
    waits: waited(reports.flatMap(({ waits }) => waits), turns),
    course: null,
    spans: calibration ? spans(reports.flatMap(({ spans }) => spans), calibration, turns) : [],
  };
}
