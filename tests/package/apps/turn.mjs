// What each program does with the package, and tells of it.
export async function turn(LeaseManager, options) {
  const leases = await LeaseManager.open("packed", options);
  const first = await leases.acquire("notes");
  const valid = await first.verify();
  const released = await first.release();
  const second = await leases.acquire("notes");
  await second.release();
  await leases.close();
  return { valid, released, grows: second.token > first.token };
}

/** Brings what a rejection says instead. */
export const told = (promise) => promise.catch(({ name, code, message }) => ({ name, code, message }));

/** In a worker: tells it to whoever sends a port. */
export const tellWhenAsked = (work) =>
  addEventListener("message", async ({ ports: [port] }) => port?.postMessage(await told(work())));

/** In a page: asks a worker. */
export const ask = (worker) =>
  new Promise((resolve, reject) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => resolve(data);
    worker.addEventListener("error", ({ message }) => reject(Error(`the worker failed: ${message}`)));
    worker.postMessage(null, [port2]);
  });
