//! Connections that end, lead nowhere, or are left in the middle of a call.

use std::time::Duration;

use leasehold::{LeaseManager, LostReason, executor::TokioExecutor, machine::Key, store::Store};
use tokio::time::timeout;

use super::{LIMIT, ask, ask_for, ask_within, behind_proxy, manager};
use crate::{
    proxy::Way,
    server::{PATIENCE, Place, on_server},
    until::until,
};

/// Nobody asked anything of it meanwhile: the next call finds another one.
#[test]
fn an_idle_connection_that_the_server_ended_is_replaced_unnoticed() {
    on_server("faults_idle", |place| async move {
        let named = Place { url: format!("{}?application_name=faults_idle", place.url), ..place.clone() };
        let (store, user) = (named.store().await, place.client().await);
        let count = async |what: &str| {
            let sql = format!("SELECT count({what}) FROM pg_stat_activity WHERE application_name = 'faults_idle'");
            user.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0)
        };
        for session in 0..20 {
            ask(&store, session).await.unwrap();
            assert_eq!(count("pg_terminate_backend(pid)").await, 1);
            // Until the connection is gone, the server may still answer.
            until("the connection is gone", async || count("*").await == 0).await;
        }
    });
}

/// However far it got: the connection is in no transaction, and the next call works.
#[test]
fn a_call_that_is_dropped_leaves_no_transaction_open() {
    on_server("faults_dropped", |place| async move {
        let store = place.builder().prefix("faults_dropped").connect().await.unwrap();
        store.migrate().await.unwrap();
        for session in 0..40 {
            let wait = Duration::from_micros(u64::try_from(session).unwrap() * 100);
            drop(timeout(wait, ask(&store, session)).await);
        }
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE '%faults_dropped%'";
        until("no transaction is open", async || {
            place.client().await.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
        let granted = store.keys("").await.unwrap();
        assert_eq!(granted, [Key::new("k").unwrap()]);
        ask(&store, 99).await.unwrap();
    });
}

/// All connections of the stores end again and again, and two contexts take turns all the same: a count that is read and
/// written in two steps under the lease loses nothing.
#[test]
fn contexts_take_turns_while_their_connections_are_ended() {
    on_server("faults_turns", |place| async move {
        let user = place.client().await;
        user.batch_execute(
            "CREATE TABLE faults_turns_count AS SELECT 0 AS n; CREATE ROLE faults_turns LOGIN SUPERUSER",
        )
        .await
        .unwrap();
        // Only these connections are of that user.
        let own = Place { url: place.url.replace("postgres@", "faults_turns@"), ..place.clone() };
        let contexts = [manager(own.store().await), manager(own.store().await)];
        let ending = tokio::spawn(async move {
            let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'faults_turns'";
            let mut ended = 0;
            loop {
                tokio::time::sleep(Duration::from_millis(35)).await;
                ended += user.query_one(end, &[]).await.unwrap().get::<_, i64>(0);
                if ended > 60 {
                    return ended;
                }
            }
        });
        let turns = contexts.into_iter().map(|leases| take_turns(leases, &place, &ending));
        let taken: i32 = futures::future::join_all(turns).await.into_iter().sum();
        let counted: i32 =
            place.client().await.query_one("SELECT n FROM faults_turns_count", &[]).await.unwrap().get(0);
        assert_eq!(counted, taken);
        assert!(taken > 2 && ending.await.unwrap() > 60);
    });
}

async fn take_turns(leases: LeaseManager, place: &Place, ending: &tokio::task::JoinHandle<i64>) -> i32 {
    let user = place.client().await;
    let mut taken = 0;
    while !ending.is_finished() {
        let guard = match timeout(PATIENCE, leases.lock("k").acquire()).await.expect("it is granted in the end") {
            Ok(guard) => guard,
            Err(leasehold::AcquireError::Store(error)) if error.retry => continue,
            Err(error) => panic!("{error}"),
        };
        let n: i32 = user.query_one("SELECT n FROM faults_turns_count", &[]).await.unwrap().get(0);
        user.execute("UPDATE faults_turns_count SET n = $1", &[&(n + 1)]).await.unwrap();
        taken += 1;
        drop(guard.release().await);
    }
    leases.close().await;
    taken
}

/// As after a failover to a standby that lacks the latest writes. The session is old enough to be there.
#[test]
fn a_holder_whose_grant_alone_is_lost_is_told_when_its_connections_are_new() {
    on_server("faults_lost_grant", |place| async move {
        let named = Place { url: format!("{}?application_name=faults_lost_grant", place.url), ..place.clone() };
        let leases = LeaseManager::builder(named.store().await, TokioExecutor::new()).lease(Duration::from_secs(3_600));
        let leases = leases.build().unwrap();
        let kept = leases.lock("kept").acquire().await.unwrap();
        let lost = leases.lock("lost").acquire().await.unwrap();
        let user = place.client().await;
        let deleted = user.execute("DELETE FROM faults_lost_grant_record WHERE key = 'lost'", &[]).await.unwrap();
        assert!(deleted == 1 && lost.is_valid(), "nothing has told it");
        let listens = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) \
                       WHERE locktype = 'advisory' AND application_name = 'faults_lost_grant'";
        until("it listens", async || user.query_one(listens, &[]).await.unwrap().get::<_, i64>(0) > 0).await;
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'faults_lost_grant'";
        user.query_one(end, &[]).await.unwrap();
        assert_eq!(timeout(PATIENCE, lost.lost()).await.unwrap(), LostReason::StoreCleared);
        assert!(kept.is_valid() && kept.verify().await.unwrap());
    });
}

/// As behind a firewall that forgot them. Those that are opened anew reach the server.
#[test]
fn a_holder_outlives_connections_that_lead_nowhere() {
    on_server("faults_nowhere", |place| async move {
        let (far, proxy) = behind_proxy(&place);
        let (store, lease) = (far.store().await, Duration::from_secs(8));
        let leases = LeaseManager::builder(store.clone(), TokioExecutor::new()).lease(lease).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        // For a moment the store has much to do.
        proxy.delay(Way::ToServer, Duration::from_millis(100));
        let others = ["a", "b", "c", "d"].into_iter().zip(1..);
        futures::future::join_all(others.map(|(key, session)| ask_for(key, &store, session))).await;
        proxy.delay(Way::ToServer, Duration::ZERO);
        proxy.strand();
        for _ in 0..200 {
            tokio::time::sleep(lease / 100).await;
            assert!(guard.is_valid(), "the store was reached all the time");
        }
    });
}

/// Some requests wait for the server, and the others for the connections that these have.
#[test]
fn a_server_that_stopped_answering_is_not_taken_for_a_fence() {
    on_server("faults_frozen", |place| async move {
        drop(place.store().await);
        let (far, proxy) = behind_proxy(&place);
        let store = far.builder().connect().await.unwrap();
        ask(&store, 1).await.unwrap();
        proxy.fall_silent();
        let keys = ["a", "b", "c", "d", "e"];
        let asked = keys.into_iter().zip(2..).map(|(key, session)| ask_within(LIMIT, key, &store, session));
        let asked = futures::future::join_all(asked);
        let said: Vec<_> = asked.await.into_iter().map(|asked| asked.unwrap_err().to_string()).collect();
        let starved: Vec<_> = said.iter().filter(|said| said.contains("became free")).collect();
        assert!(!starved.is_empty(), "{said:?}");
        let has_both = |said: &&String| said.contains("the server does not answer") && said.contains("fenced");
        assert!(starved.iter().all(has_both), "{said:?}");
    });
}
