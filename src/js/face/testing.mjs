// @ts-check
// The whole package with a clock of its own, and what else tests need.
export { clock } from "./clock.mjs";
export { FaultyStore } from "./faulty.mjs";
export * from "./index.mjs";
