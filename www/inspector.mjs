// The inspector: all keys of the store with their holders and queues, and a timeline of all contexts. It works while it is
// open and the page is visible.
import { History } from "./history.mjs";
import { Telling } from "./telling.mjs";
import { draw } from "./timeline.mjs";
import { showKeys } from "./keys.mjs";

const LOOK_MS = 500;
const LIST_MS = 1_000;
const DRAW_MS = 200;

// `guard` takes what may fail; `release` is called with a key that this tab is to give back.
export function inspect({ leases, name, guard, release }) {
  const element = (id) => document.getElementById(id);
  const history = new History();
  const telling = new Telling(leases, name, (told) => history.hear(told));
  const isOpen = () => element("inspector").open && document.visibilityState === "visible";
  let rested = true;

  function look() {
    if (!isOpen()) return void (rested = true);
    if (rested) history.rested(Date.now());
    rested = false;
    history.looked();
    telling.look();
  }

  async function list() {
    if (!isOpen()) return;
    const asked = Date.now();
    const statuses = await leases.list();
    history.observe(statuses, asked, Date.now());
    showKeys(element("keys"), statuses, { now: Date.now(), release });
  }

  const every = (ms, action) => setInterval(() => guard("Looking at the keys", action), ms);
  every(LOOK_MS, look);
  every(LIST_MS, list);
  setInterval(() => isOpen() && draw(element("lanes"), history.lanes(Date.now()), Date.now()), DRAW_MS);
  const now = () => guard("Looking at the keys", async () => { look(); await list(); });
  element("inspector").addEventListener("toggle", now);
  document.addEventListener("visibilitychange", now);
  now();
}
