//! Contexts of several processes over one store: each process has a hub of signals of its own.

use std::{sync::Arc, time::Duration};

use leasehold::{
    AcquireError, LeaseManager,
    executor::{Executor, SimExecutor},
    signal::{LocalSignals, Signals},
    store::Reach,
};

use crate::support::shelf::{Habit, Shelf};

const LEASE: Duration = Duration::from_secs(20);

/// A context in a process of its own, with the signals that it was given.
fn process(world: &SimExecutor, shelf: &Arc<Shelf>, signals: impl Signals) -> LeaseManager {
    LeaseManager::builder(shelf.open(Habit::Locks), world.context()).lease(LEASE).signals(signals).build().unwrap()
}

/// The signals of a process: the hub of another name stands for that of another process.
fn hub(process: &str) -> LocalSignals {
    LocalSignals::new(&Reach::Named(process.into()))
}

/// The beacon of a holder never stands in another process, and that says nothing about its life.
#[test]
fn a_living_holder_of_another_process_is_not_evicted() {
    let (world, shelf) = (SimExecutor::new(1), Arc::default());
    let (one, other) = (process(&world, &shelf, hub("one")), process(&world, &shelf, hub("other")));
    world.block_on(async {
        let held = one.lock("k").acquire().await.unwrap();
        let second = other.lock("k").timeout(LEASE * 3).acquire().await;
        assert!(matches!(second, Err(AcquireError::Timeout { .. })), "{second:?}");
        assert!(held.is_valid());
    });
}

/// Signals for a store of this process are of no use as proof about a store that others share.
#[test]
fn signals_of_one_process_raise_no_beacon_for_a_store_that_others_share() {
    let (world, shelf) = (SimExecutor::new(2), Arc::default());
    let private = |number| LocalSignals::new(&Reach::Process(u64::MAX - number));
    let (one, other) = (process(&world, &shelf, private(1)), process(&world, &shelf, private(2)));
    world.block_on(async {
        let held = one.lock("k").acquire().await.unwrap();
        let sessions = shelf.sessions();
        assert!(sessions.len() == 1 && sessions[0].contains("\"beacon\":0"), "{sessions:?}");
        let second = other.lock("k").timeout(LEASE * 3).acquire().await;
        assert!(matches!(second, Err(AcquireError::Timeout { .. })), "{second:?}");
        assert!(held.is_valid());
    });
}

/// Within one process the messages of its managers go on, so that a hand-off needs no heartbeat.
#[test]
fn managers_of_one_process_still_hear_each_other() {
    let (world, shelf) = (SimExecutor::new(3), Arc::default());
    let (one, other) = (process(&world, &shelf, hub("both")), process(&world, &shelf, hub("both")));
    world.block_on(async {
        let held = one.lock("k").acquire().await.unwrap();
        let mut next = Box::pin(other.lock("k").acquire());
        assert!(futures::poll!(next.as_mut()).is_pending());
        world.pass(Duration::from_millis(10)).await;
        let start = world.now().monotonic;
        held.release().await.unwrap();
        assert!(next.await.unwrap().is_valid());
        assert!(world.now().monotonic.since(start) < 10, "a hand-off is told at once");
    });
}
