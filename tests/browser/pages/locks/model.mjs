// The rules of Web Locks in their simplest form, one context and all at once: the oracle where a platform has none of its
// own. That it is right is shown where there is one.

/** Locks of one context. */
export class ModelLocks {
  #held = [];
  #queue = [];

  request(name, options, callback) {
    const { mode, steal, ifAvailable, signal } = { mode: "exclusive", ...options };
    const refuse = (name) => Promise.reject(new DOMException("refused", name));
    if (name[0] === "-" || (steal && (ifAvailable || mode === "shared")) || (signal && (steal || ifAvailable))) return refuse("NotSupportedError");
    return new Promise((resolve, reject) => {
      const one = { name, mode, callback, resolve, reject, signal };
      if (steal) {
        for (const robbed of this.#held.filter((held) => held.name === name)) {
          this.#held.splice(this.#held.indexOf(robbed), 1);
          robbed.reject(new DOMException("robbed", "AbortError"));
        }
        this.#queue.unshift(one);
      } else if (ifAvailable && !this.#isFree(one, this.#queue)) {
        return void setTimeout(() => resolve(Promise.resolve(null).then(callback)));
      } else {
        this.#queue.push(one);
      }
      one.abort = () => {
        this.#queue = this.#queue.filter((queued) => queued !== one);
        this.#end(one);
        reject(signal.reason);
      };
      signal?.addEventListener("abort", one.abort);
      this.#grant();
    });
  }

  async query() {
    const show = ({ name, mode }) => ({ name, mode, clientId: "model" });
    return { held: this.#held.map(show), pending: this.#queue.map(show) };
  }

  #isFree({ name, mode }, before) {
    const holders = this.#held.filter((held) => held.name === name);
    const fits = mode === "shared" ? holders.every((held) => held.mode === "shared") : !holders.length;
    return fits && !before.some((queued) => queued.name === name);
  }

  #grant() {
    for (let at = 0; at < this.#queue.length; ) {
      const one = this.#queue[at];
      if (!this.#isFree(one, this.#queue.slice(0, at))) {
        at++;
        continue;
      }
      this.#queue.splice(at, 1);
      this.#held.push(one);
      setTimeout(() => this.#run(one));
    }
  }

  #run(one) {
    if (one.signal?.aborted) return;
    one.signal?.removeEventListener("abort", one.abort);
    const work = new Promise((resolve) => resolve(one.callback({ name: one.name, mode: one.mode })));
    work.finally(() => this.#end(one)).then(one.resolve, one.reject);
  }

  #end(one) {
    this.#held = this.#held.filter((held) => held !== one);
    this.#grant();
  }
}
