// Notes and leases in one database, and a note written under a lease, as users of each library would write it.
import { openDB } from "/modules/idb/build/index.js";
import Dexie from "/modules/dexie/dist/dexie.mjs";

// Of the build that the page runs.
const { LeaseManager, createStore } = globalThis;

const NAME = "tests-notes";

const libraries = {
  raw: {
    open(version) {
      const request = indexedDB.open(NAME, version);
      request.onupgradeneeded = () => {
        if (!request.result.objectStoreNames.contains("notes")) request.result.createObjectStore("notes");
        createStore(request.result);
      };
      return new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
    },
    write(db, text, { fence, waits, commits }) {
      return new Promise((resolve, reject) => {
        const transaction = db.transaction(["notes", "leasehold"], "readwrite");
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error ?? Error("aborted"));
        const put = () => {
          transaction.objectStore("notes").put(text, "note");
          if (commits) transaction.commit();
        };
        const fenced = fence(transaction);
        if (waits) fenced.then(put, () => {});
        else put();
      });
    },
  },
  idb: {
    open(version) {
      const upgrade = (db) => {
        if (!db.objectStoreNames.contains("notes")) db.createObjectStore("notes");
        createStore(db);
      };
      return openDB(NAME, version, { upgrade });
    },
    async write(db, text, { fence, waits, commits }) {
      const transaction = db.transaction(["notes", "leasehold"], "readwrite");
      const fenced = fence(transaction);
      // Of what fails here, the end of the transaction tells.
      transaction.done.catch(() => {});
      if (waits) await fenced;
      transaction.objectStore("notes").put(text, "note").catch(() => {});
      if (commits) transaction.commit();
      await transaction.done;
    },
  },
  dexie: {
    open(version, stores = { notes: "", leasehold: "" }) {
      const db = new Dexie(NAME);
      db.version(version).stores(stores);
      return db.open();
    },
    write(db, text, { fence, waits, nests }) {
      const work = async (transaction) => {
        const fenced = fence(transaction);
        if (waits) await fenced;
        await db.notes.put(text, "note");
      };
      const within = () => db.transaction("rw", db.notes, db.leasehold, work);
      return nests ? db.transaction("rw", db.notes, db.leasehold, within) : within();
    },
  },
};

let library, db;

// Opens the database by this library, and attaches `leases` to it.
export async function openNotes({ by, version = 1, stores, options }) {
  library = libraries[by];
  db = await library.open(version, stores);
  globalThis.leases = await LeaseManager.attach(db, options);
}

export function closeNotes() {
  db.close();
}

// Writes a note under `lease`. Whether it was written, and what the fence said; `ways` are those of the libraries.
export async function fencedWrite({ text, renew = false, ...ways }) {
  let said = "nothing";
  let heard;
  const fence = (transaction) => {
    const fenced = lease.fence(transaction, { renew });
    const told = (error) => [error.code, error.reason, error.key, error.token === lease.token, error.name];
    heard = fenced.then(() => (said = "current"), (error) => (said = told(error)));
    return fenced;
  };
  const written = await library.write(db, text, { ...ways, fence }).then(() => true, () => false);
  // Of a transaction that was aborted at the call, the write fails before the fence has answered.
  await heard;
  return { written, said };
}

// The same without a lease.
export async function plainWrite(text) {
  await library.write(db, text, { fence: () => Promise.resolve() });
}

export async function note() {
  const raw = await libraries.raw.open();
  const request = raw.transaction("notes").objectStore("notes").get("note");
  const value = await new Promise((resolve) => (request.onsuccess = () => resolve(request.result)));
  raw.close();
  return value;
}

// Hangs as a page does that is paused, and writes in each of these ways before it can hear of anything.
export async function writeAfterPause({ text, ms, ways }) {
  await hang(ms);
  return Promise.all(ways.map((way) => fencedWrite({ text, ...way })));
}

// Clears the object store of the leases by hand.
export async function clearLeases() {
  const raw = await libraries.raw.open();
  const transaction = raw.transaction("leasehold", "readwrite");
  transaction.objectStore("leasehold").clear();
  await new Promise((resolve) => (transaction.oncomplete = resolve));
  raw.close();
}

// Makes a fenced write by the browser's own API, with the write before or after the fence. Returns what the transaction tells of
// its end, what became of the write, and what the fence says.
export async function endOfFencedWrite({ writesFirst }) {
  const transaction = db.transaction(["notes", "leasehold"], "readwrite");
  const write = () => {
    const put = transaction.objectStore("notes").put("late", "note");
    return new Promise((resolve) => {
      put.onsuccess = () => resolve("done");
      put.onerror = () => resolve(put.error.name);
    });
  };
  const early = writesFirst ? write() : null;
  const said = lease.fence(transaction).then(() => "current", (error) => error.code);
  const wrote = early ?? write();
  const ended = await new Promise((resolve) => {
    transaction.oncomplete = () => resolve("complete");
    transaction.onabort = () => resolve("abort");
  });
  return { ended, error: transaction.error?.name ?? null, wrote: await wrote, said: await said };
}

// A fenced write whose transaction never ends by itself: it asks again and again. How it ended, and what the fence said.
export async function writeWithoutEnd(text, options) {
  const raw = await libraries.raw.open();
  globalThis.leases = await LeaseManager.attach(raw, options);
  globalThis.lease = await leases.acquire("notes");
  const transaction = raw.transaction(["notes", "leasehold"], "readwrite");
  const notes = transaction.objectStore("notes");
  const said = lease.fence(transaction).then(() => "current", (error) => error.code);
  notes.put(text, "note");
  const ask = () => (notes.get("note").onsuccess = ask);
  ask();
  const ended = await new Promise((resolve) => {
    transaction.oncomplete = () => resolve("complete");
    transaction.onabort = () => resolve("abort");
    said.then((said) => (globalThis.fenceSaid = said));
  });
  return { ended, said: await said };
}

// Writes notes for `ms`, and at least `least` of them. Returns how many notes it wrote, how many transactions the library itself began
// meanwhile, and how many times 400 ms the notes were late. With heartbeats of 1 s, a beat comes 875 ms after the last renewal at the
// earliest: two notes that are in time are written before that.
export async function writeBusily({ ms, least, renew }) {
  let [notes, pauses, last] = [0, 0, performance.now()];
  // Whatever the acquisition left to be done is done by then. The time until the next beat begins with this call.
  await lease.verify();
  const begin = IDBDatabase.prototype.transaction;
  let own = 0;
  IDBDatabase.prototype.transaction = function (stores, ...rest) {
    if (stores === "leasehold") own++;
    return begin.call(this, stores, ...rest);
  };
  const began = performance.now();
  while (performance.now() < began + ms || notes < least) {
    const { written } = await fencedWrite({ text: notes, renew });
    if (written) notes++;
    pauses += Math.floor((performance.now() - last) / 400);
    last = performance.now();
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  IDBDatabase.prototype.transaction = begin;
  const took = Math.round(performance.now() - began);
  // On a busy machine, a timer that rings late puts the lease in doubt until the store has answered.
  let valid = lease.valid;
  for (let asks = 0; !valid && asks < 10; asks++) {
    await lease.verify();
    valid = lease.valid;
  }
  return { notes, own, pauses, took, valid };
}
