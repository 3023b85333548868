import { LeaseManager } from "leasehold";
import { turn } from "../turn.mjs";

export const render = () => turn(LeaseManager, { store: "memory" });
