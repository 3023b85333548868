// The rules of Web Locks that need no more than one place to run in, by their numbers. They take any lock manager: the
// browser's own shows that the rule is read rightly. `other` is a second context's.
import { equal, fails, fresh, reason, seen, take, tells, truth } from "./tools.mjs";

const nothing = () => {};

export const rules = {
  async "WL1 wrong arguments are a TypeError, as a rejection"({ locks }) {
    const name = fresh();
    await fails("TypeError", () => locks.request(), "no argument");
    await fails("TypeError", () => locks.request(name), "one argument");
    for (const callback of [undefined, null, {}, "f"]) {
      await fails("TypeError", () => locks.request(name, callback), "two arguments");
      await fails("TypeError", () => locks.request(name, {}, callback), "three arguments");
    }
    for (const mode of ["foo", "", null, 1, "Shared"]) await fails("TypeError", () => locks.request(name, { mode }, nothing), `${mode}`);
    for (const signal of ["no", null, {}, new EventTarget()]) await fails("TypeError", () => locks.request(name, { signal }, nothing), "signal");
    await fails("TypeError", () => locks.request(Symbol(), nothing), "a symbol");
    await fails("TypeError", () => locks.request(name, 5, nothing), "a number for the options");
    const thrown = new RangeError("mine");
    const options = { get ifAvailable() { throw thrown; } };
    truth((await reason(() => locks.request(name, options, nothing))) === thrown, "a getter's error comes through");
    // What converts is taken.
    equal(await locks.request({ toString: () => name }, null, (lock) => lock.name), name);
    equal(await locks.request(name, undefined, (lock) => lock.mode), "exclusive");
    equal(await locks.request(name, { mode: undefined, steal: 0, unknown: 1 }, (lock) => lock.mode), "exclusive");
    equal(await locks.request(5, { mode: { toString: () => "shared" } }, ({ name, mode }) => [name, mode]), ["5", "shared"]);
    await fails("TypeError", () => locks.request.call({}, name, nothing), "another this");
    await fails("TypeError", () => locks.query.call({}), "another this of query");
  },

  async "WL1 members of the options are read in their order, once"({ locks }) {
    const read = [];
    const note = (key, value) => (read.push(key), value);
    const options = {
      get steal() { return note("steal", false); },
      get signal() { return note("signal", undefined); },
      get mode() { return note("mode", "shared"); },
      get ifAvailable() { return note("ifAvailable", false); },
    };
    await locks.request(fresh(), options, nothing);
    equal(read, ["ifAvailable", "mode", "signal", "steal"]);
  },

  async "WL4 names that begin with a hyphen are refused"({ locks }) {
    await fails("NotSupportedError", () => locks.request("-", nothing));
    await fails("NotSupportedError", () => locks.request("-x", nothing));
    for (const name of ["x-y", "", " -"]) equal(await locks.request(name, (lock) => lock.name), name);
  },

  async "WL5 steal and ifAvailable exclude each other"({ locks }) {
    await fails("NotSupportedError", () => locks.request(fresh(), { steal: true, ifAvailable: true }, nothing));
  },

  async "WL6 steal is for exclusive locks"({ locks }) {
    await fails("NotSupportedError", () => locks.request(fresh(), { steal: true, mode: "shared" }, nothing));
  },

  async "WL7 a signal does not go with steal or ifAvailable"({ locks }) {
    const { signal } = new AbortController();
    await fails("NotSupportedError", () => locks.request(fresh(), { signal, steal: true }, nothing));
    await fails("NotSupportedError", () => locks.request(fresh(), { signal, ifAvailable: true }, nothing));
    // Looked at before whether it is aborted, and after the name.
    await fails("NotSupportedError", () => locks.request(fresh(), { signal: AbortSignal.abort(), steal: true }, nothing));
    await fails("NotSupportedError", () => locks.request("-", { signal: AbortSignal.abort() }, nothing));
  },

  async "WL8 an aborted signal rejects with its reason itself"({ locks }) {
    const name = fresh();
    let called = false;
    for (const mine of [new Error("why"), "a word", { not: "even an error" }]) {
      const signal = AbortSignal.abort(mine);
      truth((await reason(() => locks.request(name, { signal }, () => (called = true)))) === mine, "the reason");
    }
    await fails("AbortError", () => locks.request(name, { signal: AbortSignal.abort() }, () => (called = true)));
    truth(!called, "the callback is not called");
  },

  async "WL9 names are any UTF-16, and are not mangled"({ locks, other, native }) {
    const pair = "\u{1f512}";
    const names = ["", "\0", "\0lock:", "\ud800", "\udc00", "\udc00\ud800", "\ufffd", "\uffff", pair, `\ud800${pair}`, "~", "~~", "~d800", "~\ud800", "~d800~\ud800~~", "\\", "\"", "\n", "é", "e\u0301", "x".repeat(5000)];
    const taken = names.map((name) => take(locks, name, { ifAvailable: true }));
    for (const [at, one] of taken.entries()) {
      const lock = await one.start;
      truth(lock !== null, `${JSON.stringify(names[at])} equals no other name`);
      truth(lock.name === names[at], `${JSON.stringify(lock.name)} is ${JSON.stringify(names[at])}`);
    }
    const { held } = await other.query();
    for (const name of names.filter((name) => tells(name, native) && (name || !native))) {
      equal(held.filter((lock) => lock.name === name).length, 1, JSON.stringify(name));
    }
    for (const name of names) {
      equal(await other.request(name, { ifAvailable: true }, (lock) => lock), null, JSON.stringify(name));
    }
    for (const one of taken) one.finish();
    await Promise.all(taken.map(({ done }) => done));
  },

  async "WL10 first come, first served; names are independent"({ locks, other }) {
    const [name, elsewhere] = [fresh(), fresh()];
    const order = [];
    const first = take(locks, name);
    await first.start;
    const turns = [];
    for (let number = 0; number < 6; number++) {
      const here = number % 2 ? other : locks;
      turns.push(here.request(name, () => { order.push(number); }));
      await here.query();
    }
    equal(await other.request(elsewhere, () => "free"), "free");
    equal(order, []);
    first.finish();
    await Promise.all(turns);
    equal(order, [0, 1, 2, 3, 4, 5]);
  },

  async "WL11 shared locks are together, exclusive ones alone"({ locks, other }) {
    const name = fresh();
    const [one, two] = [take(locks, name, { mode: "shared" }), take(other, name, { mode: "shared" })];
    await Promise.all([one.start, two.start]);
    equal([one.lock.mode, two.lock.mode], ["shared", "shared"]);
    const writer = take(locks, name);
    equal(await seen(locks, name), "SS|X");
    const reader = take(locks, name, { mode: "shared" });
    equal(await seen(locks, name), "SS|XS", "a reader does not pass a writer that waits");
    one.finish();
    await one.done;
    equal(await seen(locks, name), "S|XS");
    two.finish();
    await writer.start;
    equal(await seen(other, name), "X|S");
    truth(!reader.started, "the reader waits");
    writer.finish();
    await reader.start;
    reader.finish();
    await reader.done;
  },

  async "WL12 a release grants all leading shared requests"({ locks, other }) {
    const name = fresh();
    const writer = take(locks, name);
    await writer.start;
    const waiting = [];
    for (const mode of ["shared", "shared", "shared", "exclusive", "shared"]) {
      const here = waiting.length % 2 ? other : locks;
      waiting.push(take(here, name, { mode }));
      await here.query();
    }
    writer.finish();
    await writer.done;
    equal(await seen(locks, name), "SSS|XS");
    await Promise.all(waiting.slice(0, 3).map(({ start }) => start));
    truth(!waiting[3].started && !waiting[4].started, "it stops at the first that is not grantable");
    for (const one of waiting) one.start.then(() => one.finish());
    await Promise.all(waiting.map(({ done }) => done));
  },

  async "WL13 every request counts by itself: nothing is reentrant"({ locks }) {
    const name = fresh();
    await locks.request(name, async () => {
      equal(await locks.request(name, { ifAvailable: true }, (lock) => lock), null);
      const inner = take(locks, name);
      equal(await seen(locks, name), "X|X");
      truth(!inner.started, "a nested request waits");
      inner.start.then(() => inner.finish());
    });
    const [one, two] = [1, 2].map(() => take(locks, name, { mode: "shared" }));
    await Promise.all([one.start, two.start]);
    equal(await seen(locks, name), "SS|");
    one.finish();
    await one.done;
    equal(await seen(locks, name), "S|", "each is released by itself");
    two.finish();
    await two.done;
  },

  async "WL14 the callback runs later, with a lock or with null"({ locks }) {
    const name = fresh();
    let ran = false;
    const asked = locks.request(name, (lock) => {
      ran = true;
      return [lock.name === name, lock.mode, Object.prototype.hasOwnProperty.call(lock, "then")];
    });
    truth(!ran, "not at once");
    equal(await asked, [true, "exclusive", false]);
    const holder = take(locks, name);
    await holder.start;
    ran = false;
    const tried = locks.request(name, { ifAvailable: true }, (lock) => ((ran = true), lock === null ? "null" : "lock"));
    truth(!ran, "nor with null");
    equal(await tried, "null");
    const mine = new Error("mine");
    truth((await reason(() => locks.request(name, { ifAvailable: true }, () => { throw mine; }))) === mine, "what is thrown over null");
    equal(await locks.request(name, { ifAvailable: true }, async (lock) => [lock]), [null]);
    holder.finish();
    await holder.done;
    equal(await locks.request(name, { ifAvailable: true }, (lock) => lock.name === name), true);
  },

  async "WL15 a queue makes it not available, as a holder does"({ locks, other }) {
    const name = fresh();
    const reader = take(locks, name, { mode: "shared" });
    await reader.start;
    const writer = take(other, name);
    await other.query();
    equal(await locks.request(name, { mode: "shared", ifAvailable: true }, (lock) => lock), null);
    writer.start.then(() => writer.finish());
    reader.finish();
    await writer.done;
  },

  async "WL16 held until the callback's promise settles, and released before the request does"({ locks, other }) {
    const name = fresh();
    for (const end of ["finish", "fail"]) {
      const holder = take(locks, name);
      await holder.start;
      equal(await seen(other, name), "X|");
      holder[end]("so");
      equal(await holder.done.then((value) => ["finish", value], (error) => ["fail", error]), [end, "so"]);
      equal(await seen(other, name), "|", "it is released by then");
    }
    equal(await locks.request(name, () => 5), 5, "what is no promise is wrapped");
    const mine = new Error("mine");
    truth((await reason(() => locks.request(name, () => { throw mine; }))) === mine, "what the callback throws");
    equal(await seen(other, name), "|");
    const late = { then: (resolve) => resolve("by a thenable") };
    equal(await locks.request(name, () => late), "by a thenable");
  },

  async "WL17 a thenable that is thrown is not called"({ locks }) {
    let called = 0;
    const thenable = { then() { called += 1; } };
    for (const ask of [() => locks.request(fresh(), () => { throw thenable; }), () => locks.request(fresh(), () => Promise.reject(thenable))]) {
      await new Promise((resolve, reject) => ask().then(reject, (error) => (error === thenable ? resolve() : reject(error))));
    }
    equal(called, 0);
  },

  async "WL18 a request is a real promise"({ locks }) {
    for (const promise of [locks.request(fresh(), nothing), locks.query(), locks.request("-", nothing)]) {
      truth(Promise.resolve(promise) === promise, "it is itself");
      await promise.catch(nothing);
    }
  },

  async "WL18 what is there has the names that it should"({ locks }) {
    const what = (value) => Object.prototype.toString.call(value);
    equal([what(locks), locks.request.length, locks.query.length], ["[object LockManager]", 2, 0]);
    await locks.request(fresh(), (lock) => equal(what(lock), "[object Lock]"));
  },

  async "WL19 an aborted request leaves the queue, and the next may come"({ locks, other }) {
    const name = fresh();
    const reader = take(locks, name, { mode: "shared" });
    await reader.start;
    const controller = new AbortController();
    const writer = take(other, name, { signal: controller.signal });
    await other.query();
    const next = take(locks, name, { mode: "shared" });
    equal(await seen(locks, name), "S|XS");
    const mine = new Error("enough");
    controller.abort(mine);
    truth((await reason(() => writer.done)) === mine, "the reason itself");
    await next.start;
    equal(await seen(locks, name), "SS|");
    truth(!writer.started, "it never ran");
    reader.finish();
    next.finish();
    await Promise.all([reader.done, next.done]);
  },

  async "WL19 an abort is felt before the signal's own listeners, and whatever these do"({ locks }) {
    const name = fresh();
    const holder = take(locks, name);
    await holder.start;
    const controller = new AbortController();
    const { signal } = controller;
    const order = [];
    signal.addEventListener("abort", (event) => (event.stopImmediatePropagation(), order.push("listener")));
    // Node.js has no phases.
    const phases = [];
    const target = new EventTarget();
    for (const phase of [false, true]) target.addEventListener("a", () => phases.push(phase), phase);
    target.dispatchEvent(new Event("a"));
    const waiter = take(locks, name, { signal });
    await locks.query();
    if (phases[0]) {
      waiter.done.catch(() => order.push("rejected"));
      controller.abort();
      await waiter.done.catch(nothing);
      equal(order.sort(), ["listener", "rejected"]);
      equal(await seen(locks, name), "X|");
    } else {
      waiter.start.then(() => waiter.finish());
    }
    holder.finish();
    await holder.done;
  },

  async "WL19 an event that a script fires at the signal aborts nothing"({ locks }) {
    const name = fresh();
    const holder = take(locks, name);
    await holder.start;
    const { signal } = new AbortController();
    const waiter = take(locks, name, { signal });
    equal(await seen(locks, name), "X|X");
    signal.dispatchEvent(new Event("abort"));
    equal(await seen(locks, name), "X|X");
    holder.finish();
    await waiter.start;
    waiter.finish("so");
    equal(await waiter.done, "so");
  },

  async "WL20 an abort right after the request wins"({ locks }) {
    for (let wait = 0; wait < 3; wait++) {
      const name = fresh();
      const controller = new AbortController();
      let ran = false;
      const asked = locks.request(name, { signal: controller.signal }, () => (ran = true));
      controller.abort("no");
      equal(await reason(() => asked), "no");
      truth(!ran, "the callback never runs");
      equal(await locks.request(name, (lock) => lock.name === name), true, "the lock is free");
    }
  },

  async "WL21 an abort after the grant is ignored, and nobody listens any more"({ locks }) {
    const name = fresh();
    const controller = new AbortController();
    const holder = take(locks, name, { signal: controller.signal });
    await holder.start;
    controller.abort();
    equal(await seen(locks, name), "X|");
    holder.finish("done");
    equal(await holder.done, "done");
  },

  async "WL22 a thief robs all holders, and goes before the queue"({ locks, other }) {
    for (const [mode, count] of [["exclusive", 1], ["shared", 3]]) {
      const name = fresh();
      const robbed = [];
      for (let one = 0; one < count; one++) robbed.push(take(one % 2 ? locks : other, name, { mode }));
      await Promise.all(robbed.map(({ start }) => start));
      const [first, second] = [take(locks, name), take(locks, name)];
      await locks.query();
      const thief = take(locks, name, { steal: true });
      for (const { done } of robbed) await fails("AbortError", () => done, mode);
      await thief.start;
      equal(await seen(other, name), "X|XX");
      truth(!first.started && !second.started, "the queue waits");
      for (const one of [thief, first, second]) {
        await one.start;
        equal([first.started, second.started], [one !== thief, one === second], "the queue's order");
        one.finish();
        await one.done;
      }
    }
  },

  async "WL22 the last of several thieves that come at once wins"({ locks, other }) {
    for (const count of [2, 3, 5]) {
      const name = fresh();
      const thieves = Array.from({ length: count }, () => take(locks, name, { steal: true }));
      const last = thieves.pop();
      for (const { done } of thieves) await fails("AbortError", () => done, `one of ${count} thieves`);
      await last.start;
      equal(await seen(other, name), "X|", `after ${count} thieves`);
      last.finish("mine");
      equal(await last.done, "mine");
    }
  },

  async "WL23 a robbed callback goes on, and its end does nothing"({ locks, other }) {
    const name = fresh();
    const [one, two] = [take(locks, name), take(locks, name, { steal: true })];
    await fails("AbortError", () => one.done);
    await two.start;
    truth(one.started && one.finish, "the first one runs");
    one.finish("late");
    equal(await seen(locks, name), "X|", "the thief's lock stays");
    const three = take(other, name, { steal: true });
    await fails("AbortError", () => two.done);
    await three.start;
    two.fail(new Error("nobody hears of it"));
    equal(await seen(locks, name), "X|", "the last thief wins");
    three.finish("mine");
    equal(await three.done, "mine");
    const free = take(other, fresh(), { steal: true });
    await free.start;
    free.finish();
    await free.done;
  },

  async "WL24 a query tells what is held and what waits, in plain objects"({ locks, other }) {
    const name = fresh();
    const holder = take(locks, name, { mode: "shared" });
    await holder.start;
    const waiting = ["exclusive", "shared", "exclusive"].map((mode) => take(locks, name, { mode }));
    const snapshot = await locks.query();
    equal(Object.keys(snapshot).sort(), ["held", "pending"]);
    for (const list of [snapshot.held, snapshot.pending]) {
      truth(Array.isArray(list), "an array");
      for (const lock of list) {
        equal(Object.keys(lock).sort(), ["clientId", "mode", "name"]);
        truth(Object.getPrototypeOf(lock) === Object.prototype, "a plain object");
        truth(typeof lock.clientId === "string" && lock.clientId, "a client's id");
      }
    }
    equal(await seen(other, name), "S|XSX");
    for (const one of waiting) one.start.then(() => one.finish());
    holder.finish();
    await Promise.all(waiting.map(({ done }) => done));
    equal(await seen(locks, name), "|");
  },

  async "WL25 a query sees what was asked for before it, and nothing later"({ locks }) {
    const name = fresh();
    const one = take(locks, name);
    const first = seen(locks, name);
    const two = take(locks, name);
    const second = seen(locks, name);
    const controller = new AbortController();
    const three = take(locks, name, { signal: controller.signal });
    const third = seen(locks, name);
    controller.abort();
    const fourth = seen(locks, name);
    equal(await Promise.all([first, second, third, fourth]), ["X|", "X|X", "X|XX", "X|X"]);
    await reason(() => three.done);
    await one.start;
    one.finish();
    await one.done;
    equal(await seen(locks, name), "X|", "the next one holds by the time the release is told");
    await two.start;
    two.finish();
    await two.done;
  },

  async "WL26 a context's locks have one client id, another context's another"({ locks, other }, contexts) {
    const name = fresh();
    const [here, there] = [take(locks, name, { mode: "shared" }), take(other, name, { mode: "shared" })];
    await Promise.all([here.start, there.start]);
    const more = take(locks, name);
    await locks.query();
    const { held, pending } = await other.query();
    const ids = [...held, ...pending].filter((lock) => lock.name === name).map(({ clientId }) => clientId);
    equal(ids.length, 3);
    equal(new Set(ids).size, contexts, "so many contexts");
    truth(held.some(({ name: held, clientId }) => held === name && clientId === pending.find((lock) => lock.name === name).clientId), "held and pending alike");
    more.start.then(() => more.finish());
    here.finish();
    there.finish();
    await more.done;
  },

  async "WL31 nothing persists: a name that was used is as one that never was"({ locks, other }) {
    const name = fresh();
    await locks.request(name, nothing);
    const { held, pending } = await other.query();
    truth(![...held, ...pending].some((lock) => lock.name === name), "it is gone");
  },
};
