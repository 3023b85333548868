// A server component, which Next.js bundles otherwise than a route: the address of its wasm is one for browsers.
import { LeaseManager } from "leasehold";
import { told, turn } from "../../turn.mjs";

export const dynamic = "force-dynamic";

export default async function Page() {
  return <pre>{JSON.stringify(await told(turn(LeaseManager, { store: "memory" })))}</pre>;
}
