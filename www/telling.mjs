// Tabs tell each other what happens to their leases, as long as one of them asks, by the message "look". While none asks, this
// costs nothing: a tab listens from the first question on, and answers each question with a sign of life. So no tab needs a
// timer (the timers of hidden tabs are slow).
const TYPES = ["waiting", "withdrawn", "granted", "suspect", "certain", "lost", "released"];
// A tab that asks does so every half second.
const WATCHED_MS = 3_000;
// If more events than these happen between two questions, the next answer tells the rest.
const BURST = 20;
// Events that nobody has asked for yet: a tab that was frozen hears of its losses before it hears the questions it missed.
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
