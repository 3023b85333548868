import { LeaseManager } from "./node_modules/leasehold/inline.mjs";
import { told, turn } from "./turn.mjs";

window.outcome = told(turn(LeaseManager));
