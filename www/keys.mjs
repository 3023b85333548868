// The table of keys: who holds each, with which token and for how long, and who waits.

export function showKeys(list, statuses, { now, release }) {
  const rows = statuses.map((status) => row(status, now, release));
  // A button that is pressed or has the focus must not be taken away under the finger.
  if (list.contains(document.activeElement) && list.children.length === rows.length) {
    return rows.forEach((fresh, at) => update(list.children[at], fresh));
  }
  list.replaceChildren(...rows);
}

function update(shown, fresh) {
  if (shown.dataset.key !== fresh.dataset.key || shown.dataset.shape !== fresh.dataset.shape) return shown.replaceWith(fresh);
  const cells = [...fresh.querySelectorAll("td")];
  shown.querySelectorAll("td").forEach((cell, at) => {
    if (!cell.querySelector("button") && cell.innerHTML !== cells[at].innerHTML) cell.replaceChildren(...cells[at].childNodes);
  });
}

function row({ key, holders, queue }, now, release) {
  const element = document.createElement("tr");
  const held = holders.some(({ own }) => own);
  Object.assign(element.dataset, { key, shape: String(held) });
  const heading = make("th", key);
  heading.scope = "row";
  const last = make("td");
  if (held) last.append(button(`Release ${key}`, "Release", () => release(key)));
  element.append(
    heading,
    cell("Held by", people(holders)),
    cell("Token", holders.map(({ token }) => make("div", token))),
    cell("Time left", holders.map(({ expiresAt }) => make("div", left(expiresAt - now)))),
    cell("Waiting", people(queue)),
    last,
  );
  return element;
}

function people(contexts) {
  return contexts.map(({ info, own, instance, mode, priority = 0 }) => {
    const notes = [own && "this tab", instance, mode === "shared" && "shared", priority !== 0 && `priority ${priority}`];
    const said = notes.filter(Boolean).join(", ");
    const element = make("div", (info || "a context without a name") + (said && ` (${said})`));
    element.classList.toggle("own", own);
    return element;
  });
}

const left = (ms) => (ms > 0 ? `${(ms / 1000).toFixed(0)} s` : "ran out");

function cell(label, content) {
  const element = make("td");
  // On a phone, where the head of the table has no room.
  element.dataset.label = label;
  element.append(...(content.length ? content : ["–"]));
  return element;
}

function button(label, text, action) {
  const element = make("button", text);
  element.type = "button";
  element.setAttribute("aria-label", label);
  element.addEventListener("click", action);
  return element;
}

function make(tag, text = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}
