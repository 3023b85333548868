// Each line is refused by the compiler; what the sample expects of the types in detail, it says itself.
import { LeaseManager, init } from "leasehold";
import { nothing } from "leasehold";
import * as deep from "leasehold/index.mjs";

await LeaseManager.open();
await LeaseManager.open("app", { store: "disk" });
await init(null);
