import { ask } from "../turn.mjs";

async function ready() {
  await navigator.serviceWorker.register("leasing.js");
  const { active } = await navigator.serviceWorker.ready;
  return active;
}
window.outcome = ready().then(ask);
