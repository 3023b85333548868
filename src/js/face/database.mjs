// @ts-check
// The user's own database: raw, or as idb and Dexie show it.
import { LeaseError } from "./error.mjs";
import { KINDS, check, harmless, isA, isObject, quiet } from "./options.mjs";

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
  const raw = harmless("InvalidOptions", "the database", () => {
    if (typeof value?.backendDB !== "function") return unwrapped(value);
    return unwrapped(value.backendDB() ?? notOpen());
  });
  check("InvalidOptions", "the database", "database", raw);
  return raw;
}

function notOpen() {
  throw new LeaseError("InvalidOptions", "the Dexie database is not open: `await db.open()` first");
}

/** Dexie's has the browser's; one within another may leave that to the outer one. */
export function rawTransaction(value) {
  // Most transactions are the browser's own. To look for wrappings around them would take time for nothing.
  if (quiet(() => KINDS.transaction[1](value))) return value;
  const raw = harmless("InvalidOptions", "what is fenced", () => {
    let outer = value;
    // A window is its own parent.
    for (const seen = new Set(); isObject(outer) && !outer.idbtrans && isObject(outer.parent) && !seen.has(outer); outer = outer.parent) {
      seen.add(outer);
    }
    return unwrapped(outer?.idbtrans ?? outer);
  });
  check("InvalidOptions", "what is fenced", "transaction", raw);
  return raw;
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
