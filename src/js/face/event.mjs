// @ts-check
// What happens to leases, told.
import { INTERNAL } from "./error.mjs";

/** The types of events. */
export const HAPPENINGS = new Set(["waiting", "withdrawn", "granted", "suspect", "certain", "lost", "released"]);

/** Something that happened to a lease. */
export class LeaseEvent extends Event {
  constructor(internal, type, details) {
    if (internal !== INTERNAL) throw new TypeError("an event is made by what happens to a lease");
    super(type);
    for (const [name, value] of Object.entries(details)) Object.defineProperty(this, name, { value, enumerable: true });
  }
}
