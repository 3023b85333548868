//! Stores of which one transaction takes only a limited number of rows, as with etcd.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::{FutureExt, join, join_all};
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, LostReason, Mode, StoreError,
    executor::SimExecutor,
    machine::{Batch, Now, Reply, StoreClock, StoreErrorKind},
    store::{MemoryStore, Reach, Store},
};

use crate::support::world::{HEARTBEAT, LEASE, World, everywhere, ms};

/// How many rows it takes.
const ROWS: usize = 40;

/// Refuses a larger transaction for good, as a server does that was started with a limit.
#[derive(Clone, Debug)]
struct Narrow {
    inner: MemoryStore,
    rows: usize,
    asked: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    forgotten: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Store for Narrow {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.asked.fetch_add(1, Relaxed);
        if batch.keys().len() + batch.ends.len() > self.rows {
            self.refused.fetch_add(1, Relaxed);
            return Err(StoreError::permanent(StoreErrorKind::TooLarge, "so many rows are too many"));
        }
        self.forgotten.fetch_add(batch.forgets.len(), Relaxed);
        self.inner.transact(batch, now, limit).await
    }

    async fn close(&self) {}

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

fn narrow(world: &World, rows: usize) -> Narrow {
    Narrow {
        inner: world.shared.clone(),
        rows,
        asked: Arc::default(),
        refused: Arc::default(),
        forgotten: Arc::default(),
    }
}

fn manager(store: &Narrow, executor: SimExecutor) -> LeaseManager {
    LeaseManager::builder(store.clone(), executor).lease(LEASE).heartbeat(HEARTBEAT).beacon(false).build().unwrap()
}

async fn acquire_at_once(leases: &LeaseManager, keys: &[String]) -> Vec<LeaseGuard> {
    let asked = join_all(keys.iter().map(|key| leases.lock(key).acquire())).await;
    asked.into_iter().map(Result::unwrap).collect()
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key {number}")).collect()
}

#[test]
fn what_is_asked_for_at_one_moment_is_divided_until_the_store_takes_it() {
    everywhere(async |world| {
        let store = narrow(world, ROWS);
        let (one, two) = (manager(&store, world.sim.context()), manager(&store, world.sim.context()));
        let keys = keys(300);
        let guards = acquire_at_once(&one, &keys).await;
        // Others wait for all of them meanwhile: releases hand them over.
        let ending = async {
            world.sim.pass(LEASE * 3).await;
            assert!(guards.iter().all(LeaseGuard::is_valid), "heartbeats go on");
            one.close().await;
            world.now()
        };
        let (heirs, closed_at) = join(acquire_at_once(&two, &keys), ending).await;
        assert!(world.ms_since(closed_at) < 100, "each is handed over");
        assert!(heirs.iter().all(LeaseGuard::is_valid));
        assert!(guards.iter().all(|guard| guard.lost().now_or_never() == Some(LostReason::Closed)));
        let (asked, refused) = (store.asked.load(Relaxed), store.refused.load(Relaxed));
        assert!(refused * 4 < asked, "{refused} of {asked} transactions were too large");
    });
}

/// Those that a context no longer remembers are forgotten in the store, too, by transactions that others need.
#[test]
fn what_goes_along_is_divided_too() {
    async fn forgotten(world: &World, rows: usize) -> usize {
        let store = narrow(world, rows);
        let leases = manager(&store, world.sim.context());
        for round in 0..3 {
            let keys: Vec<_> = keys(200).iter().map(|key| format!("{round} {key}")).collect();
            for guard in acquire_at_once(&leases, &keys).await {
                guard.release().await.unwrap();
            }
        }
        let _guard = leases.lock("after all").acquire().await.unwrap();
        world.sim.pass(LEASE * 10).await;
        store.forgotten.load(Relaxed)
    }
    everywhere(async |world| {
        let (all, divided) = (forgotten(world, usize::MAX).await, forgotten(world, ROWS).await);
        // A context remembers 256 keys itself.
        assert_eq!((all, divided), (3 * 200 + 1 - 256, all), "so many records are forgotten");
    });
}

/// A context that always has more to send than fits must not let the records of its earlier keys pile up in the store.
#[test]
fn records_are_forgotten_although_every_transaction_is_full() {
    everywhere(async |world| {
        let store = narrow(world, 12);
        let leases = &LeaseManager::builder(store.clone(), world.sim.context()).linger(ms(0)).build().unwrap();
        let worker = |number: usize| async move {
            for round in 0..20 {
                leases.lock(&format!("{number} {round}")).acquire().await.unwrap().release().await.unwrap();
            }
        };
        join_all((0..100).map(worker)).await;
        let forgotten = store.forgotten.load(Relaxed);
        assert!(forgotten >= 1_500, "{forgotten} of 2,000 keys, of which a context remembers 256");
    });
}

#[test]
fn what_cannot_be_divided_is_refused_and_costs_nobody_else_a_lease() {
    everywhere(async |world| {
        let store = narrow(world, ROWS);
        let leases = manager(&store, world.sim.context());
        let guard = leases.lock("mine").acquire().await.unwrap();
        let keys = keys(ROWS + 1);
        let all = leases.lock_all(keys.iter().map(|key| (key.as_str(), Mode::Exclusive)));
        let refused = all.try_acquire().await;
        assert!(matches!(refused, Err(AcquireError::Store(_))), "{refused:?}");
        world.sim.pass(ms(100)).await;
        assert!(guard.is_valid() && guard.verify().await.unwrap());
        assert!(leases.lock("another").try_acquire().await.unwrap().is_some());
    });
}

/// Otherwise heartbeats would wait for one transaction of all of them, and a server may not have that many locks.
#[test]
fn thousands_of_leases_are_asked_for_and_given_back_in_many_transactions() {
    everywhere(async |world| {
        let (tab, keys) = (world.tab(), keys(5_000));
        let guards = join_all(keys.iter().map(|key| tab.leases.lock(key).acquire())).await;
        drop(guards.into_iter().map(Result::unwrap).collect::<Vec<_>>());
        tab.leases.close().await;
        let largest = tab.store.take_seen().iter().map(|batch| batch.operations.len()).max();
        assert!(largest <= Some(1_024), "{largest:?} operations");
        let other = world.tab();
        let free = join_all(keys.iter().map(|key| other.leases.lock(key).try_acquire())).await;
        assert!(free.iter().all(|granted| granted.as_ref().is_ok_and(Option::is_some)));
    });
}
