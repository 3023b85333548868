// What the examples in the types' comments speak of without making it; tests/js/examples.d.ts has the types.
import * as leasehold from "leasehold";
import { openDB } from "/modules/idb/build/index.js";

const upgrade = (db) => [db.createObjectStore("notes"), leasehold.createStore(db)];
// As it is: some examples are written for IndexedDB itself.
const db = await new Promise((resolve) => {
  const request = indexedDB.open("examples", 1);
  request.onupgradeneeded = () => upgrade(request.result);
  request.onsuccess = () => resolve(request.result);
});
const leases = await leasehold.LeaseManager.attach(db);

Object.assign(globalThis, leasehold, {
  db,
  leases,
  lease: await leases.acquire("an example's"),
  request: indexedDB.open("another", 1),
  openDB,
  note: { text: "an example's" },
  notes: [],
  id: "first",
  url: "/notes",
  body: "an example's",
  cache: { reload() {} },
  backUp: async () => {},
  needsRepair: async () => true,
  repair: async () => {},
  read: () => "stale",
  refresh: async () => "fresh",
  save: async (what) => what,
  serveUntil: async () => {},
  stillFresh: (token) => token === "fresh",
  sync: async () => {},
  transfer: async () => {},
});
