//! While contexts count, a replica takes over again and again, even if its master has newer writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use leasehold::store::RedisServers;
use tokio::task::yield_now;

use crate::{
    BUSY, SHORT_LEASE,
    cluster::{Cluster, SOON},
    context,
    groups::Pair,
    server::Server,
};

/// Each context reads the number, and writes the next one a moment later.
const CONTEXTS: usize = 3;
const TAKEOVERS: u64 = 6;
/// Records a number, and the token under which it was written.
const WRITE: &str = "redis.call('SET', KEYS[1], ARGV[1])
redis.call('RPUSH', KEYS[2], ARGV[2])";

/// Counts until it is told to stop. A write that a replaced server acknowledged may be lost.
async fn count(servers: RedisServers, prefix: String, stop: Arc<AtomicBool>, counted: Arc<AtomicU64>) {
    let (store, leases) = context(&servers, &prefix).await;
    let leases = leases.lease(SHORT_LEASE).build().unwrap();
    let [number, tokens] = ["n", "tokens"].map(|name| format!("{{{prefix}}}:{name}"));
    while !stop.load(SeqCst) {
        let Ok(guard) = leases.lock("k").timeout(SHORT_LEASE * 5).acquire().await else {
            // When a test has failed and its runtime shuts down, every request fails at once. Without this yield, the shutdown would never
            // finish.
            yield_now().await;
            continue;
        };
        let read = store.script("return redis.call('GET', KEYS[1])").key(&number);
        let Ok(Ok(read)) = guard.fence(read).await else { continue };
        let read: Option<u64> = redis::from_redis_value(read).unwrap();
        let write = store.script(WRITE).key(&number).key(&tokens);
        let write = write.arg(read.unwrap_or_default() + 1).arg(guard.token().as_u64());
        if guard.fence(write).await.is_ok_and(|answer| answer.is_ok()) {
            counted.fetch_add(1, SeqCst);
        }
        drop(guard.release().await);
    }
    leases.close().await;
}

fn is_master(server: &Server) -> bool {
    server.ask::<String>(&["INFO", "replication"]).contains("role:master")
}

/// Number and tokens are on one server, and so are lost together: whatever a take-over loses, each number follows from the one
/// before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_count_exactly_while_a_replica_takes_over_again_and_again() {
    let Some(mut cluster) = Cluster::start(SOON) else { return };
    let Pair { servers, master, replica, prefix } = cluster.pair("takeovers");
    let (stop, counted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let count = |_| tokio::spawn(count(servers.clone(), prefix.into(), Arc::clone(&stop), Arc::clone(&counted)));
    let counting: Vec<_> = (0..CONTEXTS).map(count).collect();
    let (mut from, mut to, began) = (&*master, replica, Instant::now());
    for _ in 0..TAKEOVERS {
        let before = counted.load(SeqCst);
        while counted.load(SeqCst) < before + 20 {
            assert!(began.elapsed() < BUSY * 2, "nobody counts any more");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        to.wait_for::<String>(&["INFO", "replication"], |info| info.contains("master_link_status:up"));
        let _: String = to.ask(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        from.wait_for::<String>(&["INFO", "replication"], |info| info.contains("role:slave"));
        (from, to) = (to, from);
    }
    stop.store(true, SeqCst);
    for one in counting {
        one.await.unwrap();
    }
    assert!(is_master(from) && !is_master(to));
    let number: usize = from.ask(&["GET", &format!("{{{prefix}}}:n")]);
    let tokens: Vec<u64> = from.ask(&["LRANGE", &format!("{{{prefix}}}:tokens"), "0", "-1"]);
    println!("{number} of {} counts survived {TAKEOVERS} take-overs", counted.load(SeqCst));
    assert_eq!(number, tokens.len(), "each count was written upon the one before it");
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "tokens grow strictly");
}
