// A number in IndexedDB that all tabs of this site share, counted up as a careless program would: read in one
// transaction, written in the next. Between the two, another tab may have written; its step is then lost. That is what
// the lease is for.
const STORE = "numbers";

export class Counter {
  #db;

  static async open(name = "leasehold-demo-counter") {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    const counter = new Counter();
    counter.#db = await new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    return counter;
  }

  // { actual, expected }: how far the tabs have counted, and how far they would have if no step had been lost.
  read() {
    return this.#transaction("readonly", (store, found) => {
      get(store, "actual", (actual) => get(store, "expected", (expected) => found({ actual, expected })));
    });
  }

  async step() {
    const { actual } = await this.read();
    await this.#write(actual + 1);
  }

  // `expected` is read and written in one transaction, which no other tab can come between: it is always right.
  #write(actual) {
    return this.#transaction("readwrite", (store) => {
      store.put(actual, "actual");
      get(store, "expected", (expected) => store.put(expected + 1, "expected"));
    });
  }

  reset() {
    return this.#transaction("readwrite", (store) => store.clear());
  }

  close() {
    this.#db.close();
  }

  #transaction(mode, work) {
    return new Promise((resolve, reject) => {
      const transaction = this.#db.transaction(STORE, mode, { durability: "relaxed" });
      let result;
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () => reject(transaction.error);
      work(transaction.objectStore(STORE), (found) => { result = found; });
    });
  }
}

function get(store, key, then) {
  const request = store.get(key);
  request.onsuccess = () => then(request.result ?? 0);
}
