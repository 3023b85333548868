//! A context that is far away from its server, and near ones that write the same record all the time.

use std::time::Duration;

use leasehold::LeaseManager;
use tokio::{task::yield_now, time::timeout};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// Its store time-out is enough for few round trips of these delays. Each transaction goes on where the one before it had to stop. `delay`
/// delays what a far context sends, by this many ms.
pub(crate) async fn a_far_context_with_a_short_lease_acquires_the_key_too(
    near: [LeaseManager; 2],
    far: impl AsyncFn() -> LeaseManager,
    delay: impl Fn(u64),
    delays_ms: &[u64],
) {
    for near in near {
        tokio::spawn(take_turns(near));
    }
    for delay_ms in delays_ms {
        let far = far().await;
        drop(far.lock("other").acquire().await.unwrap());
        delay(*delay_ms);
        let granted = timeout(BUSY, far.lock("k").timeout(BUSY).acquire()).await.unwrap();
        assert!(granted.is_ok(), "a round trip of {delay_ms} ms: {granted:?}");
        delay(0);
        drop(granted);
        far.close().await;
    }
}

async fn take_turns(near: LeaseManager) {
    loop {
        match near.lock("k").timeout(BUSY).acquire().await {
            Ok(guard) => drop(guard.release().await),
            // While the runtime shuts down, each request may fail at once. Yield, so that this task can be stopped.
            Err(_) => yield_now().await,
        }
    }
}
