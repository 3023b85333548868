// @ts-check
// Leases that were granted together.
import { LeaseError, checkMaker, detached, disposes } from "./error.mjs";
import { ITEM, check, isObject, read } from "./options.mjs";
import { follow } from "./signal.mjs";

/** The store accepts no more keys in one transaction. */
const MOST_KEYS = 1_000;

/** The keys and modes to lease. Each key may occur once. */
export function itemsOf(keys) {
  check("InvalidOptions", "what is to be leased", "list", keys);
  if (keys.length > MOST_KEYS) throw new LeaseError("InvalidOptions", `${keys.length} keys are too many: lease up to ${MOST_KEYS} at once`);
  const seen = new Map();
  return Array.from(keys, (item, at) => {
    const { key, mode } = read(item, ITEM, `keys[${at}]`);
    check("InvalidKey", `keys[${at}].key`, "key", key);
    if (seen.has(key)) throw new LeaseError("InvalidOptions", `keys[${at}] is ${JSON.stringify(key)} again, after keys[${seen.get(key)}]`);
    seen.set(key, at);
    return { key, mode };
  });
}

/** In the background. */
export function giveBack(leases) {
  for (const lease of leases) lease.release().catch(() => {});
}

/** The leases of a group, for a method that may have been taken off it. */
function membersOf(group, name) {
  if (group?.leases) return group.leases;
  throw detached("group", name);
}

export class LeaseGroup {
  #lost;
  #signal;

  constructor(internal, leases) {
    checkMaker(internal, "a group is made by `await leases.acquireAll(keys)`");
    this.leases = Object.freeze(leases);
    Object.freeze(this);
  }

  /** For properties that are stored in private fields, which a proxy does not have. */
  static #read(group, name) {
    if (!(isObject(group) && #lost in group)) throw detached("group", name, true);
    return group;
  }

  [Symbol.iterator]() {
    return this.leases.values();
  }

  get(key) {
    return this.leases.find((lease) => lease.key === key);
  }

  get valid() {
    return this.leases.every((lease) => lease.valid);
  }

  get lost() {
    return (LeaseGroup.#read(this, "lost").#lost ??= Promise.race(this.leases.map((lease) => lease.lost)));
  }

  get signal() {
    if (!LeaseGroup.#read(this, "signal").#signal) {
      // As `AbortSignal.any` does, which older browsers lack.
      const controller = new AbortController();
      for (const lease of this.leases) follow(lease.signal, controller);
      this.#signal = controller.signal;
    }
    return this.#signal;
  }

  async verify() {
    const held = await Promise.all(membersOf(this, "verify").map((lease) => lease.verify()));
    return held.every(Boolean);
  }

  async release() {
    // All releases begin at the call, and this waits for all of them, even if one has failed.
    /** @type {any[]} */
    const ends = await Promise.allSettled(membersOf(this, "release").map((lease) => lease.release()));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
    return ends.some(({ value }) => value === "lost") ? "lost" : "released";
  }
}

disposes(LeaseGroup, "release");
