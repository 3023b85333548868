// Two copies of the package in one page, over one connection to one database.

const copies = [await import("/pkg/index.mjs"), await import("/kept/pkg/index.mjs")];

// The database, and the lease of each copy.
let db, held;

async function open() {
  const request = indexedDB.open("tests-copies");
  request.onupgradeneeded = () => {
    request.result.createObjectStore("notes");
    copies[0].createStore(request.result);
  };
  return new Promise((resolve) => (request.onsuccess = () => resolve(request.result)));
}

// The first copy holds the first key, and the second copy the second key.
export async function holdByTwoCopies({ keys, options }) {
  db = await open();
  const managers = await Promise.all(copies.map(({ LeaseManager }) => LeaseManager.attach(db, options)));
  held = await Promise.all(managers.map((leases, copy) => leases.acquire(keys[copy])));
}

export async function stealFromCopy(key) {
  const leases = await copies[0].LeaseManager.attach(await open());
  await leases.steal(key);
}

// Opens a transaction, has these copies fence it in turn, writes a text in it and calls its `commit()`. With `early`, it calls that after the
// first fence. With `again`, the copies fence it a second time when all their fences have answered. Returns how the transaction ended, and
// what the fences said.
export async function writeByTwoCopies({ turns, text, again = false, early = false }) {
  const transaction = db.transaction(["notes", "leasehold"], "readwrite");
  const ended = new Promise((resolve) => {
    transaction.oncomplete = () => resolve("complete");
    transaction.onabort = () => resolve("abort");
  });
  const notes = transaction.objectStore("notes");
  const fence = (copy) => held[copy].fence(transaction).then(() => "current", ({ code }) => code);
  const write = () => {
    try {
      notes.put(text, "note");
      transaction.commit();
    } catch {
      // A copy that knew of its loss aborted the transaction when it was asked to fence it.
    }
  };
  const [first, ...rest] = turns;
  const said = [fence(first)];
  if (early) write();
  said.push(...rest.map(fence));
  if (again) {
    await asking(notes, Promise.all(said));
    said.push(...turns.map(fence));
  }
  if (!early) write();
  return { ended: await ended, said: await Promise.all(said) };
}

// A transaction lasts while it has pending requests, and is active while the `success` event of one of them is dispatched.
function asking(notes, all) {
  let answered = false;
  all.then(() => (answered = true));
  return new Promise((resolve) => {
    const ask = () => (answered ? resolve() : (notes.get("note").onsuccess = ask));
    ask();
  });
}

export async function noteOfCopies() {
  const request = db.transaction("notes").objectStore("notes").get("note");
  return new Promise((resolve) => (request.onsuccess = () => resolve(request.result ?? null)));
}
