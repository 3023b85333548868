// What the rules and the random programs share.

/** What is to be seen in a failure. */
export const show = (value) => (value instanceof Error || value instanceof DOMException ? `${value.name}: ${value.message}` : JSON.stringify(value));

export function equal(actual, expected, what = "") {
  if (show(actual) !== show(expected)) throw new Error(`${what} is ${show(actual)}, not ${show(expected)}`);
}

export function truth(value, what) {
  if (!value) throw new Error(`not so: ${what}`);
}

/** Expects a promise that rejects, and brings the reason. */
export async function reason(ask, what = "it") {
  let promise;
  try {
    promise = ask();
  } catch (error) {
    throw new Error(`${what} throws at once: ${show(error)}`);
  }
  truth(promise instanceof Promise, `${what} brings a promise`);
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error(`${what} is fulfilled`);
}

export async function fails(name, ask, what) {
  const error = await reason(ask, what ?? name);
  equal(error?.name, name, what ?? "the error");
  if (name !== "TypeError") truth(error instanceof DOMException, `${name} is a DOMException`);
}

/** Whether a query tells this name as it is: Chromium's own tells halves of surrogate pairs as nothing. */
export const tells = (name, native) => !native || !globalThis.chrome || name.isWellFormed();

let names = 0;

/** A name that nobody has used. */
export const fresh = () => `name ${Math.random()} ${++names}`;

/** A request whose callback ends when it is told to. */
export function take(locks, name, options = {}) {
  const taken = { started: false, lock: undefined, error: undefined };
  taken.start = new Promise((begin) => {
    taken.done = locks.request(name, options, (lock) => {
      taken.started = true;
      taken.lock = lock;
      begin(lock);
      return new Promise((resolve, reject) => Object.assign(taken, { finish: resolve, fail: reject }));
    });
  });
  taken.done.catch((error) => (taken.error = error));
  return taken;
}

/** What is held and what waits under a name, in a few letters: `X` and `S`. */
export async function seen(locks, name) {
  const { held, pending } = await locks.query();
  const letters = (list) => list.filter((lock) => lock.name === name).map(({ mode }) => (mode === "shared" ? "S" : "X")).join("");
  return `${letters(held)}|${letters(pending)}`;
}
