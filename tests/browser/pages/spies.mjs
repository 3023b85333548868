// What the library does to the page, seen from between the two: to be set before a manager is opened.
Object.assign(globalThis, { spyOnChannels, deafen, spyOnTimers, spyOnVisibility, spyOnValidity, spyOnPage, setClock });

// `openChannels` counts.
function spyOnChannels() {
  globalThis.openChannels = 0;
  globalThis.BroadcastChannel = class extends BroadcastChannel {
    constructor(name) {
      super(name);
      openChannels++;
    }
    close() {
      super.close();
      openChannels--;
    }
  };
}

// From then on the page hears no messages.
function deafen() {
  globalThis.BroadcastChannel = class extends BroadcastChannel {
    set onmessage(_) {}
  };
}

// `timers` holds those that are to ring; `transactions` is how many there were, and `slowest` how many ms the slowest took; `deepest` is
// how many timers set one another in a row at most. Chromium lets a hidden page's timers ring once a minute from the fifth on. One that
// an IndexedDB event sets begins anew.
function spyOnTimers() {
  Object.assign(globalThis, { timers: new Set(), transactions: 0, slowest: 0, deepest: 0 });
  let level = 0;
  const [set, clear, transaction] = [setTimeout, clearTimeout, IDBDatabase.prototype.transaction];
  globalThis.setTimeout = (call, ms, ...args) => {
    const mine = level + 1;
    deepest = Math.max(deepest, mine);
    const timer = set(() => {
      timers.delete(timer);
      // What runs in microtasks after it counts as well: the next event ends it.
      level = mine;
      call(...args);
    }, ms);
    // WebKit's driver sets one of its own for each script, of the script's limit.
    if (!(ms >= 100_000)) timers.add(timer);
    return timer;
  };
  globalThis.clearTimeout = (timer) => {
    timers.delete(timer);
    clear(timer);
  };
  IDBDatabase.prototype.transaction = function (...args) {
    transactions++;
    const [begun, at] = [transaction.apply(this, args), performance.now()];
    const ends = () => {
      level = 0;
      slowest = Math.max(slowest, performance.now() - at);
    };
    for (const end of ["complete", "abort"]) begun.addEventListener(end, ends);
    return begun;
  };
}

// `seen` lists what the lease was at each change of visibility, and how long it took to be valid again.
function spyOnVisibility() {
  globalThis.seen = [];
  document.addEventListener("visibilitychange", () => {
    const [entry, at] = [{ hidden: document.hidden, valid: lease.valid, again: null }, performance.now()];
    seen.push(entry);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      if (lease.valid) entry.again = Math.round(performance.now() - at);
      else if (performance.now() < at + 60_000) port2.postMessage(null);
    };
    port2.postMessage(null);
  });
}

// Tells when the lease is not valid at once, and when it is valid again. Never if that takes more than a minute.
async function spyOnValidity() {
  const began = performance.now();
  const atOnce = lease.valid;
  while (!lease.valid && performance.now() < began + 60_000) await new Promise((resolve) => setTimeout(resolve, 5));
  return { atOnce, again: lease.valid ? Math.round(performance.now() - began) : null };
}

// `restored` tells whether the page came back from the back/forward cache.
function spyOnPage() {
  globalThis.restored = false;
  addEventListener("pageshow", (event) => (restored = event.persisted));
}

// The wall clock of this page alone is wrong by this much.
const now = Date.now;
function setClock(ms) {
  Date.now = () => now() + ms;
}
