// @ts-check
// The user's own database: raw, or as idb and Dexie show it.
import { check, isA, isObject } from "./options.mjs";

/** What a wrapping of idb stands for: it calls functions on the object itself. (An event would show it too, but in WebKit a
 *  transaction that was shown one is active no more.) */
function unwrapped(value) {
  if (!isA("IDBDatabase", value) && !isA("IDBTransaction", value)) return value;
  let raw = value;
  value[UNWRAP] = function () {
    raw = this;
  };
  value[UNWRAP]();
  delete value[UNWRAP];
  return raw;
}

const UNWRAP = Symbol();

/** Dexie's has the browser's, once it is open. */
export function rawDatabase(value) {
  const raw = unwrapped(typeof value?.backendDB === "function" ? value.backendDB() : value);
  check("InvalidOptions", "the database", "database", raw);
  return raw;
}

/** Dexie's has the browser's; one within another may leave that to the outer one. */
export function rawTransaction(value) {
  let outer = value;
  while (isObject(outer) && !outer.idbtrans && isObject(outer.parent)) outer = outer.parent;
  return unwrapped(outer?.idbtrans ?? outer);
}

export function createStore(db) {
  const raw = rawDatabase(db);
  if (!raw.objectStoreNames.contains("leasehold")) raw.createObjectStore("leasehold");
}
