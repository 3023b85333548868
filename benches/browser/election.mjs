// The leader election of broadcast-channel: over Web Locks where there are any, over messages else.
import { sleep, until } from "./wait.mjs";
import { withoutLocks } from "./without-locks.mjs";

let loaded;

// Its bundle leaves two names in the window.
function load() {
  return (loaded ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/benches/node_modules/broadcast-channel/dist/lib/browser.js";
    script.onload = () => resolve({ Channel: window.BroadcastChannel2, elect: window.createLeaderElection });
    script.onerror = () => reject(Error(`${script.src} is not there: npm ci --prefix benches installs it`));
    document.head.append(script);
  }));
}

export const electorOverLocks = {
  take: async (key) => {
    const { Channel, elect } = await load();
    const channel = new Channel(key);
    return lead(channel, elect(channel));
  },
  // It waits for the Web Lock of its channel.
  queued: (key) => until(async () => (await navigator.locks.query()).pending.some(({ name }) => name.endsWith(`||${key}`))),
};

export const electorOverMessages = {
  take: async (key) => {
    const { Channel, elect } = await load();
    const channel = new Channel(`${key}-by-messages`);
    return lead(channel, await withoutLocks(() => elect(channel)));
  },
  // By then the leader has answered to the first application.
  queued: () => sleep(100 + Math.random() * 50),
};

// A leader that has stepped down is done for: each turn has a new channel.
async function lead(channel, elector) {
  await elector.awaitLeadership();
  return async () => {
    await elector.die();
    await channel.close();
  };
}
