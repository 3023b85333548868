import { LeaseManager } from "leasehold";
import { told, turn } from "../../turn.mjs";

export const dynamic = "force-dynamic";

export const GET = async () => Response.json(await told(turn(LeaseManager, { store: "memory" })));
