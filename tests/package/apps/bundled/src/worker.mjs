import { LeaseManager } from "leasehold";
import { tellWhenAsked, turn } from "../turn.mjs";

tellWhenAsked(() => turn(LeaseManager));
