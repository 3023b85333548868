// What takes two tabs. One calls `serve()` and answers from then on; the other measures.
import { nextOn } from "./messages.mjs";
import { inTime } from "./wait.mjs";

const channel = new BroadcastChannel("bench");
const now = () => performance.timeOrigin + performance.now();

const next = (kind) => nextOn(channel, kind);

const say = (message) => channel.postMessage(message);

// ---- The serving side -----------------------------------------------------------------------------------------------

export function serve(contestants) {
  const replies = {
    ping: () => say({ kind: "pong", at: now() }),
    wait: async ({ name, key }) => {
      const giveBack = await contestants[name].take(key);
      say({ kind: `granted ${key}`, at: now() });
      await giveBack();
      say({ kind: `given back ${key}` });
    },
  };
  channel.addEventListener("message", ({ data }) => replies[data.kind]?.(data));
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

// Hand-offs of all who take part, round by round, and beside them what they consist of: a transaction, a hop. Samples in
// ms by name, and why those who have none failed.
export async function handOffs(contestants, raw, rounds) {
  const samples = { hop: [], transaction: [] };
  const failures = {};
  for (const name in contestants) samples[name] = [];
  for (let round = 1; round <= rounds; round++) {
    const { trips, ahead } = await pings(30);
    samples.hop.push(...trips.map((trip) => trip / 2));
    for (let i = 0; i < 10; i++) samples.transaction.push(await timed(raw));
    for (const [name, { handOffs }] of Object.entries(contestants)) {
      for (let i = Math.floor((round - 1) * handOffs); i < Math.floor(round * handOffs) && !failures[name]; i++) {
        const work = inTime(handOff(contestants[name], name, `handoff-${name}`, ahead), 10_000);
        await work.then((sample) => samples[name].push(sample), (error) => (failures[name] = String(error)));
      }
    }
  }
  return { samples, failures };
}

async function timed(turn) {
  const started = performance.now();
  await turn();
  return performance.now() - started;
}

// From the start of the release here to the grant's arrival there, by our clock.
async function handOff({ take, queued }, name, key, ahead) {
  const giveBack = await take(key);
  const granted = next(`granted ${key}`);
  const givenBack = next(`given back ${key}`);
  say({ kind: "wait", name, key });
  await queued(key);
  const started = now();
  await giveBack();
  const sample = (await granted).at - ahead - started;
  await givenBack;
  return sample;
}
