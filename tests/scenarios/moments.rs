//! More places where two things happen at once, or one at a bad moment.

use std::{future::Future, panic::AssertUnwindSafe, pin::pin, time::Duration};

use futures::{FutureExt, future::poll_immediate};
use leasehold::{
    AcquireError, LeaseManager, LostReason, Mode,
    executor::SimExecutor,
    machine::StoreClock,
    store::{Fault, FaultyStore, MemoryStore},
};

use crate::support::{
    doubles::{Deaf, SlowStore},
    world::{HEARTBEAT, LEASE, everywhere, ms, secs},
};

fn sim() -> (SimExecutor, MemoryStore) {
    (SimExecutor::new(1), MemoryStore::with_clock(StoreClock::Observed))
}

fn slow(sim: &SimExecutor, shared: &MemoryStore, each_way: u64) -> LeaseManager {
    let store = SlowStore::new(shared.clone(), sim.clone(), each_way..=each_way);
    LeaseManager::builder(store, sim.context()).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
}

async fn within<T>(sim: &SimExecutor, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future.fuse());
    let mut limit = pin!(sim.pass(limit).fuse());
    futures::select_biased! { value = future => Some(value), () = limit => None }
}

#[test]
fn a_thief_that_gave_up_before_it_was_heard_robs_nobody() {
    let (sim, shared) = sim();
    sim.block_on(async {
        let (one, two) = (slow(&sim, &shared, 1), slow(&sim, &shared, 100));
        let held = one.lock("k").acquire().await.unwrap();
        let mut waits = Box::pin(two.lock("k").acquire());
        assert!(within(&sim, ms(1), &mut waits).await.is_none());
        // While the first request is in flight.
        let mut steals = Box::pin(two.lock("k").steal());
        assert!(poll_immediate(&mut steals).await.is_none());
        drop(steals);
        assert!(within(&sim, secs(30), &mut waits).await.is_none(), "the waiter got it by a theft");
        assert!(held.is_valid());
    });
}

#[test]
fn parts_outlive_the_context_that_made_them() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let parts = one.leases.lock("k").acquire().await.unwrap().into_parts();
        let mut waits = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut waits).await.is_none());
        one.leases.close().await;
        drop(one);
        let early = world.within(secs(1), &mut waits).await.is_some();
        let resumed = three.leases.resume(parts).await;
        assert!(resumed.is_ok() && !early, "{early} {resumed:?}");
    });
}

#[test]
fn what_a_panicking_store_interrupted_is_done_by_the_next() {
    let (sim, shared) = sim();
    sim.block_on(async {
        let store = FaultyStore::new(shared.clone());
        let one = LeaseManager::builder(store.clone(), sim.context())
            .signals(Deaf)
            .lease(LEASE)
            .heartbeat(HEARTBEAT)
            .build()
            .unwrap();
        store.inject(Fault::Panic);
        let broken = AssertUnwindSafe(one.lock("k").acquire()).catch_unwind().await;
        assert!(broken.is_err());
        // No other input comes but the one.
        let next = within(&sim, secs(60), one.lock("k").acquire()).await;
        assert!(next.is_some_and(|next| next.is_ok()), "the alarm was lost");
    });
}

#[test]
fn more_tokens_are_no_change_of_hands() {
    let (sim, shared) = sim();
    sim.block_on(async {
        let one = slow(&sim, &shared, 50);
        let mut guard = one.lock("k").acquire().await.unwrap();
        for _ in 0..63 {
            drop(guard);
            guard = one.lock("k").acquire().await.unwrap();
        }
        drop(guard);
        let query = one.lock("k").acquire();
        let guard = query.await.unwrap();
        let reader = one.lock("k").share_in_process();
        drop(reader);
        guard.release().await.unwrap();
        sim.pass(secs(1)).await;
        let again = one.lock("k").acquire().await.unwrap();
        assert!(!again.changed_hands());
    });
}

#[test]
fn an_upgrade_that_was_told_is_valid() {
    let (sim, shared) = sim();
    sim.block_on(async {
        let (one, two) = (slow(&sim, &shared, 1), slow(&sim, &shared, 1));
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let other = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(within(&sim, ms(100), &mut upgrade).await.is_none());
        sim.set_wall_clock(3_600_000);
        drop(other);
        upgrade.await.unwrap();
        assert!(guard.is_valid());
    });
}

#[test]
fn linger_then_all_keys_by_another() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        drop(one.leases.lock("a").acquire().await.unwrap());
        drop(one.leases.lock("b").shared().acquire().await.unwrap());
        let all = two.leases.lock_all([("a", Mode::Exclusive), ("b", Mode::Exclusive)]).try_acquire().await.unwrap();
        assert!(all.is_some());
    });
}

#[test]
fn what_a_suspended_or_closed_context_is_asked_ends() {
    let (sim, shared) = sim();
    sim.block_on(async {
        let one = slow(&sim, &shared, 50);
        let guard = one.lock("k").acquire().await.unwrap();
        let verify = guard.verify();
        let mut verify = Box::pin(verify);
        assert!(poll_immediate(&mut verify).await.is_none());
        let release = guard.clone().release();
        one.suspend();
        assert!(within(&sim, secs(1), &mut verify).await.is_some());
        assert!(within(&sim, secs(1), release).await.is_some());
        assert!(within(&sim, secs(1), guard.release()).await.is_some());
        let tried = one.lock("k").try_acquire().await;
        assert_eq!(
            tried.unwrap_err(),
            AcquireError::Lost { key: "k".into(), reason: LostReason::Suspended },
            "a try does not wait for the wake"
        );
        one.wake();
        let guard = one.lock("k").acquire().await.unwrap();
        let mut extend = Box::pin(guard.extend(secs(5)));
        assert!(poll_immediate(&mut extend).await.is_none());
        one.close().await;
        assert!(within(&sim, secs(1), &mut extend).await.is_some());
    });
}
