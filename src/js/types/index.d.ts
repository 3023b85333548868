// Written by hand, and checked against the package by tests/js.
export * from "./error.js";
export * from "./event.js";
export * from "./group.js";
export * from "./lease.js";
export * from "./loading.js";
export * from "./locks.js";
export * from "./manager.js";
export * from "./status.js";
export * from "./work.js";
