//! Servers that die, come back, or stand in for another one.

use std::{sync::Arc, time::Duration};

use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    machine::SessionId,
    signal::{Inbox, Notice},
    store::{PostgresStore, Store},
};
use tokio::{runtime::Runtime, time::timeout};

use super::{ask, ask_within, is_granted, manager, on_own_server};
use crate::{
    outage,
    server::{PATIENCE, Place, Server},
    signals::Told,
    until::until,
};

/// The server dies while one context holds and another waits. Both go on when it is back.
#[test]
fn a_holder_and_a_waiter_outlive_a_crash_of_the_server() {
    on_own_server(async |server, place| {
        let (one, other) = (manager(place.store().await), manager(place.store().await));
        let guard = one.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(async move { (other.lock("k").acquire().await, other) });
        let queued = async || one.status("k").await.is_ok_and(|status| !status.queue.is_empty());
        until("the other one waits", queued).await;
        server.crash();
        assert!(one.status("k").await.is_err(), "nobody answers");
        server.restart();
        until("the server answers", async || one.status("k").await.is_ok()).await;
        assert!(guard.is_valid() && !waiting.is_finished());
        let token = guard.token();
        guard.release().await.unwrap();
        let (granted, _other) = timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(granted.unwrap().token() > token);
    });
}

#[test]
fn who_said_for_how_long_waits_for_the_server() {
    on_own_server(async |server, place| {
        let serve = |up| if up { server.restart() } else { server.crash() };
        outage::who_said_for_how_long_waits_for_the_server(manager(place.store().await), serve).await;
    });
}

/// A store over the primary and another server, which is started anew.
async fn beside(primary: &Server, other: &Server) -> PostgresStore {
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", primary.port, other.port);
    Place { url, prefix: "leasehold".into() }.store().await
}

/// Meanwhile the standby answers, and takes no writes.
#[test]
fn a_context_goes_on_by_the_primary_when_that_is_back() {
    let (Some(primary), Some(standby)) = (Server::start(), Server::start()) else { return };
    standby.crash();
    standby.make_standby();
    standby.restart();
    Runtime::new().unwrap().block_on(async {
        let store = beside(&primary, &standby).await;
        ask(&store, 1).await.unwrap();
        primary.crash();
        let error = ask(&store, 1).await.unwrap_err();
        assert!(error.message.contains("cannot be written to"), "{error}");
        primary.restart();
        assert!(is_granted(&ask(&store, 1).await.unwrap()));
    });
}

/// Of what happened after the standby lost the primary, it knows nothing.
#[test]
fn a_look_is_not_answered_by_a_standby() {
    let (Some(primary), Some(standby)) = (Server::start(), Server::start()) else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: primary.url(), prefix: "leasehold".into() };
        place.store().await.close().await;
        primary.crash();
        standby.crash();
        standby.copy(&primary);
        standby.make_standby();
        standby.restart();
        primary.restart();
        let holder = manager(place.store().await);
        let guard = holder.lock("k").acquire().await.unwrap();
        let onlooker = manager(beside(&primary, &standby).await);
        assert_eq!(onlooker.status("k").await.unwrap().holders.len(), 1);
        primary.crash();
        let told = onlooker.status("k").await;
        let listed = onlooker.list("").await;
        primary.restart();
        for told in [told.map(|_| ()), listed.map(|_| ())] {
            assert!(told.as_ref().is_err_and(|error| error.to_string().contains("cannot be written to")), "{told:?}");
        }
        assert_eq!(onlooker.status("k").await.unwrap().holders.len(), 1);
        assert_eq!(onlooker.list("").await.unwrap().len(), 1);
        assert!(guard.verify().await.unwrap(), "it was held all the time");
    });
}

/// An error that stays would cost the leases, and end whoever waits.
#[test]
fn a_second_host_that_refuses_the_user_does_not_say_that_the_first_one_is_gone_for_good() {
    let (Some(primary), Some(other)) = (Server::start(), Server::start()) else { return };
    other.crash();
    other.let_in("hostssl all all all trust");
    other.restart();
    Runtime::new().unwrap().block_on(async {
        let store = beside(&primary, &other).await;
        primary.crash();
        let error = ask(&store, 1).await.unwrap_err();
        assert!(error.retry && error.message.contains("28000"), "{error}");
        primary.restart();
        assert!(is_granted(&ask(&store, 1).await.unwrap()));
    });
}

/// The first host hangs, and a replica takes over that lacks the latest grant. The connection for signals only listens, and the kernel of the
/// host keeps it alive.
#[test]
fn a_holder_whose_grant_a_failover_lost_is_told_although_the_old_server_only_hangs() {
    let (Some(primary), Some(replica)) = (Server::start(), Server::start()) else { return };
    Runtime::new().unwrap().block_on(async {
        replica.crash();
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, replica.port);
        let url = format!("postgres://postgres@{hosts}/postgres?target_session_attrs=read-write");
        let store = Place { url, prefix: "leasehold".into() }.store().await;
        let holder = LeaseManager::builder(store, TokioExecutor::new()).lease(Duration::from_secs(8)).build().unwrap();
        let _base = holder.lock("base").acquire().await.unwrap();
        let frozen = primary.freeze();
        replica.copy(&primary);
        drop(frozen);
        let guard = holder.lock("k").acquire().await.unwrap();
        let _frozen = primary.freeze();
        replica.restart();
        let heir = manager(Place { url: replica.url(), prefix: "leasehold".into() }.store().await);
        let _granted = timeout(PATIENCE, heir.lock("k").acquire()).await.unwrap().unwrap();
        let lost = timeout(PATIENCE, guard.lost()).await;
        assert!(lost.is_ok(), "two contexts hold it, and the first is not told");
    });
}

/// The connection for signals is as new as the doubt, and no later transaction fails.
#[test]
fn a_doubt_soon_after_the_connection_was_made_is_not_forgotten() {
    on_own_server(async |server, place| {
        let store = place.builder().with_beacons().connect().await.unwrap();
        store.migrate().await.unwrap();
        ask(&store, 1).await.unwrap();
        let (signals, told) = (store.signals().unwrap(), Arc::new(Told::default()));
        let inbox: Arc<dyn Inbox> = told.clone();
        assert!(signals.wake(SessionId(98), true, Arc::downgrade(&inbox)));
        until("the beacon stands", async || told.has(&Notice::BeaconStands(SessionId(98)))).await;
        let frozen = server.freeze();
        ask_within(Duration::from_millis(300), "k", &store, 1).await.unwrap_err();
        until("the connection is given up", async || told.has(&Notice::BeaconLost(SessionId(98)))).await;
        drop(frozen);
    });
}

/// A holder must renew its lease before that runs out. The first host goes on accepting connections, and says nothing.
#[test]
fn a_host_that_hangs_is_passed_over_by_the_next_transaction() {
    on_own_server(async |server, place| {
        let proxy = place.proxy();
        let url = format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
            proxy.port, server.port
        );
        let store = Place { url, prefix: "leasehold".into() }.store().await;
        ask(&store, 1).await.unwrap();
        proxy.fall_silent();
        let error = ask_within(Duration::from_secs(1), "k", &store, 1).await.unwrap_err();
        assert!(error.message.contains("within 1000 ms"), "{error}");
        // To ask the first host again would take 5 s.
        ask_within(Duration::from_secs(4), "k", &store, 1).await.unwrap();
    });
}
