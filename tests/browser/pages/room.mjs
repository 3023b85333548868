// For a site that may keep little: functions that take up its room, free it, and try what follows a write that finds no room.
Object.assign(globalThis, { fillUp, makeRoom, exceed });

const FILLED = "tests-filled";

// Random bytes, because a browser compresses what it can.
function noise(size) {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536));
  return bytes;
}

function open(name, make) {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(name);
    request.onupgradeneeded = () => make(request.result);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// Resolves to "committed", or to the name of the error.
function put(transaction, store, value) {
  return new Promise((resolve) => {
    transaction.oncomplete = () => resolve("committed");
    transaction.onabort = () => resolve(transaction.error?.name ?? "aborted");
    try {
      transaction.objectStore(store).put(value, Math.random());
    } catch (error) {
      transaction.abort();
      resolve(`${transaction.mode}: ${error.name}`);
    }
  });
}

// Leaves less than 64 kB.
async function fillUp() {
  const database = await open(FILLED, (made) => made.createObjectStore("bytes"));
  for (let size = 1 << 20; size >= 1 << 14; ) {
    const end = await put(database.transaction("bytes", "readwrite"), "bytes", noise(size));
    if (end === "QuotaExceededError") size /= 2;
  }
  database.close();
}

function makeRoom() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.deleteDatabase(FILLED);
    request.onsuccess = () => resolve();
    request.onerror = request.onblocked = () => reject(new Error("the room is still taken"));
  });
}

// Under a lease, writes more than the site may keep, then tries something twice: each of `tries` in turn. Returns how each try went.
async function exceed() {
  const database = await open("tests-cramped", (made) => {
    made.createObjectStore("notes");
    createStore(made);
  });
  const manager = await LeaseManager.attach(database, { leaseMs: 600_000, lingerMs: 0 });
  const lease = await manager.acquire("notes");
  const much = noise(11 << 20);
  const begin = () => database.transaction(["notes", "leasehold"], "readwrite");
  const fenced = async (options) => {
    const transaction = begin();
    await lease.fence(transaction, options);
    return put(transaction, "notes", 1);
  };
  const told = {};
  const tries = {
    verify: () => lease.verify(),
    fence: () => fenced(),
    renew: () => fenced({ renew: true }),
    run: () => manager.run("other", () => 1),
  };
  for (const [name, work] of Object.entries(tries)) {
    const twice = [await put(begin(), "notes", much)];
    for (const _ of [1, 2]) twice.push(await work().catch(({ code, message }) => `${code}: ${message}`));
    told[name] = [...twice, await lease.verify()];
  }
  await manager.close();
  database.close();
  return told;
}
