// Many tabs want the same lock again and again, each to add one to a counter that it reads and writes in two
// transactions: who is not alone loses updates.
import { openCounter } from "./raw.mjs";
import { inTime } from "./wait.mjs";

// Those of the leases, not of the counter.
let transactions = 0;
const transaction = IDBDatabase.prototype.transaction;
IDBDatabase.prototype.transaction = function (...args) {
  if (this.name === "leasehold:bench") transactions++;
  return transaction.apply(this, args);
};

const starts = new BroadcastChannel("bench-starts");

// The counter's value after each turn of this tab, and when it began and ended.
export async function crowd(locks, { name, turns }) {
  // It may still say so of another one, which failed before the start.
  window.standsReady = false;
  const counter = await openCounter(`crowd-${name}`);
  // Whatever it loads or opens at first.
  await inTime(warmUp(locks[name]));
  const started = await going();
  transactions = 0;
  const values = [];
  const work = async () => {
    for (let turn = 0; turn < turns; turn++) {
      const giveBack = await locks[name].take("crowd");
      const value = (await counter.read()) + 1;
      await counter.write(value);
      values.push(value);
      await giveBack();
    }
  };
  await inTime(work(), 60_000);
  return { values, started, ended: Date.now(), transactions };
}

async function warmUp({ take }) {
  const giveBack = await take(`warm ${Math.random()}`);
  await giveBack();
}

// Resolves when somebody says so.
function going() {
  window.standsReady = true;
  return new Promise((resolve) => {
    starts.onmessage = () => {
      window.standsReady = false;
      resolve(Date.now());
    };
  });
}
