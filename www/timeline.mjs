// Draws the lanes of a history: per context a name, a sentence, and for each key a track of the last minute. Everything is
// an element with its meaning in data attributes; style.css gives the looks.
import { WINDOW_MS, isOpen, isSilent } from "./history.mjs";

const SIGNS = { granted: "▲", released: "▽", lost: "✕", suspect: "?", certain: "!" };

export function draw(list, lanes, now) {
  match(list, lanes, makeLane, (element, lane) => updateLane(element, lane, now));
}

function makeLane() {
  const element = document.createElement("li");
  element.className = "lane";
  element.innerHTML = `<p><strong></strong> <span class="saying"></span></p><div class="tracks" role="img"></div>`;
  return element;
}

function updateLane(element, lane, now) {
  const state = stateOf(lane, now);
  set(element.dataset, { tab: lane.name, state, own: lane.own });
  write(element.querySelector("strong"), lane.own ? `${lane.name} (this tab)` : lane.name);
  write(element.querySelector(".saying"), sentence(lane, state, now));
  const tracks = element.querySelector(".tracks");
  tracks.setAttribute("aria-label", summary(lane, now));
  const keys = [...new Set([...lane.spans, ...lane.marks].map(({ key }) => key))].sort();
  lane.tracks ??= new Map();
  const rows = keys.map((key) => lane.tracks.get(key) ?? lane.tracks.set(key, { key }).get(key));
  // Without a key there is still its silence to be shown: it goes over all of the tracks.
  const shown = rows.length ? rows : [(lane.emptyTrack ??= { key: "" })];
  match(tracks, [...shown, ...silences(lane, now)], makePart, (part, what) => {
    if ("key" in what) updateTrack(part, lane, what.key, now);
    else updateSpan(part, what, now);
  });
}

const makePart = (what) => ("key" in what ? makeTrack() : makeItem());

function makeTrack() {
  const element = document.createElement("div");
  element.className = "track";
  return element;
}

function updateTrack(track, lane, key, now) {
  track.dataset.key = key;
  const spans = lane.spans.filter((span) => span.key === key);
  const marks = lane.marks.filter((mark) => mark.key === key);
  match(track, [...spans, ...marks], makeItem, (item, what) => {
    if ("type" in what) updateMark(item, what, now);
    else updateSpan(item, what, now);
  });
}

// The silence that goes on is an item of its own until it is over.
function silences(lane, now) {
  if (!isSilent(lane)) lane.silence = undefined;
  else lane.silence = Object.assign(lane.silence ?? {}, { from: lane.heard, to: now });
  return lane.silence ? [...lane.silences, lane.silence] : lane.silences;
}

const makeItem = () => document.createElement("i");

function updateSpan(item, { kind = "silence", key, from, to, turns, end, reason, suspect }, now) {
  const [left, right] = [percent(from, now), percent(to ?? now, now)];
  item.className = `span ${kind}`;
  set(item.dataset, { kind, end: end ?? "", reason: reason ?? "", suspect: Boolean(suspect) });
  Object.assign(item.style, { left: `${left}%`, width: `${Math.max(right - left, 0)}%` });
  const many = turns > 1 ? ` ${turns}×` : "";
  write(item, right - left > 6 && kind !== "silence" ? `${key}${many}` : "");
  item.title = `${kind}${key ? ` ${key}` : ""}${many}, ${seconds((to ?? now) - from)}${end ? `, ${end}` : ""}`;
}

function updateMark(item, { type, key, token, reason, at }, now) {
  item.className = `mark ${type}`;
  set(item.dataset, { mark: type, reason: reason ?? "" });
  item.style.left = `${percent(at, now)}%`;
  write(item, reason ? `${SIGNS[type]} ${reason}` : SIGNS[type]);
  item.title = `${type} ${key}, token ${token}${reason ? `: ${reason}` : ""}`;
}

// ---- Words ----------------------------------------------------------------------------------------------------------

function stateOf(lane) {
  if (lane.gone) return "closed";
  if (isSilent(lane)) return "silent";
  const open = lane.spans.filter(isOpen);
  return ["holding", "waiting"].find((kind) => open.some((span) => span.kind === kind)) ?? "idle";
}

function sentence(lane, state, now) {
  const keys = (kind) => lane.spans.filter((span) => isOpen(span) && span.kind === kind).map(({ key }) => `“${key}”`);
  switch (state) {
    case "closed": return "was closed";
    case "silent": return `has been silent for ${seconds(now - lane.heard)}`;
    case "holding": return `holds ${keys("holding").join(", ")}`;
    case "waiting": return `waits for ${keys("waiting").join(", ")}`;
    default: return "holds nothing";
  }
}

function summary(lane, now) {
  const verbs = { holding: "held", waiting: "waited for" };
  const times = new Map();
  for (const { kind, key, from, to } of lane.spans) {
    const what = `${verbs[kind]} “${key}”`;
    times.set(what, (times.get(what) ?? 0) + (to ?? now) - Math.max(from, now - WINDOW_MS));
  }
  const did = [...times].map(([what, ms]) => `${what} ${kindly(ms)}`);
  const lost = lane.marks.filter(({ type }) => type === "lost").map(({ key, reason }) => `lost “${key}”: ${reason}`);
  return `In the last minute: ${[...did, ...lost].join("; ") || "nothing"}`;
}

const kindly = (ms) => (ms < 1_000 ? "for a moment" : `for ${seconds(ms)}`);
const seconds = (ms) => `${Math.round(ms / 1000)} s`;

// ---- Elements -------------------------------------------------------------------------------------------------------

const percent = (at, now) => Math.min(Math.max(100 - ((now - at) / WINDOW_MS) * 100, 0), 100);

function set(dataset, values) {
  for (const [name, value] of Object.entries(values)) if (dataset[name] !== String(value)) dataset[name] = value;
}

// Only what changed: selections stay, and screen readers are not disturbed.
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const elements = new WeakMap();

// One child per item, kept as long as the item is there.
function match(parent, items, make, update) {
  const children = items.map((item) => {
    if (!elements.has(item)) elements.set(item, make(item));
    update(elements.get(item), item);
    return elements.get(item);
  });
  if (children.length !== parent.children.length || children.some((child, at) => child !== parent.children[at])) {
    parent.replaceChildren(...children);
  }
}
