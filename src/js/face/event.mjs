// @ts-check
// The events of leases.
import { checkMaker, show } from "./error.mjs";

/** The types of events. */
export const HAPPENINGS = new Set(["waiting", "withdrawn", "granted", "suspect", "certain", "lost", "released"]);

/** Something that happened to a lease. */
export class LeaseEvent extends Event {
  constructor(internal, type, details) {
    checkMaker(internal, "an event is made by what happens to a lease");
    super(type);
    show(this, details);
  }
}
