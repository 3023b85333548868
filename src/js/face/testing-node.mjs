// @ts-check
// As testing.mjs, in Node.js.
export { clock } from "./clock.mjs";
export { FaultyStore } from "./faulty.mjs";
export * from "./node.mjs";
