//! Calls from a thread without a runtime.

use std::time::{Duration, Instant};

use futures::executor::block_on;
use leasehold::LeaseManager;
use tokio::runtime::{Builder, Runtime};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// The managers were made in the runtime, which lives, and ends later.
pub(crate) fn calls_from_a_plain_thread(runtime: Runtime, [leases, third, other]: [LeaseManager; 3]) {
    let guard = block_on(leases.lock("on a thread").timeout(BUSY).acquire()).unwrap();
    let listed = block_on(leases.list("")).unwrap();
    assert!(listed.iter().any(|status| status.key.as_str() == "on a thread"), "{listed:?}");
    assert!(block_on(guard.verify()).unwrap());
    block_on(guard.release()).unwrap();
    block_on(leases.close());
    // Tokio's timers panic in a runtime that has none.
    let bare = Builder::new_current_thread().build().unwrap();
    bare.block_on(third.close());
    drop(runtime);
    let listed = block_on(other.list(""));
    assert!(listed.unwrap_err().to_string().contains("runtime"), "it tells that the runtime has ended");
    let since = Instant::now();
    block_on(other.close());
    assert!(since.elapsed() < BUSY, "nobody waits for a runtime that has ended");
}
