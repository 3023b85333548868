// @ts-check
// A store in memory that fails on demand.
import { misfit } from "./options.mjs";

const FAULTS = ["refuse", "fail", "loseReply", "silence", "stall"];

function checked(fault) {
  if (FAULTS.includes(fault)) return fault;
  throw new TypeError(misfit("a fault", "refuse, fail, loseReply, silence or stall", fault));
}

export class FaultyStore {
  #next = [];
  #always;
  #seen = 0;

  inject(...faults) {
    this.#next.push(...faults.map(checked));
  }

  failAlways(fault) {
    this.#always = checked(fault);
  }

  heal() {
    this.#next = [];
    this.#always = undefined;
  }

  get transactions() {
    return this.#seen;
  }

  /** The wasm calls this once for each transaction, and with `true` to list keys. A single fault does not affect a list. */
  nextFault(looks) {
    if (looks) return this.#always;
    this.#seen += 1;
    return this.#next.shift() ?? this.#always;
  }
}
