// The leases' database as it lies there, past the library.
Object.assign(globalThis, { names, stored, overwrite, upgrade, hangInside, beats, holdWithoutCure, watchBeats });

const NAME = "leasehold:tests";

function answer(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// Only where the library made the database: this would make it without an object store.
async function raw(work) {
  const database = await answer(indexedDB.open(NAME));
  try {
    return await answer(work(database.transaction("leases", "readwrite").objectStore("leases")));
  } finally {
    database.close();
  }
}

function names() {
  return raw((leases) => leases.getAllKeys());
}

function stored(key) {
  return raw((leases) => leases.get(key));
}

function overwrite(key, value) {
  return raw((leases) => leases.put(value, key));
}

// Hangs for this long with a transaction open: nobody else can use the store.
function hangInside(ms) {
  return raw((leases) => {
    const request = leases.get("none");
    request.addEventListener("success", () => {
      new BroadcastChannel("hangs").postMessage(null);
      const until = Date.now() + ms;
      while (Date.now() < until);
    });
    return request;
  });
}

// The beats of the sessions that hold a key, then of those that wait for it.
async function beats(key) {
  const { grants, queue } = JSON.parse(await stored(key));
  const rows = [...grants, ...queue].map(({ holder }) => stored(["session", holder]));
  return (await Promise.all(rows)).map((row) => row && JSON.parse(row).beat);
}

// Opens the database as a later version of a program would. Brings the connection.
function upgrade(version) {
  return answer(indexedDB.open(NAME, version));
}

// Holds a key as another version of the library would that knows nothing of the life of pages: a session, a beacon, and
// neither is taken back when the page is left.
async function holdWithoutCure({ key, leaseMs }) {
  const holder = "f".repeat(32);
  await new Promise((held) => {
    navigator.locks.request(`${NAME}:${holder}`, () => {
      held();
      return new Promise(() => {});
    });
  });
  const now = Date.now();
  const [first, last] = [now * 1024, now * 1024 + 63];
  const session = {
    format: 1, session: holder, beat: 1, beacon: 1, lease_ms: leaseMs, instance: "", floor: 0, heard_at: now, robbed: [],
    deadline: [],
  };
  const grant = { holder, request: 1, mode: "exclusive", token: first, tokens: last, previous: 0, info: "" };
  const record = { format: 1, last_token: last, revision: 1, grants: [grant], queue: [], last_exclusive: last };
  await overwrite(["session", holder], JSON.stringify(session));
  await overwrite(key, JSON.stringify(record));
  return first;
}

// When the holder's session was seen to beat, for this long. Brings the largest gap, in ms.
async function watchBeats({ key, ms }) {
  const began = performance.now();
  let [last, seen, largest] = [began, undefined, 0];
  for (let now = began; now < began + ms; now = performance.now()) {
    const [beat] = await beats(key);
    if (beat !== seen) {
      if (seen !== undefined) largest = Math.max(largest, now - last);
      [last, seen] = [now, beat];
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return { largest: Math.round(Math.max(largest, performance.now() - last)) };
}
