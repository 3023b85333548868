// Drops a manager and its leases, has them collected, and prints what became of the leases. Part of leases.test.mjs.
import { openManager, settle } from "./pkg.mjs";

const watcher = await openManager({}, "collected");
let collected = 0;
const registry = new FinalizationRegistry(() => (collected += 1));

async function forget() {
  const leases = await openManager({}, "collected");
  const [kept, forgotten] = [await leases.acquire("kept"), await leases.acquire("forgotten")];
  for (const handle of [leases, kept, forgotten]) registry.register(handle, undefined);
  return kept.signal;
}

const signal = await forget();
for (let round = 0; round < 100 && collected < 3; round++) {
  await settle();
  globalThis.gc();
}
await settle();
const state = async (key) => `${key}: ${(await watcher.status(key)).holders.length ? "held" : "free"}`;
console.log(`${collected} handles collected; ${await state("kept")}, ${await state("forgotten")}; aborted: ${signal.aborted}`);
process.exit();
