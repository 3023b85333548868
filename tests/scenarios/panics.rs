//! A store that panics in the midst of a request, and requests that end in other odd ways: afterwards no lease is held without a guard.

use std::{panic::AssertUnwindSafe, pin::pin};

use futures::FutureExt;
use leasehold::store::Fault;
use leasehold::{AcquireError, LeaseGuard, LeaseManager, Mode};

use crate::support::world::{HEARTBEAT, LEASE, World, everywhere, ms, secs};

/// The panic meets the transaction of a request for several keys; nobody ever gets a guard.
#[test]
fn several_keys_asked_for_when_the_store_panics_are_held_by_nobody() {
    everywhere(async |world| {
        let (tab, other) = (world.tab(), world.tab());
        let _kept = tab.leases.lock("kept").acquire().await.unwrap();
        tab.store.inject(Fault::Panic);
        let both = tab.leases.lock_all([("a", Mode::Exclusive), ("b", Mode::Exclusive)]);
        let broken = AssertUnwindSafe(both.acquire()).catch_unwind().await;
        assert!(broken.is_err());
        world.sim.pass(LEASE * 10).await;
        let status = other.leases.status("a").await.unwrap();
        let granted = other.leases.lock("a").timeout(LEASE * 2).acquire().await;
        assert!(granted.is_ok(), "a phantom holds it: {granted:?}, {status:?}");
    });
}

#[test]
fn several_keys_tried_when_the_store_panics_are_held_by_nobody() {
    everywhere(async |world| {
        let (tab, other) = (world.tab(), world.tab());
        tab.store.inject(Fault::Panic);
        let both = tab.leases.lock_all([("a", Mode::Exclusive), ("b", Mode::Exclusive)]);
        let broken = AssertUnwindSafe(both.try_acquire()).catch_unwind().await;
        assert!(broken.is_err());
        world.sim.pass(LEASE * 10).await;
        let granted = other.leases.lock("a").timeout(LEASE * 2).acquire().await;
        assert!(granted.is_ok(), "a phantom holds it: {granted:?}; events: {:?}", tab.leases.stats());
    });
}

/// The future of the upgrade is gone.
#[test]
fn an_upgrade_whose_store_panics_leaves_the_guard_shared() {
    everywhere(async |world| {
        let (tab, other) = (world.tab(), world.tab());
        let guard = tab.leases.lock("k").shared().acquire().await.unwrap();
        tab.store.inject(Fault::Panic);
        let broken = AssertUnwindSafe(guard.upgrade()).catch_unwind().await;
        assert!(broken.is_err());
        world.sim.pass(LEASE * 4).await;
        assert!(guard.is_valid());
        let reader = other.leases.lock("k").shared().timeout(LEASE).acquire().await;
        assert!(guard.mode() == Mode::Shared && reader.is_ok(), "{:?} {reader:?}", guard.mode());
    });
}

/// Told that it waits, and never that it waits no more.
#[test]
fn a_request_that_a_panic_ends_is_told_to_have_ended() {
    everywhere(async |world| {
        let tab = world.tab();
        let _own = tab.leases.lock("k").acquire().await.unwrap();
        let mut events = tab.leases.events();
        // The heartbeat is due as the request is made.
        tab.executor.freeze();
        world.sim.pass(HEARTBEAT + ms(1)).await;
        tab.store.inject(Fault::Panic);
        let broken = AssertUnwindSafe(tab.leases.lock("k").acquire()).catch_unwind().await;
        tab.executor.thaw();
        assert!(broken.is_err(), "not hit");
        world.sim.pass(LEASE * 2).await;
        tab.leases.close().now_or_never();
        world.sim.pass(LEASE * 2).await;
        let mut told = Vec::new();
        while let Some(Some(event)) = events.next().now_or_never() {
            told.push(event.kind.name());
        }
        let count = |name| told.iter().filter(|kind| **kind == name).count();
        assert_eq!(count("waiting"), count("withdrawn"), "{told:?}");
    });
}

#[test]
fn an_upgrade_that_fails_leaves_the_guard_shared() {
    everywhere(async |world| {
        let (tab, other) = (world.tab(), world.tab());
        let guard = tab.leases.lock("k").shared().acquire().await.unwrap();
        let sharer = other.leases.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(futures::poll!(upgrade.as_mut()).is_pending());
        world.sim.pass(ms(100)).await;
        sharer.release().await.unwrap();
        world.sim.pass(ms(200)).await;
        assert_eq!(guard.mode(), Mode::Exclusive, "granted, and nobody looked");
        tab.store.fail_always(Some(Fault::Refuse));
        world.sim.pass(LEASE).await;
        assert!(!guard.is_valid());
        let told = upgrade.await;
        assert!(told.is_err(), "{told:?}");
        tab.store.heal();
        world.sim.pass(HEARTBEAT * 2).await;
        if guard.is_valid() {
            let reader = other.leases.lock("k").shared().timeout(LEASE).acquire().await;
            assert!(guard.mode() == Mode::Shared && reader.is_ok(), "{told:?}, and yet {:?}: {reader:?}", guard.mode());
        }
    });
}

