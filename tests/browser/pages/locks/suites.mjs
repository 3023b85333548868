// The rules and the random programs in a real page: by the browser's own locks, and by leases.
import { places } from "./places.mjs";
import { sideBySide } from "./programs.mjs";
import { rules } from "./rules.mjs";
import { show } from "./tools.mjs";

const LIMIT_MS = 60_000;
/** For a rule that the browser is known to break. If that has been mended, the rule holds within this time, and the test says so. */
const BROKEN_LIMIT_MS = 5_000;

const engine = globalThis.chrome ? "chromium" : "mozInnerScreenX" in globalThis ? "firefox" : "webkit";

/** Where a browser's own locks break a rule. Once it is mended, this must go. */
const BROKEN = {
  // A request that follows an aborted one waits until something is released.
  chromium: ["WL19 an aborted request"],
  firefox: [],
  // The reason that a signal was aborted with is lost, and a name of a half of a surrogate pair is never granted.
  webkit: ["WL8 an aborted signal", "WL9 names are any"],
};

/** Checks every rule by each world. Brings how many held, and which did not. */
async function checkAll(checks, worlds) {
  const told = { held: 0, broken: [] };
  for (const [who, world] of Object.entries(worlds)) {
    for (const [rule, check] of Object.entries(checks)) {
      const broken = who === "native" && BROKEN[engine].some((start) => rule.startsWith(start));
      let timer;
      const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("it hangs")), broken ? BROKEN_LIMIT_MS : LIMIT_MS)));
      try {
        await Promise.race([check(world, 1), late]);
        told.held += 1;
        if (broken) told.broken.push(`${who}: ${rule}: holds by now`);
      } catch (error) {
        if (!broken) told.broken.push(`${who}: ${rule}: ${show(error)}`);
      }
      clearTimeout(timer);
    }
  }
  return told;
}

const native = () => ({ locks: navigator.locks, other: navigator.locks, native: !Object.hasOwn(navigator, "locks") });

/** In the user's own database. */
async function attached() {
  const opening = indexedDB.open("locks of their own");
  opening.onupgradeneeded = () => createStore(opening.result);
  const db = await new Promise((resolve, reject) => Object.assign(opening, { onsuccess: () => resolve(opening.result), onerror: reject }));
  return { locks: (await LeaseManager.attach(db)).locks, other: (await LeaseManager.attach(db)).locks };
}

export async function inOnePlace() {
  const other = (await LeaseManager.open("tests")).locks;
  return checkAll(rules, { native: native(), leases: { locks: leases.locks, other }, attached: await attached() });
}

export async function besideThePage() {
  return checkAll(places, { native: { locks: navigator.locks, open: "navigator.locks" }, leases: { locks: leases.locks, open: "(my.leases ??= await LeaseManager.open('tests')).locks" } });
}

/** Where the platform has none. */
export async function installed() {
  const before = navigator.locks;
  const did = [install(), install()];
  const told = await checkAll(rules, { installed: native() });
  return { ...told, before: typeof before, did };
}

/** Three contexts of leases beside the page's own locks. */
export async function programs(first) {
  const subjects = [leases.locks];
  while (subjects.length < 3) subjects.push((await LeaseManager.open("tests")).locks);
  return sideBySide({ subjects, oracles: [navigator.locks], first, count: 500, limitMs: 30_000, least: 100 });
}

/** Code that knows nothing of leases, by both. Brings what each told. */
export async function sample(code) {
  const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  const told = {};
  for (const [who, locks] of Object.entries({ native: navigator.locks, leases: leases.locks })) {
    await module.sample(locks, (told[who] = []));
  }
  return told;
}
