// What happened in each context, as spans and marks: from what the contexts report themselves, and from the records of
// contexts that report nothing. It knows no page and no clock: all times, in ms since 1970, are handed in.

// How long ago something may be and still be shown.
export const WINDOW_MS = 60_000;
// A context is silent if it has not answered this many questions: it may answer a single one late.
const UNANSWERED = 4;
const SILENCE_MS = 2_000;
// A record is believed only if it was read this long after the last report about the key.
const SETTLED_MS = 1_000;
// Turns that follow each other faster are drawn as one.
const BREATH_MS = 400;

export class History {
  #lanes = new Map();

  // The lanes, in the order in which they came, without those that ended long ago.
  lanes(now) {
    for (const [id, lane] of this.#lanes) {
      for (const kind of ["spans", "marks", "silences"]) {
        lane[kind] = lane[kind].filter(({ at, to }) => (to === null ? now : (to ?? at)) > now - WINDOW_MS);
      }
      const over = lane.gone || (!lane.speaks && lane.spans.every(({ to }) => to !== null)) || isSilent(lane);
      const recent = !lane.gone && lane.heard !== null && lane.heard > now - WINDOW_MS;
      const empty = lane.spans.length + lane.marks.length === 0 && !recent;
      if (over && empty) this.#lanes.delete(id);
    }
    return [...this.#lanes.values()];
  }

  // A context says what happened to its leases, or only that it lives.
  hear({ id, name, holder, own = false, at, events = [], bye = false }) {
    const lane = this.#lane(id, name, holder);
    this.#adopt(lane, holder);
    Object.assign(lane, { name, own, speaks: true, gone: bye });
    // The tab that asks cannot ask while it is silent itself, so it has no unanswered questions.
    const silent = own || lane.unanswered >= UNANSWERED;
    if (lane.heard !== null && silent && at - lane.heard > SILENCE_MS) lane.silences.push({ from: lane.heard, to: at });
    lane.unanswered = 0;
    lane.heard = at;
    for (const event of events) this.#happened(lane, event);
    if (bye) for (const span of lane.spans.filter(isOpen)) Object.assign(span, { to: at, end: "closed" });
  }

  // All contexts were asked for a sign of life.
  looked() {
    for (const lane of this.#lanes.values()) lane.unanswered += 1;
  }

  // No context was asked for a while, so a missing answer means nothing.
  rested(now) {
    for (const lane of this.#lanes.values()) Object.assign(lane, { unanswered: 0, heard: lane.heard && now });
  }

  // What the records show: `asked` is when they were asked for.
  observe(statuses, asked, now) {
    const shown = new Set();
    for (const { key, holders, queue } of statuses) {
      const present = [...holders.map((one) => ["holding", one]), ...queue.map((one) => ["waiting", one])];
      for (const [kind, { holder, info, token, own }] of present) {
        const lane = this.#byHolder(holder) ?? this.#lane(holder, info || "a context without a name", holder);
        lane.own ||= own;
        shown.add(lane.id + kind + key);
        const open = lane.spans.find((span) => isOpen(span) && span.key === key);
        if (open?.kind === kind || !settled(lane, key, asked)) continue;
        if (open) end(open, now, kind === "holding" ? "granted" : "vanished");
        lane.spans.push(begun(kind, key, now, token));
      }
    }
    for (const lane of this.#lanes.values()) {
      for (const span of lane.spans.filter(isOpen)) {
        if (!shown.has(lane.id + span.kind + span.key) && settled(lane, span.key, asked)) end(span, now, "vanished");
      }
    }
  }

  #lane(id, name, holder) {
    const fresh = { id, name, own: false, holders: new Set(), speaks: false, gone: false, heard: null, unanswered: 0 };
    const lane = this.#lanes.get(id) ?? { ...fresh, spans: [], marks: [], silences: [], last: new Map() };
    this.#lanes.set(id, lane);
    lane.holders.add(holder);
    return lane;
  }

  // The context was seen in a record before it reported anything.
  #adopt(lane, holder) {
    const seen = this.#lanes.get(holder);
    if (!seen || seen === lane) return;
    this.#lanes.delete(holder);
    lane.spans.unshift(...seen.spans);
  }

  #byHolder(holder) {
    return [...this.#lanes.values()].find(({ holders }) => holders.has(holder));
  }

  #happened(lane, { type, key, token, reason, holder, mode, at }) {
    if (holder) lane.holders.add(holder);
    const open = lane.spans.findLast((span) => span.key === key && isOpen(span));
    lane.last.set(key, at);
    if (type === "waiting") {
      if (open?.kind !== "waiting") lane.spans.push(begun("waiting", key, at));
    } else if (type === "granted") {
      this.#granted(lane, { key, token, at, mode, open });
    } else if (type === "withdrawn") {
      if (open?.kind === "waiting") end(open, at, "withdrawn");
    } else if (type === "suspect" || type === "certain") {
      if (open) open.suspect = type === "suspect";
      lane.marks.push({ type, key, token, at });
    } else {
      this.#ended(lane, { type, key, token, reason, at, open });
    }
  }

  #granted(lane, { key, token, at, mode, open }) {
    if (mode === "exclusive") this.#replaceOthers(lane, key, token, at);
    if (open?.kind === "waiting") end(open, at, "granted");
    // The record was read before the grant was reported.
    if (open?.kind === "holding") return Object.assign(open, { token });
    const before = lane.spans.findLast((span) => span.key === key && span.kind === "holding");
    if (before?.end === "released" && at - before.to < BREATH_MS) {
      // One of many short turns: its span goes on, and the short wait between them is not drawn.
      if (lane.marks.at(-1)?.type === "released") lane.marks.pop();
      lane.spans = lane.spans.filter((span) => span.key !== key || span.kind === "holding" || span.from < before.to);
      return Object.assign(before, { to: null, end: null, token, turns: before.turns + 1 });
    }
    lane.spans.push(begun("holding", key, at, token));
    lane.marks.push({ type: "granted", key, token, at });
  }

  // An earlier holder has lost the key, and may not know it: it is frozen, or dead.
  #replaceOthers(successor, key, token, at) {
    for (const lane of this.#lanes.values()) {
      if (lane === successor) continue;
      for (const span of lane.spans.filter((span) => span.key === key && span.kind === "holding" && isOpen(span))) {
        if (span.token < token) end(span, Math.max(at, span.from), "replaced");
      }
    }
  }

  #ended(lane, { type, key, token, reason, at, open }) {
    const spans = lane.spans.filter((span) => span.key === key && span.kind === "holding");
    // A release may be heard after the next grant that it made possible.
    const span = open?.kind === "holding" ? open : spans.findLast((span) => span.token === token);
    if (span) {
      const known = span.end === "replaced" || span.end === "vanished";
      if (!known || type === "released") end(span, at, type);
      span.reason = reason;
    }
    if (type === "lost" || !(span?.turns > 1)) lane.marks.push({ type, key, token, reason, at });
  }
}

export const isOpen = (span) => span.to === null;
export const isSilent = (lane) => !lane.gone && lane.heard !== null && lane.unanswered >= UNANSWERED;

const begun = (kind, key, from, token) => ({ kind, key, from, to: null, token, turns: 1, end: null, reason: undefined });

function end(span, to, how) {
  Object.assign(span, { to, end: how, suspect: false });
}

function settled(lane, key, asked) {
  return asked - (lane.last.get(key) ?? 0) > SETTLED_MS;
}
