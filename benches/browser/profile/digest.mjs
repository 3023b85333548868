// Turns samples into figures per operation. Times other than `medianUs` are means in µs, because the clock is coarser than most of what is
// measured. They use the middle half of the samples, because a busy machine makes a few of them long.

export function digest(all, calibration, batch = 1) {
  const samples = middleHalf(all);
  const per = samples.length * batch;
  return {
    samples: samples.length,
    batch,
    us: us(total(samples, wallMs), per),
    medianUs: us(middle(all), batch),
    marks: counted(samples.flatMap(({ marks }) => marks.map(([name]) => name)), per),
    waits: waited(samples.flatMap(({ waits }) => waits), per),
    // A batch has no course of its own.
    course: batch === 1 ? course(samples) : null,
    spans: calibration ? spans(samples.flatMap(({ spans }) => spans), calibration, per) : [],
  };
}

const wallMs = ({ began, ended }) => ended - began;
const total = (samples, value) => samples.reduce((sum, sample) => sum + value(sample), 0);
const us = (ms, per) => (1e3 * ms) / per;

function middleHalf(all) {
  const ordered = all.toSorted((one, other) => wallMs(one) - wallMs(other));
  return ordered.slice(Math.floor(all.length / 4), Math.max(1, Math.ceil((3 * all.length) / 4)));
}

const middle = (all) => all.map(wallMs).sort((one, other) => one - other)[all.length >> 1];

// How often each name occurs per operation.
export function counted(names, per) {
  const counts = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1 / per;
  return counts;
}

// How often per operation, and how long each time.
export function waited(waits, per) {
  const sums = {};
  for (const [name, ms] of waits) {
    const sum = (sums[name] ??= { count: 0, ms: 0 });
    sum.count++;
    sum.ms += ms;
  }
  return Object.entries(sums).map(([name, { count, ms }]) => ({ name, count: count / per, us: us(ms, count) }));
}

// From mark to mark, by those samples that have the commonest order of marks. The last step is what the caller waits.
function course(samples) {
  const orders = {};
  for (const sample of samples) (orders[sample.marks.map(([name]) => name).join()] ??= []).push(sample);
  const same = Object.values(orders).reduce((best, some) => (some.length > best.length ? some : best));
  const names = [...same[0].marks.map(([name]) => name), "the caller goes on"];
  const step = (at) => total(same, (sample) => times(sample)[at + 1] - times(sample)[at]);
  const steps = names.map((name, at) => ({ name, us: us(step(at), same.length) }));
  return { share: same.length / samples.length, steps };
}

const times = ({ began, marks, ended }) => [began, ...marks.map(([, time]) => time), ended];

// By group and name, without what the wrapping took.
export function spans(all, { withinMs, aroundMs }, per) {
  const sums = new Map();
  for (const { group, name, calls, within, ms } of all) {
    const key = `${group} ${name}`;
    const sum = sums.get(key) ?? { group, name, calls: 0, ms: 0, wrappingMs: 0 };
    const wrappingMs = calls * withinMs + within * aroundMs;
    sums.set(key, {
      ...sum,
      calls: sum.calls + calls,
      ms: sum.ms + ms - wrappingMs,
      wrappingMs: sum.wrappingMs + calls * (withinMs + aroundMs),
    });
  }
  const rows = [...sums.values()].map(({ group, name, calls, ms, wrappingMs }) => ({
    group,
    name,
    calls: calls / per,
    us: us(ms, per),
    wrappingUs: us(wrappingMs, per),
  }));
  return rows.sort((one, other) => other.us - one.us);
}
