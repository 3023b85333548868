// A counter whose every step leaves a line in a log, in the same transaction: who made it, by which token.
Object.assign(globalThis, { makeTurns, readTurns });

async function log() {
  const request = indexedDB.open("tests-turns", 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore("counter");
    request.result.createObjectStore("turns", { autoIncrement: true });
  };
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function transact(database, mode, work) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(["counter", "turns"], mode, { durability: "relaxed" });
    let result;
    transaction.oncomplete = () => resolve(result?.result);
    transaction.onabort = () => reject(transaction.error);
    result = work(transaction.objectStore("counter"), transaction.objectStore("turns"));
  });
}

// `steps` turns, minus those that a tab of this name made before. Brings how many it made.
async function makeTurns({ key, tab, steps }) {
  const database = await log();
  const before = (await transact(database, "readonly", (_, turns) => turns.getAll())).filter((turn) => turn.tab === tab);
  let made = before.length;
  while (made < steps) {
    const lease = await leases.acquire(key);
    const start = Date.now();
    // Read in one transaction, written in the next: who comes in between loses a step.
    const count = (await transact(database, "readonly", (counter) => counter.get("count"))) ?? 0;
    await transact(database, "readwrite", (counter, turns) => {
      counter.put(count + 1, "count");
      turns.add({ tab, token: lease.token, start, end: Date.now() });
    });
    made++;
    await lease.release();
  }
  database.close();
  return made;
}

// The count, and all turns in the order in which they were written.
async function readTurns() {
  const database = await log();
  const count = await transact(database, "readonly", (counter) => counter.get("count"));
  const turns = await transact(database, "readonly", (_, turns) => turns.getAll());
  database.close();
  return { count: count ?? 0, turns };
}
