// Runs as a module in a worker of any kind.
import { LeaseManager } from "./node_modules/leasehold/index.mjs";
import { tellWhenAsked, turn } from "./turn.mjs";

tellWhenAsked(() => turn(LeaseManager));
