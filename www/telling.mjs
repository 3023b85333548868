// Tabs tell each other what happens to their leases, as long as one of them looks. It costs nothing while none does: a tab
// listens from the first look on, and answers each look with a sign of life, so that nobody needs a timer (those of hidden
// tabs are slow).
const TYPES = ["waiting", "withdrawn", "granted", "suspect", "certain", "lost", "released"];
// Whoever looks does so every half second.
const WATCHED_MS = 3_000;
// More events than these between two looks are told with the next answer.
const BURST = 20;
// What nobody asked for yet: a tab that was frozen hears of its losses before it hears the looks that it missed.
const KEPT = 200;

export class Telling {
  #leases;
  #me;
  #hear;
  #channel = new BroadcastChannel("leasehold-inspector");
  #listens = false;
  #watchedUntil = 0;
  #kept = [];
  #told = 0;

  // `hear` takes what any tab tells, this one included.
  constructor(leases, name, hear) {
    this.#leases = leases;
    this.#me = { id: Math.random().toString(36).slice(2), name };
    this.#hear = hear;
    this.#channel.onmessage = ({ data }) => (data === "look" ? this.#answer() : this.#hear(data));
    addEventListener("pagehide", () => this.#tell({ bye: true }));
  }

  // Asks all tabs for a sign of life, and for what happens from now on.
  look() {
    this.#channel.postMessage("look");
    this.#answer();
  }

  #answer() {
    this.#watchedUntil = Date.now() + WATCHED_MS;
    if (!this.#listens) for (const type of TYPES) this.#leases.addEventListener(type, (event) => this.#happened(event));
    this.#listens = true;
    this.#told = 0;
    this.#tell({});
  }

  #happened({ type, key, mode, token, reason, holder }) {
    this.#kept = [...this.#kept.slice(1 - KEPT), { type, key, mode, token, reason, holder, at: Date.now() }];
    if (Date.now() < this.#watchedUntil && (this.#told += 1) <= BURST) this.#tell({});
  }

  #tell(more) {
    const message = { ...this.#me, holder: this.#leases.holder, at: Date.now(), events: this.#kept, ...more };
    this.#kept = [];
    this.#channel.postMessage(message);
    this.#hear({ ...message, own: true });
  }
}
