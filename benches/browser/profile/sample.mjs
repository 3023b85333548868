// One sample: what was marked while one operation went on. Nothing is marked between two samples.
import { clearSpans, spansSoFar } from "./spans.mjs";

// Bound before any hook is set, so that it stays unwrapped.
export const now = performance.now.bind(performance);

let running;

export function begin() {
  clearSpans();
  running = { marks: [], waits: [], began: 0, ended: 0 };
  running.began = now();
}

export function end() {
  const sample = running;
  sample.ended = now();
  running = undefined;
  sample.spans = spansSoFar();
  return sample;
}

// Notes that the package called the browser, or the browser answered.
export function mark(name) {
  running?.marks.push([name, now()]);
}

// Starts to time a wait for the browser; calling the returned function ends it.
export function wait(name) {
  const sample = running;
  const began = now();
  return () => void sample?.waits.push([name, now() - began]);
}
