//! Short leases on machines that are busy.

use std::time::Duration;

/// Tests what a holder keeps that renews a short lease in time. A busy machine may make the holder late. Its guard knows that, and `test`
/// returns how: then it is made anew with longer leases. So only a lease that is lost however long it is fails the test.
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
