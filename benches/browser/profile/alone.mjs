// The operations of one tab. Each mode has databases of its own: their tabs are open side by side.
import { Lease, LeaseManager } from "/pkg/index.mjs";
import { writes } from "../fence.mjs";
import { hits } from "../hits.mjs";
import { pieces } from "./pieces.mjs";
import { mark } from "./sample.mjs";
import { spanned } from "./spans.mjs";

export async function operations(mode) {
  if (mode === "crossings" || mode === "parts") hookPackage();
  const cold = { "cold turn": { turn: await coldTurn(`profile-${mode}`) } };
  // The other operations of one tab do not depend on `commit()`: a hit seldom runs a transaction, and the others are not the package's.
  if (mode === "flipped") return cold;
  const { hit } = await hits(`profile-hits-${mode}`);
  const { plain_write, fenced_write } = await writes(`profile-fence-${mode}`);
  const floor = await pieces(`profile-pieces-${mode}`);
  return {
    ...cold,
    "fenced write": fenced_write,
    "linger hit": hit,
    "plain transaction": floor["get, put, commit(), to complete"],
    "plain write": plain_write,
    // What the browser takes for one thing or another.
    ...(mode === "plain" ? floor : {}),
  };
}

async function coldTurn(database) {
  // What is measured is the store, not the lease that is kept for the next request.
  const leases = await LeaseManager.open(database, { lingerMs: 0 });
  return async () => {
    const lease = await leases.acquire("cold");
    mark("granted");
    await lease.release();
    mark("released");
  };
}

// These spans end at the method's first `await`: the engine runs the rest, so no call of it can be wrapped.
function hookPackage() {
  LeaseManager.prototype.acquire = spanned("package", "acquire()", LeaseManager.prototype.acquire);
  for (const name of ["release", "fence"]) Lease.prototype[name] = spanned("package", `${name}()`, Lease.prototype[name]);
}
