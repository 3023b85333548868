// @ts-check
// The user's own database: raw, or as idb and Dexie show it.
import { LeaseError } from "./error.mjs";
import { check, harmless, isA, isObject } from "./options.mjs";

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

/** The browser's own object of a kind. The value is unwrapped first: where IndexedDB is imitated, as by fake-indexeddb, a wrapping would
 *  pass the check of its kind. */
function rawOf(what, kind, look) {
  const raw = harmless("InvalidOptions", what, () => unwrapped(look()));
  check("InvalidOptions", what, kind, raw);
  return raw;
}

/** Dexie's has the browser's, once it is open. */
export function rawDatabase(value) {
  const look = () => (typeof value?.backendDB === "function" ? (value.backendDB() ?? notOpen()) : value);
  return rawOf("the database", "database", look);
}

function notOpen() {
  throw new LeaseError("InvalidOptions", "the Dexie database is not open: `await db.open()` first");
}

/** Dexie's has the browser's; one within another may leave that to the outer one. */
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

/** Some browsers never answer, and some other program's connection may never go. */
const DELETE_LIMIT_MS = 5_000;

/** Deletes the database of a name. Connections of ours make way. */
export function deleteDatabase(name) {
  const database = `leasehold:${name}`;
  return new Promise((resolve, reject) => {
    const request = indexedDB.deleteDatabase(database);
    let why = "the browser did not answer";
    const fail = () => reject(new LeaseError("Store", `the database ${database} was not deleted: ${why}`));
    const timer = setTimeout(fail, DELETE_LIMIT_MS);
    request.onblocked = () => (why = "another connection to it is open, in this page or another tab");
    request.onsuccess = request.onerror = ({ type }) => {
      clearTimeout(timer);
      if (type === "success") return resolve(undefined);
      why = String(request.error);
      fail();
    };
  });
}
