// @ts-check
// What every face of the package exports: types/ tells the types; what happens to leases happens in the wasm.
export { createStore } from "./database.mjs";
export { LeaseError, isLeaseError } from "./error.mjs";
export { LeaseEvent } from "./event.mjs";
export { LeaseGroup } from "./group.mjs";
export { Lease } from "./lease.mjs";
export { init } from "./loading.mjs";
export { LeaseManager } from "./manager.mjs";
