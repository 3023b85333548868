import { LeaseManager } from "./node_modules/leasehold/index.mjs";
import { told, turn } from "./turn.mjs";

window.outcome = told(turn(LeaseManager));
