//! What a store does while one server of a group replaces another, whether Sentinels or the nodes of a cluster decide that.

use std::time::{Duration, Instant};

use leasehold::{
    FenceError,
    machine::Applied,
    store::{RedisServers, RedisStore, Store},
};
use tokio::time::timeout;

use crate::{
    BUSY, LONG_LEASE, SHORT_LEASE, context,
    inputs::{look, now},
    open,
    server::Server,
};

/// A server that keeps the leases of a prefix, and the one that will succeed it.
pub(crate) struct Pair<'a> {
    pub(crate) servers: RedisServers,
    pub(crate) master: &'a mut Server,
    pub(crate) replica: &'a Server,
    pub(crate) prefix: &'a str,
}

impl Pair<'_> {
    /// Waits until the replica has all that was written.
    fn catch_up(&self) {
        let offset = |info: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
            line.expect("a server tells its offset").parse::<u64>().expect("it is a number")
        };
        let written = offset(&self.master.ask::<String>(&["INFO", "replication"]));
        self.replica.wait_for::<String>(&["INFO", "replication"], |info| offset(info) >= written);
    }

    /// Stops the replica from getting its master's writes.
    fn cut_off(&self) {
        for setting in ["masteruser", "masterauth"] {
            let _: String = self.replica.ask(&["CONFIG", "SET", setting, "nobody"]);
        }
        let _: i64 = self.master.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
        self.replica.wait_for::<String>(&["INFO", "replication"], |info| info.contains("master_link_status:down"));
    }

    fn visits(&self) -> String {
        format!("{{{}}}:visits", self.prefix)
    }

    fn count(&self, store: &RedisStore) -> leasehold::store::RedisScript {
        store.script("return redis.call('INCR', KEYS[1])").key(self.visits())
    }

    /// The master dies. Until the replica is promoted, the errors of a reading request say that trying again may help, and that nothing was
    /// written.
    async fn fail_over(&mut self) -> Duration {
        let onlooker = open(&self.servers, self.prefix).await;
        onlooker.transact(look(9), now(), BUSY).await.unwrap();
        self.master.kill();
        let began = Instant::now();
        while let Err(error) = onlooker.transact(look(9), now(), SHORT_LEASE).await {
            assert!(error.retry && error.applied == Applied::No, "{error}");
            // A Sentinel that was kept from running for 2 s enters its TILT mode, and replaces nobody for 30 s.
            assert!(began.elapsed() < BUSY * 3, "nobody was promoted: {error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    }
}

/// Waits until this many contexts are subscribed at this server: they miss messages that are sent before.
pub(crate) async fn are_heard_by(server: &Server, prefix: &str, contexts: u64) {
    let (all, began) = (format!("{{{prefix}}}:0:all"), Instant::now());
    while server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", &all]).1 < contexts {
        assert!(began.elapsed() < BUSY, "the contexts do not subscribe anew");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The replica has all that was written before the master dies: nothing is lost.
pub(crate) async fn holder_and_waiter_are_kept(mut pair: Pair<'_>) {
    let (store, leases) = context(&pair.servers, pair.prefix).await;
    let (_, others) = context(&pair.servers, pair.prefix).await;
    let leases = leases.lease(LONG_LEASE).heartbeat(SHORT_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    // Without a message, the waiter would read the store only every third of an hour.
    let others = others.lease(LONG_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(others.lock("k").acquire());
    while leases.status("k").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    guard.fence(pair.count(&store)).await.unwrap().unwrap();
    pair.catch_up();

    let took = pair.fail_over().await;
    println!("{}: the store was unavailable for {} ms", pair.prefix, took.as_millis());
    assert!(guard.is_valid() && !waiting.is_finished());
    while !matches!(guard.verify().await, Ok(true)) {
        assert!(guard.is_valid(), "the new master knows the lease");
    }
    guard.fence(pair.count(&store)).await.unwrap().unwrap();
    assert_eq!(pair.replica.ask::<i64>(&["GET", &pair.visits()]), 2, "the new master has both writes");
    are_heard_by(pair.replica, pair.prefix, 2).await;
    guard.release().await.unwrap();
    let next = timeout(BUSY, waiting).await.expect("it is told").unwrap().unwrap();
    assert!(next.token() > guard.token());
}

/// The replica does not have the latest grant when the master dies.
pub(crate) async fn a_grant_that_is_lost_makes_two_holders_of_which_one_writes(mut pair: Pair<'_>) {
    let (store, leases) = context(&pair.servers, pair.prefix).await;
    let (others_store, others) = context(&pair.servers, pair.prefix).await;
    let leases = leases.lease(LONG_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    let others = others.lease(LONG_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    leases.lock("k").acquire().await.unwrap().release().await.unwrap();
    pair.catch_up();
    pair.cut_off();
    let first = leases.lock("k").acquire().await.unwrap();
    first.fence(pair.count(&store)).await.unwrap().unwrap();
    pair.fail_over().await;

    let second = others.lock("k").acquire().await.unwrap();
    // The first context believes in its lease until it has subscribed to the new master, and looked.
    assert!(second.is_valid());
    assert!(second.token() > first.token(), "a server that compares tokens refuses the first one");
    second.fence(pair.count(&others_store)).await.unwrap().unwrap();
    let refused = loop {
        match first.fence(pair.count(&store)).await {
            Err(FenceError::Store(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(refused, Err(FenceError::Lost { .. })), "{refused:?}");
    assert_eq!(pair.replica.ask::<i64>(&["GET", &pair.visits()]), 1, "only the second holder wrote to the new master");
    timeout(BUSY, first.lost()).await.expect("it is told");
    assert!(second.verify().await.unwrap());
}

/// The replica lacks the latest releases when the master dies. The former holder holds another lease, so its session goes on, and the new
/// master lists it as the holder until it has reconnected.
pub(crate) async fn a_release_that_is_lost_is_repeated_by_the_former_holder(mut pair: Pair<'_>) {
    let (_, leases) = context(&pair.servers, pair.prefix).await;
    let (_, others) = context(&pair.servers, pair.prefix).await;
    let leases = leases.lease(LONG_LEASE).heartbeat(SHORT_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    let others = others.lease(LONG_LEASE).heartbeat(SHORT_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    let kept = leases.lock("kept").acquire().await.unwrap();
    let guards = [leases.lock("a").acquire().await.unwrap(), leases.lock("b").acquire().await.unwrap()];
    pair.catch_up();
    pair.cut_off();
    for guard in &guards {
        guard.release().await.unwrap();
    }
    let rows: Vec<String> = pair.replica.ask(&["HVALS", &format!("{{{}}}:rows", pair.prefix)]);
    let held = rows.iter().filter(|row| row.contains("\"grants\":[{")).count();
    assert_eq!(held, 3, "the replica lacks both releases: {rows:?}");
    pair.fail_over().await;

    for (key, former) in ["a", "b"].into_iter().zip(&guards) {
        let next = others.lock(key).timeout(BUSY).acquire().await.expect("its former holder releases it again");
        assert!(next.token() > former.token());
    }
    assert!(kept.verify().await.unwrap(), "what the replica knows is kept");
}
