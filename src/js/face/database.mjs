// @ts-check
// The user's own database: raw, or as idb and Dexie show it.
import { LeaseError } from "./error.mjs";
import { check, harmless, isA, isObject } from "./options.mjs";

/** The object behind a wrapper of idb, which calls functions on the object itself. (An event would reveal that object, too, but in WebKit
 *  a transaction that has dispatched one is no longer active.) */
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

/** The browser's own object of a kind. The value is unwrapped first: where IndexedDB is imitated, as by fake-indexeddb, a wrapping would
 *  pass the check of its kind. */
function rawOf(what, kind, look) {
  const raw = harmless("InvalidOptions", what, () => unwrapped(look()));
  check("InvalidOptions", what, kind, raw);
  return raw;
}

/** A Dexie database has the browser's, once it is open. */
export function rawDatabase(value) {
  const look = () => (typeof value?.backendDB === "function" ? (value.backendDB() ?? notOpen()) : value);
  return rawOf("the database", "database", look);
}

function notOpen() {
  throw new LeaseError("InvalidOptions", "the Dexie database is not open: `await db.open()` first");
}

/** A Dexie transaction has the browser's. A nested one may leave that to the outer one. */
export function rawTransaction(value) {
  return rawOf("what is fenced", "transaction", () => {
    let outer = value;
    // A window is its own parent.
    for (const seen = new Set(); isObject(outer) && !outer.idbtrans && isObject(outer.parent) && !seen.has(outer); outer = outer.parent) {
      seen.add(outer);
    }
    return outer?.idbtrans ?? outer;
  });
}

export function createStore(db) {
  const raw = rawDatabase(db);
  if (!raw.objectStoreNames.contains("leasehold")) raw.createObjectStore("leasehold");
}

/** Some browsers never answer, and another program's connection may never close. */
const DELETE_LIMIT_MS = 5_000;

/** Deletes the database of a name. Our own connections close for that. */
export function deleteDatabase(name) {
  const database = `leasehold:${name}`;
  return new Promise((resolve, reject) => {
    const request = indexedDB.deleteDatabase(database);
    const fail = (why) => reject(new LeaseError("Store", `the database ${database} was not deleted: ${why}`));
    // For a tab that is frozen, Chromium does not even say that the deletion is blocked.
    const open = "another connection to it may be open; close it, or close that tab, which may be frozen";
    const timer = setTimeout(fail, DELETE_LIMIT_MS, open);
    request.onsuccess = request.onerror = ({ type }) => {
      clearTimeout(timer);
      if (type === "success") resolve(undefined);
      else fail(request.error);
    };
  });
}
