// One write into the user's own database, plain and under a fence.
import * as present from "/pkg/index.mjs";

const NOTES = "notes";
const LEASES = "leasehold";

// None while the library has no fences.
export async function writes(database = "bench-fence", leasehold = present) {
  if (!leasehold.Lease.prototype.fence) return {};
  const db = await open(database, leasehold.createStore);
  const lease = await (await leasehold.LeaseManager.attach(db)).acquire("writes");
  return {
    plain_write: { each: 10, turn: () => write(db.transaction(NOTES, "readwrite", { durability: "relaxed" })) },
    fenced_write: {
      each: 10,
      turn: () => {
        const transaction = db.transaction([NOTES, LEASES], "readwrite", { durability: "relaxed" });
        lease.fence(transaction);
        return write(transaction);
      },
    },
  };
}

function open(database, createStore) {
  const request = indexedDB.open(database, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(NOTES);
    createStore(request.result);
  };
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function write(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
    transaction.objectStore(NOTES).put({ text: "a note", at: Date.now() }, "note");
  });
}
