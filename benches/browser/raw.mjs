// What everything else is compared with: one readwrite transaction, get + put + commit(), to `complete`.
const STORE = "raw";

export async function openRaw() {
  const request = indexedDB.open("bench-raw", 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  const db = await new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return () => transact(db);
}

function transact(db) {
  return new Promise((resolve, reject) => {
    const transaction = db.transaction(STORE, "readwrite", { durability: "relaxed" });
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
    const store = transaction.objectStore(STORE);
    const request = store.get("key");
    request.onsuccess = () => {
      store.put({ count: (request.result?.count ?? 0) + 1 }, "key");
      transaction.commit();
    };
  });
}
