// The page's timers as they were before anything counted them.
const { setTimeout, clearTimeout } = globalThis;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function until(condition) {
  while (!(await condition())) await sleep(1);
}

// A rival that hangs ends its own measurement, not the benchmark.
export async function inTime(work, ms = 20_000) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(Error(`it took longer than ${ms} ms`)), ms)));
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
