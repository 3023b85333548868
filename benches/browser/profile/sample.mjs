// One sample: what was marked while one operation went on. Nothing is marked between two samples.
import { clearSpans, spansSoFar } from "./spans.mjs";

// As it is before anything is wrapped.
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

// Something happens at this border.
export function mark(name) {
  running?.marks.push([name, now()]);
}

// Begins to wait for what the browser does; to call what is returned ends that.
export function wait(name) {
  const sample = running;
  const began = now();
  return () => void sample?.waits.push([name, now() - began]);
}
