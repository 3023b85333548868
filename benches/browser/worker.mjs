// A holder in a worker; see life.mjs.
import { LeaseManager } from "/pkg/index.mjs";

self.onmessage = async ({ data: key }) => {
  const leases = await LeaseManager.open("bench", { lingerMs: 0 });
  await leases.acquire(key);
  await new Promise((taken) => {
    navigator.locks?.request(key, () => {
      taken();
      return new Promise(() => {});
    });
  });
  const signs = new BroadcastChannel("bench-signs");
  setInterval(() => signs.postMessage(key), 1);
  self.postMessage("it holds");
};
