// @ts-check
// The user's signals. Whatever they are made of, a lease that has come must not get lost because of them.
import { harmless, quiet } from "./options.mjs";

/** Whether it aborted, if there is one. */
export const isOver = (signal) => quiet(() => signal?.aborted);

/** Calls back when the signal aborts, before its other listeners do anything. Returns what ends that, and never throws. */
export function listen(signal, abort) {
  const first = { capture: true };
  harmless("InvalidOptions", "signal", () => signal.addEventListener("abort", abort, first));
  return () => quiet(() => signal.removeEventListener("abort", abort, first));
}

/** Aborts when the signal does. Returns what ends that. */
export function follow(signal, controller) {
  const abort = () => controller.abort(signal.reason);
  if (isOver(signal)) abort();
  return listen(signal, abort);
}

/** Asks for what stops when the signal aborts: then its reason is thrown as it is, and what came in that moment is
 *  undone, if it can be. */
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
