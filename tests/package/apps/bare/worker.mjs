import { ask } from "./turn.mjs";

window.outcome = ask(new Worker("leasing.mjs", { type: "module" }));
