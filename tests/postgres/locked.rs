//! Somebody's fenced transaction keeps records locked for longer than others' leases.

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};

use leasehold::{LeaseGuard, LeaseManager, executor::TokioExecutor, store::PostgresStore};
use tokio::{task::JoinSet, time::sleep};

use crate::server::{Place, on_server, until};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1_500);
/// Long enough for a holder that does not beat to be replaced.
const LOCKED: Duration = Duration::from_secs(5);

fn manager(store: PostgresStore, lease: Duration) -> LeaseManager {
    LeaseManager::builder(store, TokioExecutor::new()).lease(lease).build().unwrap()
}

/// For as long as the records stay locked the guard is valid, and somebody who waits for its key is not granted it.
async fn stays_valid(place: &Place, guard: &LeaseGuard, key: &str) {
    let rival = manager(place.store().await, LONG);
    let mut taking = pin!(rival.lock(key).acquire());
    let since = Instant::now();
    while since.elapsed() < LOCKED {
        assert!(guard.is_valid(), "in doubt after {:?}", since.elapsed());
        assert!(futures::poll!(taking.as_mut()).is_pending(), "taken from its holder after {:?}", since.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
}

/// Asks again and again, as a request without a time limit is refused after a lease.
async fn want(leases: LeaseManager, key: String) {
    while leases.lock(&key).acquire().await.is_err() {}
}

fn wanting(wants: impl Future<Output = ()> + Send + 'static) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(wants);
    tasks
}

/// The waiter asks while the record is locked, or looks at it with each heartbeat.
#[test]
fn who_waits_for_a_key_inside_of_a_fence_keeps_what_it_holds() {
    on_server("locked_waits", |place| async move {
        for queues_first in [false, true] {
            let [fenced, own] = [format!("fenced {queues_first}"), format!("own {queues_first}")];
            let (other, leases) = (manager(place.store().await, LONG), manager(place.store().await, SHORT));
            let mut user = place.client().await;
            let (fences, guard) =
                (other.lock(&fenced).acquire().await.unwrap(), leases.lock(&own).acquire().await.unwrap());
            let mut transaction = user.transaction().await.unwrap();
            let mut waiting = JoinSet::new();
            if queues_first {
                waiting = wanting(want(leases.clone(), fenced.clone()));
                let queued = async || other.status(&fenced).await.is_ok_and(|status| !status.queue.is_empty());
                until("it waits", queued).await;
            }
            drop(fences.fence(&mut transaction).await.unwrap());
            if !queues_first {
                waiting = wanting(want(leases.clone(), fenced));
            }
            stays_valid(&place, &guard, &own).await;
            waiting.abort_all();
        }
    });
}

/// More contexts wait for locked records than the pool that they share has connections.
#[test]
fn contexts_that_wait_leave_a_heartbeat_of_the_same_pool_its_connection() {
    on_server("locked_pool", |place| async move {
        let (other, shared) = (manager(place.store().await, LONG), place.store().await);
        let (mut user, mut fenced) = (place.client().await, Vec::new());
        let mut transaction = user.transaction().await.unwrap();
        for number in 0..6 {
            let guard = other.lock(&format!("fenced {number}")).acquire().await.unwrap();
            drop(guard.fence(&mut transaction).await.unwrap());
            fenced.push(guard);
        }
        let leases = manager(shared.clone(), SHORT);
        let guard = leases.lock("own").acquire().await.unwrap();
        let mut waiting = JoinSet::new();
        for number in 0..6 {
            waiting.spawn(want(manager(shared.clone(), LONG), format!("fenced {number}")));
        }
        stays_valid(&place, &guard, "own").await;
        waiting.abort_all();
    });
}

/// Two readers fence one transaction after another, and one of them is always open.
#[test]
fn fences_that_overlap_without_a_pause_keep_nobody_from_the_key() {
    on_server("locked_overlap", |place| async move {
        let (mut readers, mut users) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            readers.push(manager(place.store().await, LONG).lock("k").shared().acquire().await.unwrap());
            users.push(place.client().await);
        }
        let named = Place { url: format!("{}?application_name=locked_overlap", place.url), ..place.clone() };
        let late = manager(named.store().await, LONG);
        let mut asking = pin!(late.lock("k").shared().acquire());
        let [first, second] = &mut users[..] else { panic!("there are two") };
        let mut open = first.transaction().await.unwrap();
        drop(readers[0].fence(&mut open).await.unwrap());
        assert!(futures::poll!(asking.as_mut()).is_pending());
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'locked_overlap'";
        until("it waits for the record", async || {
            place.client().await.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) > 0
        })
        .await;
        let mut next = second.transaction().await.unwrap();
        let mut fencing = Box::pin(readers[1].fence(&mut next));
        let overlaps = tokio::time::timeout(Duration::from_millis(400), fencing.as_mut()).await;
        assert!(overlaps.is_err(), "a fence overtook who waits for the key");
        open.commit().await.unwrap();
        assert!(asking.await.unwrap().is_valid());
        drop(fencing.await.unwrap());
    });
}
