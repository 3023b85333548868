import { LeaseManager } from "leasehold/inline";
import { told, turn } from "../turn.mjs";

window.outcome = told(turn(LeaseManager));
