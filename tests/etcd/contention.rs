//! Contexts that want the same key at once, some of them from far away.

use std::time::Duration;

use leasehold::LeaseManager;
use tokio::{runtime::Runtime, task::JoinHandle, time::timeout};

use crate::{address_of, far, faults::BUSY, manager, proxy::Way, proxy_before, server};

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(3_600);

async fn context(address: &str) -> LeaseManager {
    manager(address, "far").await.lease(LONG).linger(Duration::ZERO).build().unwrap()
}

/// Acquires and releases a key again and again, so that its record changes all the time.
async fn hot(address: &str) -> JoinHandle<()> {
    let leases = context(address).await;
    tokio::spawn(async move {
        loop {
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        }
    })
}

/// Between a far context's read and its write, a near context nearly always writes. A few round trips must be enough all the same.
#[test]
fn a_far_context_acquires_a_key_that_near_contexts_acquire_all_the_time() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        for delay_ms in [0, 2, 20] {
            proxy.delay(Way::ToServer, Duration::from_millis(delay_ms));
            let near = [hot(&address).await, hot(&address).await];
            let far = context(&address_of(&proxy)).await;
            // This opens its session and its connection for messages, so that the loop does not count them.
            drop(far.lock("other").acquire().await.unwrap());
            for _ in 0..5 {
                let before = proxy.trips();
                let guard = timeout(BUSY, far.lock("k").acquire()).await.unwrap().unwrap();
                let trips = proxy.trips() - before;
                assert!(trips <= 25, "{trips} round trips at a delay of {delay_ms} ms");
                guard.release().await.unwrap();
            }
            near.into_iter().for_each(|near| near.abort());
            far.close().await;
        }
    });
}

/// The store time-out of a lease of 1 s is 250 ms: enough for two or three round trips.
#[test]
fn a_far_context_with_a_short_lease_acquires_the_key_too() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        let open = async |address: &str| {
            let leases = manager(address, "short").await.lease(Duration::from_secs(1)).linger(Duration::ZERO);
            leases.build().unwrap()
        };
        let near = [open(&address).await, open(&address).await];
        let delay = |ms| proxy.delay(Way::ToServer, Duration::from_millis(ms));
        let far = async || open(&address_of(&proxy)).await;
        far::a_far_context_with_a_short_lease_acquires_the_key_too(near, far, delay, &[70, 85, 100, 120]).await;
    });
}
