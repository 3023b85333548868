// What everything else is compared with: one readwrite transaction, get + put + commit(), to `complete`.
const STORE = "raw";

export async function openRaw(database) {
  const db = await open(database);
  return () => transact(db);
}

function open(database = "bench-raw") {
  const request = indexedDB.open(database, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function transact(db) {
  return complete(db, (store, transaction) => {
    const request = store.get("key");
    request.onsuccess = () => {
      store.put({ count: (request.result?.count ?? 0) + 1 }, "key");
      transaction.commit();
    };
  });
}

// Reads and writes in transactions of their own.
export async function openCounter(key) {
  const db = await open();
  return {
    read: async () => {
      let request;
      await complete(db, (store) => (request = store.get(key)));
      return request.result ?? 0;
    },
    write: (value) =>
      complete(db, (store, transaction) => {
        store.put(value, key);
        transaction.commit();
      }),
  };
}

function complete(db, ask) {
  return new Promise((resolve, reject) => {
    const transaction = db.transaction(STORE, "readwrite", { durability: "relaxed" });
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
    ask(transaction.objectStore(STORE), transaction);
  });
}
