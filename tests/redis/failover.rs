//! What a failover loses before a write has reached the replica.

use tokio::time::timeout;

use leasehold::{
    FenceError,
    store::{RedisStore, Store},
};

use crate::{
    BUSY, LONG_LEASE, SHORT_LEASE, client_of, context,
    inputs::{look, now},
    open, proxy_before,
    server::Server,
};

/// Its session is old enough to have reached the replica, and so its heartbeats go on.
#[tokio::test]
async fn a_holder_whose_grant_alone_is_lost_in_a_failover_is_told() {
    let Some(mut master) = Server::start(&["--repl-diskless-sync-delay", "0"]) else { return };
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port().to_string()]).unwrap();
    let proxy = proxy_before(master.port());
    let (_, leases) = context(&client_of(&proxy), "kept").await;
    let (_, others) = context(&client_of(&proxy), "kept").await;
    let leases = leases.lease(LONG_LEASE).heartbeat(SHORT_LEASE).build().unwrap();
    let others = others.lease(LONG_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    let earlier = leases.lock("earlier").acquire().await.unwrap();
    while replica.ask::<i64>(&["HEXISTS", "{kept}:rows", "lease:earlier"]) == 0 {
        tokio::task::yield_now().await;
    }
    let _: String = replica.ask(&["REPLICAOF", "NO", "ONE"]);
    let first = leases.lock("k").acquire().await.unwrap();
    master.kill();
    proxy.lead_to(replica.port());
    let second = others.lock("k").acquire().await.unwrap();
    timeout(BUSY, first.lost()).await.expect("it is told");
    assert!(!first.is_valid() && second.verify().await.unwrap());
    assert!(earlier.verify().await.unwrap(), "what the replica knows is kept");
}

/// The clients speak with whoever is the master, by one address.
#[tokio::test]
async fn a_failover_that_loses_the_grant_makes_two_holders_and_the_first_one_writes_nothing() {
    let Some(mut master) = Server::start(&["--repl-diskless-sync-delay", "0"]) else { return };
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port().to_string()]).unwrap();
    let (proxy, others_proxy) = (proxy_before(master.port()), proxy_before(master.port()));
    let (store, leases) = context(&client_of(&proxy), "failover").await;
    let (others_store, others) = context(&client_of(&others_proxy), "failover").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let others = others.lease(LONG_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    let count = |store: &RedisStore| store.script("return redis.call('INCR', KEYS[1])").key("failover: n");
    leases.lock("k").acquire().await.unwrap().release().await.unwrap();
    // The replica has all that was written until now.
    while replica.ask::<i64>(&["HEXISTS", "{failover}:rows", "lease:k"]) == 0 {
        tokio::task::yield_now().await;
    }

    // It is promoted, and does not see what its master writes from now on.
    let _: String = replica.ask(&["REPLICAOF", "NO", "ONE"]);
    let first = leases.lock("k").acquire().await.unwrap();
    first.fence(count(&store)).await.unwrap().unwrap();
    assert_eq!(master.ask::<i64>(&["GET", "failover: n"]), 1);
    master.kill();
    others_proxy.lead_to(replica.port());

    let second = others.lock("k").acquire().await.unwrap();
    assert!(first.is_valid() && second.is_valid(), "two contexts believe that they hold the lease");
    assert!(second.token() > first.token(), "a server that compares tokens refuses the first one");
    second.fence(count(&others_store)).await.unwrap().unwrap();
    // Now the first context finds the new master, too.
    proxy.lead_to(replica.port());
    // The first to use a broken connection may learn no more than that it broke.
    let refused = loop {
        match first.fence(count(&store)).await {
            Err(FenceError::Store(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(refused, Err(FenceError::Lost { .. })), "{refused:?}");
    assert_eq!(replica.ask::<i64>(&["GET", "failover: n"]), 1, "only the second holder wrote to the new master");
    first.lost().await;
    assert!(second.verify().await.unwrap());
}

/// Each server has settings of its own.
#[tokio::test]
async fn a_successor_that_evicts_any_key_is_not_used_until_its_policy_is_changed() {
    let (Some(mut master), Some(successor)) =
        (Server::start(&[]), Server::start(&["--maxmemory-policy", "allkeys-lru"]))
    else {
        return;
    };
    let proxy = proxy_before(master.port());
    let store = open(&client_of(&proxy), "successor").await;
    store.transact(look(1), now(), BUSY).await.unwrap();
    master.kill();
    proxy.lead_to(successor.port());
    let evicts = async || {
        let error = store.transact(look(1), now(), BUSY).await.expect_err("it would forget leases");
        assert!(error.retry, "somebody may change the policy: {error}");
        error.message.contains("set maxmemory-policy noeviction")
    };
    // The first request may do no more than find out that the old connection broke.
    while !evicts().await {}
    assert!(evicts().await, "the policy is checked each time");
    let _: String = successor.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    store.transact(look(1), now(), BUSY).await.unwrap();
}
