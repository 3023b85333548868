// @ts-check
// The user's signals. Even if their methods throw, no granted lease may be left behind.
import { harmless, quiet } from "./options.mjs";

/** Whether the signal has aborted, if there is one. */
export const isOver = (signal) => quiet(() => signal?.aborted);

/** Calls back when the signal aborts, before its other listeners run. Returns a function that ends this, and that never throws. */
export function listen(signal, abort) {
  const first = { capture: true };
  // Any script may fire such an event. A signal that has not aborted has no reason to reject with.
  const heard = () => isOver(signal) && abort();
  harmless("InvalidOptions", "signal", () => signal.addEventListener("abort", heard, first));
  return () => quiet(() => signal.removeEventListener("abort", heard, first));
}

/** Aborts the controller when the signal aborts. Returns a function that ends this. */
export function follow(signal, controller) {
  const abort = () => controller.abort(signal.reason);
  if (isOver(signal)) abort();
  return listen(signal, abort);
}

/** Makes a call that stops when the signal aborts. Then the signal's reason is thrown as it is, and an answer that came at the same moment
 *  is undone, if it can be. */
export async function stoppable(signal, call, undo) {
  if (isOver(signal)) throw signal.reason;
  let stop;
  const stopped = new Promise((resolve) => (stop = () => resolve(undefined)));
  const unlisten = listen(signal, stop);
  try {
    const answer = await call(stopped);
    if (answer !== undefined) {
      if (!undo || !isOver(signal)) return answer;
      undo(answer);
    }
    throw signal.reason;
  } finally {
    unlisten();
    // The wasm waits for this promise, too.
    stop();
  }
}
