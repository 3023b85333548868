// Asking again in the same tab, within the linger; and what a Web Lock costs at its cheapest. Both are over in
// microseconds.
import * as present from "/pkg/index.mjs";

const BATCH = 200;

export async function hits(database = "bench-hits", { LeaseManager } = present) {
  const leases = await LeaseManager.open(database);
  return {
    hit: {
      each: 1,
      batch: BATCH,
      turn: async () => {
        const lease = await leases.acquire("hits");
        await lease.release();
      },
    },
    weblocks_hit: { each: 1, batch: BATCH, turn: () => navigator.locks.request("hits", () => {}) },
  };
}
