//! Waiting for what is about to happen.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition is true.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "this did not come about: {what}");
        thread::sleep(PAUSE);
    }
}

/// Waits until a condition is true, on a runtime.
#[allow(dead_code, reason = "some tests wait without a runtime only")]
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < PATIENCE, "this did not come about: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
