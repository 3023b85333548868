// Random programs, run by any lock managers that share their locks: `request`, `abort`, `steal`, `query` and the ends of
// callbacks, over a few names, from a few contexts. After each step a barrier, and a look at what came of it.
import { show } from "./tools.mjs";

const NAMES = ["a", "b", "c", "d"];

/** One turn of the event loop; a timer's would be 4 ms, in a browser. */
function turn() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port2.onmessage = () => {
      port1.close();
      resolve();
    };
    port1.postMessage(null);
  });
}

/** A generator of numbers below a bound, the same for the same seed (mulberry32). */
function dice(seed) {
  return (bound) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let bits = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) % bound;
  };
}

/** The steps of a program; each is what one context does at once, to requests of its own: what two do at once has no order. */
export function program(seed, contexts) {
  const below = dice(seed);
  const names = NAMES.slice(0, 1 + below(NAMES.length));
  let requests = 0;
  const own = Array.from({ length: contexts }, () => []);
  const request = (at) => {
    const kind = below(10);
    const options = { mode: below(2) ? "exclusive" : "shared" };
    if (kind === 0) options.steal = true;
    else if (kind < 3) options.ifAvailable = true;
    else if (kind < 6) options.signal = true;
    // Some of these are refused: by both alike.
    if (below(40) === 0) Object.assign(options, { steal: true, signal: true });
    if (options.steal && below(20)) options.mode = "exclusive";
    own[at].push(requests);
    return { request: requests++, name: below(60) ? names[below(names.length)] : "-", options, ends: below(6) ? "later" : "at once" };
  };
  const act = (at) => {
    const kind = below(20);
    const one = own[at][below(own[at].length || 1)];
    if (kind < 10 || one === undefined) return request(at);
    if (kind < 16) return { finish: one, how: below(4) ? "value" : "error" };
    if (kind < 19) return { abort: one };
    return { query: true };
  };
  const step = (at) => {
    const acts = Array.from({ length: 1 + below(3) }, () => act(at));
    // Whether a callback that ends in the moment of a theft was robbed, engines see differently.
    const theft = acts.find(({ options }) => options?.steal);
    if (theft) return { at, acts: [theft] };
    // So do they with who comes right behind one that is aborted in the moment of its grant.
    const made = acts.map(({ request }) => request);
    const hasty = acts.findIndex(({ abort }) => abort !== undefined && made.includes(abort));
    return { at, acts: hasty < 0 ? acts : acts.slice(0, hasty + 1) };
  };
  return Array.from({ length: 4 + below(9) }, () => step(below(contexts)));
}

