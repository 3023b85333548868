// The rules of Web Locks that tell of frames and workers, by their numbers.
import { context } from "../contexts.mjs";
import { equal, fails, fresh, seen, take, tells, truth } from "./tools.mjs";

/** A context beside the page, with locks in it. */
async function beside(kind, open) {
  const it = await context(kind);
  const run = (body, ...given) => it.run(`const [${given.map((_, at) => `arg${at}`)}] = ${JSON.stringify(given)}; ${body}`);
  await it.run(`my.locks = ${open}; my.ends = {}; my.take = (name, options, label) => new Promise((start, fail) => {
    my.locks.request(name, options, (lock) => (start(lock && lock.mode), new Promise((end) => (my.ends[label] = end)))).catch(fail);
  })`);
  return { ...it, run };
}

const hold = (it, name, options = {}, label = "one") => it.run("return my.take(arg0, arg1, arg2)", name, options, label);

/** It holds and waits, the page waits for both; then it ends. */
async function ends({ locks, open }, kind, end) {
  const it = await beside(kind, open);
  const [one, two] = [fresh(), fresh()];
  await hold(it, one);
  const holder = take(locks, two);
  await holder.start;
  // Behind the page's own lock, and before the page's next.
  await it.run("my.take(arg0, {}, 'two'); await my.locks.query()", two);
  const [first, second] = [take(locks, one), take(locks, two)];
  equal([await seen(locks, one), await seen(locks, two)], ["X|X", "X|XX"]);
  truth(!first.started, "it waits");
  await end(it);
  await first.start;
  holder.finish();
  await second.start;
  equal([await seen(locks, one), await seen(locks, two)], ["X|", "X|"]);
  first.finish();
  second.finish();
  await Promise.all([first.done, second.done]);
}

const lastFrame = () => [...document.querySelectorAll("iframe")].at(-1);

export const places = {
  async "WL2 where the document is not active, before the name is looked at"({ open }) {
    for (const end of ["removed", "navigated"]) {
      const it = await beside("frame", open);
      await it.run("globalThis.theirs = my.locks; await my.locks.query()");
      const frame = lastFrame();
      const { theirs, DOMException: Theirs, TypeError: TheirTypeError } = frame.contentWindow;
      if (end === "removed") {
        frame.remove();
      } else {
        const loaded = new Promise((resolve) => (frame.onload = resolve));
        frame.src = "/tests/blank.html";
        await loaded;
      }
      const outcome = (promise) => new Promise((resolve) => promise.then(() => resolve("fulfilled"), resolve));
      for (const ask of [() => theirs.request("x", () => {}), () => theirs.request("-", () => {}), () => theirs.query()]) {
        const error = await outcome(ask());
        equal(error?.name, "InvalidStateError", end);
        truth(error instanceof Theirs, "it is of that frame");
      }
      truth((await outcome(theirs.request("x"))) instanceof TheirTypeError, "wrong arguments come before");
      frame.remove();
    }
  },

  async "WL3 without an origin there are no locks"({ open }) {
    const it = await context("sandboxed frame");
    // Ours come with a manager, and there is none: they have to be put in the platform's place.
    const put = open === "navigator.locks" ? "" : `Object.defineProperty(navigator, "locks", { value: undefined, configurable: true }); if (!install()) throw Error("not installed");`;
    const told = await it.run(`${put} const tell = (error) => error.name + (error instanceof DOMException);
      return [await navigator.locks.request("x", () => "granted").catch(tell), await navigator.locks.query().catch(tell)]`);
    equal(told, ["SecurityErrortrue", "SecurityErrortrue"]);
    lastFrame().remove();
  },

  async "WL14 WL16 WL22 in every kind of context"({ locks, open }) {
    for (const kind of ["frame", "dedicated worker", "shared worker", "service worker"]) {
      const it = await beside(kind, open);
      const name = fresh();
      equal(await hold(it, name), "exclusive", kind);
      equal(await locks.request(name, { ifAvailable: true }, (lock) => lock), null, kind);
      const waiting = take(locks, name);
      equal(await seen(locks, name), "X|X", kind);
      await it.run("my.ends.one()");
      await waiting.start;
      const robbed = waiting.done;
      const thief = hold(it, name, { steal: true });
      await fails("AbortError", () => robbed, kind);
      equal(await thief, "exclusive", kind);
      await it.run("my.ends.one(); await my.locks.request(arg0, () => {})", name);
      equal(await locks.request(name, (lock) => lock.name === name), true, kind);
      it.end?.();
    }
  },

  async "WL9 a name is the same from one context to another"({ locks, open }) {
    const it = await beside("dedicated worker", open);
    for (const name of ["\ud800", "\0", "", "~d800", "\udc00\ud800"].filter((name) => tells(name, open === "navigator.locks"))) {
      await it.run("await my.take(String.fromCharCode(...arg0), {}, 'one')", [...Array(name.length).keys()].map((at) => name.charCodeAt(at)));
      const { held } = await locks.query();
      equal(held.filter((lock) => lock.name === name).length, 1, JSON.stringify(name));
      equal(await locks.request(name, { ifAvailable: true }, (lock) => lock), null);
      await it.run("my.ends.one()");
      await locks.request(name, () => {});
    }
    it.end();
  },

  async "WL26 each context has its client id, that of the platform"({ locks, open }) {
    const ids = new Set();
    const own = async (name) => (await locks.query()).held.filter((lock) => lock.name === name).map(({ clientId }) => clientId);
    const all = ["page", "frame", "dedicated worker", "shared worker", "service worker"];
    for (const kind of all) {
      const name = fresh();
      const it = kind === "page" ? undefined : await beside(kind, open);
      const here = it ? undefined : [take(locks, name, { mode: "shared" }), take(locks, name, { mode: "shared" })];
      if (it) for (const label of ["one", "two"]) await hold(it, name, { mode: "shared" }, label);
      else await Promise.all(here.map(({ start }) => start));
      const [one, two] = await own(name);
      truth(one && one === two, `${kind}: one id for both: ${one}, ${two}`);
      const platform = `return navigator.locks.request("whose", async () => (await navigator.locks.query()).held.find(({ name }) => name === "whose").clientId)`;
      equal(one, it ? await it.run(platform) : await Function(platform)(), kind);
      ids.add(one);
      if (it) await it.run("my.ends.one(); my.ends.two()");
      else here.forEach((taken) => taken.finish());
      await locks.request(name, () => {});
      it?.end?.();
    }
    equal(ids.size, all.length, "different ids");
  },

  async "WL27 a frame that is removed gives up what it waits for and what it holds"(world) {
    await ends(world, "frame", (it) => it.end());
  },

  async "WL27 a frame that goes elsewhere does so, too"(world) {
    await ends(world, "frame", async () => {
      lastFrame().src = "/tests/blank.html";
    });
    lastFrame().remove();
  },

  async "WL28 so does a worker that is terminated"(world) {
    await ends(world, "dedicated worker", (it) => it.end());
  },
};
