//! Contexts that want the same key at once, some of them from far away.

use std::time::Duration;

use leasehold::LeaseManager;
use redis::Client;
use tokio::{task::JoinHandle, time::timeout};

use crate::{BUSY, LONG_LEASE, client_of, context, proxy::Way, proxy_before, server::Server};

async fn manager(client: &Client, prefix: &str) -> LeaseManager {
    context(client, prefix).await.1.lease(LONG_LEASE).linger(Duration::ZERO).build().unwrap()
}

/// Acquires and releases a key again and again, so that its record changes all the time.
async fn hot(server: &Server, prefix: &str) -> JoinHandle<()> {
    let leases = manager(&server.client(), prefix).await;
    tokio::spawn(async move {
        loop {
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        }
    })
}

/// Between a far context's read and its write, a near context nearly always writes. A few round trips must be enough all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_far_context_acquires_a_key_that_near_contexts_acquire_all_the_time() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = proxy_before(server.port());
    for delay_ms in [0, 2, 20] {
        proxy.delay(Way::ToServer, Duration::from_millis(delay_ms));
        let near = [hot(&server, "far").await, hot(&server, "far").await];
        let far = manager(&client_of(&proxy), "far").await;
        // This opens its session and its connection for messages, so that the loop does not count them.
        drop(far.lock("other").acquire().await.unwrap());
        for _ in 0..5 {
            let before = proxy.trips();
            let guard = timeout(BUSY, far.lock("k").acquire()).await.unwrap().unwrap();
            let trips = proxy.trips() - before;
            assert!(trips <= 12, "{trips} round trips at a delay of {delay_ms} ms");
            guard.release().await.unwrap();
        }
        near.into_iter().for_each(|near| near.abort());
        far.close().await;
    }
}

/// The context that reserved the record has died, or the server's clock was set back since.
#[tokio::test]
async fn a_reservation_that_nobody_uses_holds_nobody_up_for_long() {
    let Some(server) = Server::start(&[]) else { return };
    let leases = manager(&server.client(), "reserved").await;
    let now: Vec<u64> = server.ask::<Vec<String>>(&["TIME"]).iter().map(|part| part.parse().unwrap()).collect();
    let now_ms = now[0] * 1_000 + now[1] / 1_000;
    for till_ms in [now_ms + 200, now_ms + 1_000_000, now_ms - 1, 0] {
        let text = format!("abc {till_ms}");
        let _: i64 = server.ask(&["HSET", "{reserved}:rows", "reserved:k", &text]);
        let scripts = server.scripts();
        timeout(BUSY, leases.lock("k").acquire()).await.unwrap().unwrap().release().await.unwrap();
        let is_respected = till_ms == now_ms + 200;
        assert!(is_respected || server.scripts() - scripts <= 4, "{till_ms}: {} scripts", server.scripts() - scripts);
        assert_eq!(server.ask::<i64>(&["HEXISTS", "{reserved}:rows", "reserved:k"]), 0, "{till_ms}");
    }
}
