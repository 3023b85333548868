// A classic service worker, once it is bundled. Its build puts leasehold/inline in the place of this import.
import { LeaseManager } from "leasehold";
import { tellWhenAsked, turn } from "../turn.mjs";

tellWhenAsked(() => turn(LeaseManager));
