import { LeaseManager } from "leasehold";
import { ask, told, turn } from "../turn.mjs";

const worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" });
window.outcome = Promise.all([told(turn(LeaseManager)), ask(worker)]);
