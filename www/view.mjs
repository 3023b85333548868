// Everything that touches the page's elements, so that page.mjs can be read without them.
const element = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");

export const onClick = (id, action) => element(id).addEventListener("click", action);
export const times = () => Number(element("times").value);
export const otherKey = () => element("other-key").value.trim();
export const locked = () => element("locked").checked;

export function showName(name) {
  element("tab-name").textContent = name;
  document.title = `${name} · leasehold`;
}

// Which buttons make sense now: `buttons` maps their ids to that.
export function enable(buttons) {
  const focused = document.activeElement;
  for (const [id, sensible] of Object.entries(buttons)) element(id).disabled = !sensible;
  // If the button that was just pressed is disabled now, the focus moves to its neighbour, not to the top of the page.
  if (focused?.disabled) focused.closest(".buttons, .choices").querySelector("button:not(:disabled)")?.focus();
}

export const showTakeButton = (waiting) => {
  element("take").textContent = waiting ? "Stop waiting" : "Take it, or wait";
};

// `status` is what leases.status() answered.
export function showStatus({ holders: [holder], queue, lastToken }) {
  const state = !holder ? "free" : holder.own ? "mine" : "theirs";
  const name = holder?.info || "a tab without a name";
  const sentence = { free: "Nobody holds it", mine: `This tab holds it`, theirs: `${name} holds it` }[state];
  // Written only when it changed: screen readers read it aloud.
  if (element("holder").textContent !== sentence) element("holder").textContent = sentence;
  element("holder").dataset.state = state;
  element("token").textContent = holder ? holder.token : lastToken ? `${lastToken} was the last` : "–";
  element("queue").replaceChildren(...queue.map(waiter));
  element("nobody").hidden = queue.length > 0;
}

function waiter({ info, own }) {
  const item = document.createElement("li");
  item.textContent = own ? `${info} (this tab)` : info || "a tab without a name";
  item.classList.toggle("own", own);
  return item;
}

// The countdown: `remaining` of `whole` milliseconds, or null when nobody holds the lease.
export function showRemaining(remaining, whole) {
  element("remaining").textContent = remaining === null ? "–" : `${(Math.max(remaining, 0) / 1000).toFixed(1)} s`;
  element("bar").style.transform = `scaleX(${Math.min(Math.max((remaining ?? 0) / whole, 0), 1)})`;
}

export function showCounter({ actual, expected }) {
  element("expected").textContent = number(expected);
  element("actual").textContent = number(actual);
  element("lost").textContent = number(expected - actual);
  element("loss").toggleAttribute("data-any", expected > actual);
}

export function showProgress(done, all) {
  element("progress").max = all;
  element("progress").value = done;
  element("done").textContent = `${number(done)} of ${number(all)}`;
}

export function log(sentence) {
  const item = document.createElement("li");
  const time = document.createElement("time");
  time.textContent = new Date().toLocaleTimeString("en-GB");
  item.append(time, sentence);
  element("log").prepend(item);
  while (element("log").childElementCount > 100) element("log").lastChild.remove();
}

// In a sentence, and never silently.
export function showError(doing, error) {
  element("error").textContent = `${doing} failed: ${error?.message ?? error}.`;
  element("error").dataset.doing = doing;
  element("error").hidden = false;
}

// The action that failed has succeeded by now.
export function forgetError(doing) {
  if (element("error").dataset.doing === doing) element("error").hidden = true;
}
