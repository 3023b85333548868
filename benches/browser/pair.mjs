// What takes two tabs. One calls `serve()` and answers from then on; the other measures.
const channel = new BroadcastChannel("bench");
const now = () => performance.timeOrigin + performance.now();

// The other's next message of this kind.
function next(kind) {
  return new Promise((resolve) => {
    channel.addEventListener("message", function listen({ data }) {
      if (data.kind !== kind) return;
      channel.removeEventListener("message", listen);
      resolve(data);
    });
  });
}

const say = (message) => channel.postMessage(message);

// ---- The serving side -----------------------------------------------------------------------------------------------

export function serve(contestants) {
  const replies = {
    ping: () => say({ kind: "pong", at: now() }),
    wait: async ({ name }) => {
      const giveBack = await contestants[name].take();
      say({ kind: "granted", at: now() });
      await giveBack();
      say({ kind: "given back" });
    },
  };
  channel.addEventListener("message", ({ data }) => replies[data.kind]?.(data));
}

// Waits for the lease while another tab holds it and tells every few ms that it lives: `alive`. Brings the time from the
// last such sign to the grant, both as seen here, so that no two clocks are compared.
export async function takeOver({ leases }) {
  let lastSign;
  const listen = ({ data }) => {
    if (data.kind === "alive") lastSign = now();
  };
  channel.addEventListener("message", listen);
  const lease = await leases.acquire("life");
  const granted = now();
  channel.removeEventListener("message", listen);
  await lease.release();
  return granted - lastSign;
}

export async function live({ leases }) {
  await leases.acquire("life");
  setInterval(() => say({ kind: "alive" }), 1);
}

// ---- The measuring side ---------------------------------------------------------------------------------------------

// Round trips, and how far the other tab's clock is ahead of ours: by the quickest of them, where the error is least.
export async function pings(count) {
  const trips = [];
  let best = { trip: Infinity, ahead: 0 };
  for (let i = 0; i < count; i++) {
    const pong = next("pong");
    const sent = now();
    say({ kind: "ping" });
    const { at } = await pong;
    const trip = now() - sent;
    trips.push(trip);
    if (trip < best.trip) best = { trip, ahead: at - (sent + trip / 2) };
  }
  return { trips, ahead: best.ahead };
}

// From the start of the release here to the grant's arrival there, by our clock.
export async function handOffs(contestants, name, count) {
  const { take, queued } = contestants[name];
  const samples = [];
  for (let i = 0; i < count; i++) {
    const { ahead } = await pings(20);
    const giveBack = await take();
    const granted = next("granted");
    const givenBack = next("given back");
    say({ kind: "wait", name });
    await queued();
    const started = now();
    await giveBack();
    samples.push((await granted).at - ahead - started);
    await givenBack;
  }
  return samples;
}
