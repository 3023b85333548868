// Times of single browser operations. The difference between two of them shows what adding or removing a request would change.
const STORE = "pieces";
const TEXT = "a text as long as the record of one key with a holder and a waiter: ".repeat(3);

export async function pieces(database) {
  const db = await open(database);
  const beside = IDBKeyRange.bound(["session"], ["store"]);
  const turn = (ask, until) => ({ turn: () => transact(db, ask, until) });
  const get = (store) => store.get("key");
  const put = (store) => store.put(TEXT, "key");
  const channel = new BroadcastChannel("profile-pieces");
  return {
    "get, put, commit(), to complete": turn((store) => ({ read: get(store), write: put })),
    "… to the success of the put": turn((store) => ({ read: get(store), write: put }), "success"),
    "… without commit()": turn((store) => ({ read: get(store), write: put, open: true })),
    "… without the get": turn((store) => ({ write: put })),
    "… with two gets": turn((store) => ({ read: (get(store), store.get("other")), write: put })),
    "… with a get and a getAll of three rows": turn((store) => ({ read: (get(store), store.getAll(beside)), write: put })),
    "… with two puts": turn((store) => ({ read: get(store), write: (store) => (put(store), store.put(TEXT, "other")) })),
    "setTimeout() and clearTimeout()": { batch: 200, turn: () => clearTimeout(setTimeout(() => {}, 5_000)) },
    "postMessage() that nobody hears": { batch: 20, turn: () => channel.postMessage(TEXT) },
    "a Web Lock, requested and given back": { turn: () => navigator.locks?.request("profile-pieces", () => {}) },
  };
}

function open(database) {
  const request = indexedDB.open(database, 1);
  request.onupgradeneeded = () => {
    const store = request.result.createObjectStore(STORE);
    for (const name of ["key", "other", ["session", "1"], ["session", "2"], ["store"]]) store.put(TEXT, name);
  };
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// Reads, writes when the last read has succeeded, and commits unless it stays `open`.
function transact(db, ask, until = "complete") {
  return new Promise((resolve, reject) => {
    const transaction = db.transaction(STORE, "readwrite", { durability: "relaxed" });
    transaction.onabort = () => reject(transaction.error);
    const store = transaction.objectStore(STORE);
    const { read, write, open = false } = ask(store);
    const goOn = () => {
      const written = write(store);
      if (!open) transaction.commit();
      (until === "success" ? written : transaction)[`on${until}`] = resolve;
    };
    if (read) read.onsuccess = goOn;
    else goOn();
  });
}