/** Runs a program. Brings what was to be seen after each step. */
export async function run(steps, managers, prefix) {
  const requests = [];
  const granted = {};
  const trace = [];
  const looks = [];
  const name = (short) => (short === "-" ? short : prefix + short);

  function begin(locks, { request, name: short, options, ends }) {
    const one = { id: request, name: short, started: false, ended: false, options };
    requests.push(one);
    const asked = { ...options };
    if (options.signal) {
      one.controller = new AbortController();
      asked.signal = one.controller.signal;
    }
    const work = (lock) => {
      (granted[short] ??= []).push(`${request}${lock ? "" : " null"}`);
      if (lock && (lock.name !== name(short) || lock.mode !== options.mode)) granted[short].push(`a wrong lock: ${show(lock)}`);
      if (!lock || ends === "at once") return `value of ${request}`;
      one.started = true;
      return new Promise((resolve, reject) => {
        const end = (settle, result) => () => ((one.ends = true), settle(result));
        one.finish = { value: end(resolve, `value of ${request}`), error: end(reject, new Error(`error of ${request}`)) };
      });
    };
    locks.request(name(short), asked, work).then(
      (value) => Object.assign(one, { ended: true, outcome: value }),
      (error) => Object.assign(one, { ended: true, outcome: `${error?.name}${error?.name === "Error" ? `: ${error.message}` : ""}` }),
    );
  }

  function act(locks, what) {
    const of = (id) => requests.find((one) => one.id === id);
    if ("request" in what) return begin(locks, what);
    if ("finish" in what) return of(what.finish)?.finish?.[what.how]();
    if ("abort" in what) return of(what.abort)?.controller?.abort();
    const look = { step: trace.length };
    looks.push(look);
    return locks.query().then((snapshot) => (look.seen = state(snapshot)), (error) => (look.seen = show(error)));
  }

  /** Of each name, how many hold it in which mode, and who waits in order. */
  function state({ held, pending }) {
    const of = (list, short) => list.filter((lock) => lock.name === name(short)).map(({ mode }) => mode[0]).join("");
    return NAMES.map((short) => `${of(held, short)}|${of(pending, short)}`).join(" ");
  }

  /** Waits until what the callbacks know is what a query tells. */
  async function settle(locks) {
    const until = performance.now() + 60_000;
    for (;;) {
      const seen = state(await locks.query());
      const count = (is) => NAMES.map((short) => requests.filter((one) => one.name === short && !one.ended && is(one)));
      const running = count((one) => one.started);
      const waiting = count((one) => !one.started);
      const short = (list) => list.map(({ options }) => options.mode[0]).sort().join("");
      const sorted = seen.split(" ").map((queue) => queue.split("|").map((letters) => [...letters].sort().join("")).join("|")).join(" ");
      const known = NAMES.map((_, at) => `${short(running[at])}|${short(waiting[at])}`).join(" ");
      // A try may stand in the queue while a busy holder is asked whether it is alive.
      const ends = requests.some((one) => !one.ended && (one.ends || (!one.started && (one.controller?.signal.aborted || one.options.ifAvailable))));
      if (known === sorted && !ends && looks.every((look) => look.seen !== undefined)) return seen;
      if (performance.now() > until) return `stuck: told ${sorted}, known ${known}`;
      await turn();
    }
  }

  /**
   * What one step brought, with what has no order put in one. Readers that one release granted begin in no order: each is told
   * in a context of its own. A try may be refused later than what stands behind it, while a busy holder is asked whether it is
   * alive: refusals stand first.
   */
  function inOrder(told) {
    const byNumber = (one, two) => parseInt(one) - parseInt(two);
    const isRefusal = (line) => line.endsWith(" null");
    const isReader = (line) => requests.find(({ id }) => `${id}` === line)?.options.mode === "shared";
    const fresh = told.splice(told.sorted ?? 0);
    const begun = fresh.filter((line) => !isRefusal(line));
    for (let at = 0; at < begun.length; at++) {
      let end = at;
      while (end < begun.length && isReader(begun[end])) end++;
      begun.splice(at, end - at, ...begun.slice(at, end).sort(byNumber));
      at = Math.max(at, end - 1);
    }
    told.push(...fresh.filter(isRefusal).sort(byNumber), ...begun);
    told.sorted = told.length;
    return told;
  }

  async function look() {
    const seen = await settle(managers[0]);
    const outcomes = Object.fromEntries(requests.filter(({ ended }) => ended).map(({ id, outcome }) => [id, outcome]));
    trace.push(show({ seen, granted: Object.fromEntries(Object.keys(granted).map((short) => [short, inOrder(granted[short])])), outcomes, looks }));
  }

  for (const { at, acts } of steps) {
    for (const what of acts) act(managers[at % managers.length], what);
    await look();
    if (trace.at(-1).includes("stuck")) break;
  }
  // What is left ends in its turn.
  for (let round = 0; round < requests.length && requests.some(({ ended }) => !ended); round++) {
    for (const one of requests) if (!one.ended) one.finish?.value();
    await look();
    if (trace.at(-1).includes("stuck")) break;
  }
  return trace;
}

async function difference(steps, subjects, oracles, prefix) {
  const [got, expected] = await Promise.all([run(steps, subjects, prefix), run(steps, oracles, prefix)]);
  const at = expected.findIndex((line, index) => line !== got[index]);
  if (at < 0 && got.length === expected.length) return undefined;
  // Chromium's own locks leave a request behind that follows one that was aborted at the head: from there on nothing is to
  // be compared.
  if (expected.slice(0, at + 1).some((line) => /[" ]s+\|s/.test(line))) return { excused: true };
  return { step: at, got: got[at], expected: expected[at] };
}

/** The smallest part of a program that still fails; the first failing that was seen if it does not fail again. */
async function shrink(steps, found, subjects, oracles, prefix) {
  let tries = 0;
  for (let again = true; again && tries < 60; ) {
    again = false;
    const smaller = steps.flatMap((step, at) => [
      steps.toSpliced(at, 1),
      ...(step.acts.length > 1 ? step.acts.map((_, act) => steps.with(at, { ...step, acts: step.acts.toSpliced(act, 1) })) : []),
    ]);
    for (const candidate of smaller) {
      const fails = await difference(candidate, subjects, oracles, `${prefix}${++tries} `);
      if (fails && !fails.excused) {
        [steps, found, again] = [candidate, fails, true];
        break;
      }
      if (tries >= 60) break;
    }
  }
  return { steps, ...found };
}

/** Runs programs by both, as many as there is time for, and at least this many. Brings how many there were, and the first that differs. */
export async function sideBySide({ subjects, oracles, first = 1, count, limitMs = Infinity, least = 0 }) {
  const until = performance.now() + limitMs;
  let [done, excused] = [0, 0];
  // The first request of a page that is aborted at once, Chromium grants all the same.
  await Promise.all([...subjects, ...oracles].map((locks) => locks.request("first", {}, () => {})));
  for (let seed = first; done < count && (done < least || performance.now() < until); seed++, done++) {
    const steps = program(seed, subjects.length);
    const found = await difference(steps, subjects, oracles, "program ");
    if (found?.excused) excused++;
    else if (found) return { done, seed, differs: await shrink(steps, found, subjects, oracles, `shrunk ${seed} `) };
  }
  return { done, excused };
}
