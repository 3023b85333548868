//! Servers far away, and callers that do not wait for them.

use std::{sync::Arc, time::Duration};

use leasehold::store::Store;
use tokio::time::timeout;

use crate::{
    faults::through_a_proxy,
    inputs::{ask, look, now},
    proxy::Way,
    shared,
    until::until,
};

/// A connection that stood idle is checked first. To open another one takes several round trips, and so longer than the time limit.
#[tokio::test]
async fn a_server_that_becomes_distant_is_not_given_up() {
    let Some(server) = shared() else { return };
    let (proxy, store) = through_a_proxy(server, "distant").await;
    proxy.delay(Way::ToServer, Duration::from_millis(1_400));
    for number in 2..4 {
        tokio::time::sleep(Duration::from_millis(2_100)).await;
        let answer = store.transact(ask(number), now(), Duration::from_secs(5)).await;
        answer.unwrap_or_else(|error| panic!("transaction {number}: {error}"));
    }
}

/// One of four callers is cancelled, or has a limit shorter than a round trip. To connect anew would take several round trips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_costs_nobody_the_connection_to_a_distant_server() {
    let Some(server) = shared() else { return };
    for is_cancelled in [true, false] {
        let (proxy, store) = through_a_proxy(server, &format!("goes {is_cancelled}")).await;
        proxy.delay(Way::ToServer, Duration::from_millis(1_400));
        let store = Arc::new(store);
        for round in 0..2 {
            tokio::time::sleep(Duration::from_millis(2_100)).await;
            let goes = Arc::clone(&store);
            let goes = tokio::spawn(async move {
                let limit = Duration::from_secs(if is_cancelled { 5 } else { 1 });
                let asked = goes.transact(look(100 + round * 100), now(), limit);
                timeout(Duration::from_millis(if is_cancelled { 700 } else { 5_000 }), asked)
                    .await
                    .is_ok_and(|said| said.is_ok())
            });
            let others = (1..4).map(|number| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    store.transact(look(100 + number + round * 100), now(), Duration::from_secs(5)).await.map(drop)
                })
            });
            for answer in futures::future::join_all(others).await {
                answer.unwrap().unwrap();
            }
            assert!(!goes.await.unwrap(), "it has gone");
        }
    }
}

/// After a cut, one caller opens the connection, and the others wait for it. Opening it takes longer than the others would wait
/// for a stalled task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_open_one_connection_to_a_distant_server() {
    let Some(server) = shared() else { return };
    let (proxy, store) = through_a_proxy(server, "reopens").await;
    proxy.delay(Way::ToServer, Duration::from_millis(400));
    proxy.delay(Way::ToClient, Duration::from_millis(400));
    let store = Arc::new(store);
    for round in 0..2 {
        proxy.cut();
        // By then, the connection is checked before it is used.
        tokio::time::sleep(Duration::from_millis(2_100)).await;
        let callers = (0..20).map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50) * number).await;
                store
                    .transact(look(200 + u128::from(number) + round * 100), now(), Duration::from_secs(8))
                    .await
                    .map(drop)
            })
        });
        for answer in futures::future::join_all(callers).await {
            answer.unwrap().unwrap();
        }
    }
}

/// A caller that gives up before the answer says nothing about the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_early_do_not_keep_a_dead_connection() {
    let Some(server) = shared() else { return };
    let (proxy, store) = through_a_proxy(server, "gives up").await;
    store.transact(look(300), now(), Duration::from_secs(5)).await.unwrap();
    proxy.strand();
    let mut tries = 0;
    until("somebody opens another connection", async || {
        tries += 1;
        let asked = store.transact(look(301), now(), Duration::from_secs(5));
        let answered = timeout(Duration::from_millis(500), asked).await.is_ok_and(|said| said.is_ok());
        tokio::time::sleep(Duration::from_millis(300)).await;
        answered
    })
    .await;
    assert!(tries <= 10, "{tries} tries");
}
