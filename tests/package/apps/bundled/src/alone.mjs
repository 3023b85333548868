import { LeaseManager } from "leasehold";
import { told, turn } from "../turn.mjs";

window.outcome = told(turn(LeaseManager));
