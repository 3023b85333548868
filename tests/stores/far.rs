//! A context that is far away from its server, and near ones that write the same record all the time.

use std::time::{Duration, Instant};

use leasehold::{AcquireError, LeaseManager};
use tokio::{task::yield_now, time::timeout};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// Its store time-out is enough for few round trips of these lengths. Each transaction goes on where the one before it had to stop. `delay`
/// delays what a far context sends, by this many ms. If a machine that becomes busier makes the round trips longer, the test tries again.
pub(crate) async fn a_far_context_with_a_short_lease_acquires_the_key_too(
    near: [LeaseManager; 2],
    far: impl AsyncFn() -> LeaseManager,
    delay: impl Fn(u64),
    round_trips_ms: &[u64],
) {
    for near in near {
        tokio::spawn(take_turns(near));
    }
    for round_trip_ms in round_trips_ms {
        let mut refused = Vec::new();
        while let Err(error) = acquires(far().await, &delay, *round_trip_ms).await {
            refused.push(error);
            assert!(refused.len() < 5, "a round trip of {round_trip_ms} ms: {refused:?}");
        }
    }
}

/// Acquires the key while a round trip, which is the delay and the time that the machine takes, has this length.
async fn acquires(far: LeaseManager, delay: &impl Fn(u64), round_trip_ms: u64) -> Result<(), AcquireError> {
    drop(far.lock("other").timeout(BUSY).acquire().await.unwrap());
    let mut slowest_ms = 0;
    for _ in 0..20 {
        let since = Instant::now();
        drop(far.status("k").await);
        slowest_ms = since.elapsed().as_millis().max(slowest_ms);
    }
    delay(round_trip_ms.saturating_sub(slowest_ms.try_into().unwrap()));
    let granted = timeout(BUSY, far.lock("k").timeout(BUSY / 3).acquire()).await.unwrap();
    delay(0);
    let granted = granted.map(drop);
    far.close().await;
    granted
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
