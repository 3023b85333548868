// @ts-check
// All of the package in a time of its own, and what tests need beside it.
export { clock } from "./clock.mjs";
export { FaultyStore } from "./faulty.mjs";
export * from "./index.mjs";
