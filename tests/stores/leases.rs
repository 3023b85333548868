//! Short leases on machines that are busy.

use std::time::Duration;

/// Runs a test in which a holder keeps a short lease by renewing it in time. On a busy machine the holder may be late. Its guard knows
/// that, and `test` returns what happened: then it is run again with longer leases. So it fails only if every lease is lost, however long.
pub(crate) async fn with_longer_leases(shortest: Duration, test: impl AsyncFn(Duration) -> Result<(), String>) {
    let mut late = Vec::new();
    for factor in [1, 3, 9] {
        let lease = shortest * factor;
        match test(lease).await {
            Ok(()) => return,
            Err(how) => late.push(format!("with a lease of {lease:?}: {how}")),
        }
    }
    panic!("the lease is not kept: {late:#?}");
}
