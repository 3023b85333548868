// @ts-check
// What every entry of the package exports. The types are in types/, and the rules of leases in the wasm.
import { LeaseError } from "./error.mjs";
import { LeaseEvent } from "./event.mjs";
import { LeaseGroup } from "./group.mjs";
import { Lease } from "./lease.mjs";
import { Lock, LockManager } from "./locks.mjs";
import { LeaseManager } from "./manager.mjs";

export { createStore } from "./database.mjs";
export { isLeaseError } from "./error.mjs";
export { init } from "./loading.mjs";
export { install } from "./locks.mjs";
export { Lease, LeaseError, LeaseEvent, LeaseGroup, LeaseManager, Lock, LockManager };

// The bundle has short names, so the public ones are restored here.
for (const [name, type] of Object.entries({ Lease, LeaseError, LeaseEvent, LeaseGroup, LeaseManager, Lock, LockManager })) {
  Object.defineProperty(type, "name", { value: name });
}
