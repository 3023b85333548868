//! Contexts that want the same key at once, some of them from far away.

use std::time::Duration;

use leasehold::LeaseManager;
use tokio::{runtime::Runtime, task::JoinHandle, time::timeout};

use crate::{address_of, faults::BUSY, manager, proxy::Way, proxy_before, server};

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(3_600);

async fn context(address: &str) -> LeaseManager {
    manager(address, "far").await.lease(LONG).linger(Duration::ZERO).build().unwrap()
}

/// Takes a key again and again: its record changes all the time.
async fn hot(address: &str) -> JoinHandle<()> {
    let leases = context(address).await;
    tokio::spawn(async move {
        loop {
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        }
    })
}

/// Between what a far context reads and what it writes, a near one always writes. A few requests must be enough all the same.
#[test]
fn a_far_context_gets_a_key_that_near_ones_take_again_and_again() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        for delay_ms in [0, 2, 20] {
            proxy.delay(Way::ToServer, Duration::from_millis(delay_ms));
            let near = [hot(&address).await, hot(&address).await];
            let far = context(&address_of(&proxy)).await;
            // Its session is open, and its connection for messages stands.
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
