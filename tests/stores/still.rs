//! A store whose own runtime stands still.

use std::time::{Duration, Instant};

use leasehold::LeaseManager;
use tokio::runtime::Runtime;

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// The manager was made in a current-thread runtime that lives, and that nobody drives any more.
pub(crate) fn calls_while_the_first_runtime_stands_still(leases: &LeaseManager) {
    Runtime::new().unwrap().block_on(async {
        let guard = leases.lock("still").timeout(BUSY).acquire().await.unwrap();
        // The connections that were opened in the first runtime have to be given up first.
        let since = Instant::now();
        while let Err(told) = leases.list("").await {
            assert!(since.elapsed() < BUSY, "it cannot list: {told}");
        }
        drop(guard.release().await);
        leases.close().await;
    });
}