/// The first upgrade is dropped, and the second one requested before the store has said what became of the first. Then the store fails.
async fn an_upgrade_after_a_dropped_one(world: &World, fault: Fault) -> Result<(), AcquireError> {
    let (one, two) = (world.tab(), world.tab());
    let _reader = one.leases.lock("k").shared().acquire().await.unwrap();
    let guard = two.leases.lock("k").shared().acquire().await.unwrap();
    {
        let mut upgrade = pin!(guard.upgrade());
        assert!(world.within(secs(1), &mut upgrade).await.is_none());
        two.store.fail_always(Some(fault));
    }
    let mut upgrade = pin!(guard.upgrade());
    world.within(secs(600), &mut upgrade).await.expect("it waited for ten minutes")
}

#[test]
fn an_upgrade_after_a_dropped_one_is_told_that_its_store_is_silent() {
    everywhere(async |world| {
        let told = an_upgrade_after_a_dropped_one(world, Fault::Stall).await;
        assert!(told.is_err(), "{told:?}");
    });
}

#[test]
fn an_upgrade_after_a_dropped_one_is_told_that_its_store_refuses() {
    everywhere(async |world| {
        let told = an_upgrade_after_a_dropped_one(world, Fault::Refuse).await;
        assert!(told.is_err(), "{told:?}");
    });
}

/// One handle upgrades and is told so; the other one's upgrade, which brought it about, is dropped.
#[test]
fn who_was_told_of_an_upgrade_keeps_it() {
    everywhere(async |world| {
        let (tab, other) = (world.tab(), world.tab());
        let guard = tab.leases.lock("k").shared().acquire().await.unwrap();
        let sharer = other.leases.lock("k").shared().acquire().await.unwrap();
        let clone = guard.clone();
        let mut first = Box::pin(clone.upgrade());
        assert!(futures::poll!(first.as_mut()).is_pending());
        world.sim.pass(ms(100)).await;
        sharer.release().await.unwrap();
        world.sim.pass(ms(200)).await;
        guard.upgrade().await.unwrap();
        drop(first);
        world.sim.pass(ms(200)).await;
        assert_eq!(guard.mode(), Mode::Exclusive, "its `upgrade` said Ok, and nobody asked for a downgrade");
    });
}

/// A waker that calls into its manager: it drops another request, and the guard, and asks anew.
#[test]
fn a_waker_that_calls_into_the_manager_hangs_nobody() {
    use std::{
        future::Future,
        pin::Pin,
        sync::{Arc, Mutex},
        task::{Context, Wake, Waker},
    };
    type Asked = Pin<Box<dyn Future<Output = Result<LeaseGuard, AcquireError>> + Send>>;
    struct Calls {
        leases: LeaseManager,
        pending: Mutex<Vec<Asked>>,
    }
    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            let taken: Vec<_> = std::mem::take(&mut *self.pending.lock().unwrap());
            drop(taken);
            let leases = self.leases.clone();
            let mut again: Asked = Box::pin(async move { leases.lock("k").acquire().await });
            _ = again.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop(again);
            _ = self.leases.stats();
        }
    }
    everywhere(async |world| {
        let (tab, other) = (world.tab(), world.tab());
        let calls = Arc::new(Calls { leases: tab.leases.clone(), pending: Mutex::default() });
        let waker = Waker::from(calls.clone());
        for round in 0..4 {
            let held = if round % 2 == 0 { &tab } else { &other }.leases.lock("k").acquire().await.unwrap();
            for _ in 0..3 {
                let leases = tab.leases.clone();
                let mut asked: Asked = Box::pin(async move { leases.lock("k").acquire().await });
                assert!(asked.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                calls.pending.lock().unwrap().push(asked);
            }
            world.sim.pass(ms(200)).await;
            drop(held);
            world.sim.pass(secs(2)).await;
            calls.pending.lock().unwrap().clear();
        }
        assert!(other.leases.lock("k").timeout(secs(5)).acquire().await.is_ok());
    });
}

#[test]
fn a_guard_that_a_panic_drops_leaves_the_store_to_others() {
    everywhere(async |world| {
        let tab = world.tab().with(|builder| builder.linger(ms(0)));
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        tab.store.inject(Fault::Panic);
        let work = async move {
            let _guard = guard;
            panic!("the user's own");
        };
        assert!(AssertUnwindSafe(work).catch_unwind().await.is_err(), "a second panic would have ended the process");
        tab.store.heal();
        let other = world.tab();
        assert!(other.leases.lock("k").timeout(LEASE * 2).acquire().await.is_ok());
    });
}
