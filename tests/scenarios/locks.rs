//! Taking turns: M4, S1 to S3, S6, X10, X17, X18.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use futures::future::join_all;
use leasehold::{AcquireError, ReleaseOutcome, executor::Executor};

use crate::support::world::{HEARTBEAT, LEASE, everywhere, ms, secs};

/// M4: `test_multiple_processes`.
#[test]
fn m4_one_holds_the_other_waits_and_obtains_after_the_release() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        let wait = async {
            let guard = two.leases.lock("k").acquire().await.unwrap();
            assert!(guard.token() > held.token());
            guard
        };
        let release = async {
            world.sim.pass(ms(100)).await;
            held.release().await.unwrap()
        };
        let (guard, released) = futures::join!(wait, release);
        assert_eq!(released, ReleaseOutcome::Released);
        let refused = one.leases.lock("k").timeout(ms(200)).acquire().await;
        assert!(matches!(refused.unwrap_err(), AcquireError::Timeout { .. }));
        assert!(guard.is_valid());
    });
}

/// S1: `test_acquire_contention`, between contexts and within one.
#[test]
fn s1_never_more_than_one_is_inside() {
    everywhere(async |world| {
        let tabs = [world.tab(), world.tab()];
        let (inside, turns) = (Cell::new(0), Cell::new(0));
        let workers = (0..6).map(|worker| {
            let leases = &tabs[worker % 2].leases;
            let (inside, turns) = (&inside, &turns);
            async move {
                for _ in 0..10 {
                    let guard = leases.lock("k").acquire().await.unwrap();
                    inside.set(inside.get() + 1);
                    assert_eq!(inside.get(), 1);
                    world.sim.pass(ms(3)).await;
                    assert!(guard.is_valid());
                    inside.set(inside.get() - 1);
                    turns.set(turns.get() + 1);
                }
            }
        });
        join_all(workers).await;
        assert_eq!(turns.get(), 60);
    });
}

/// S2: `test_simple_lock`.
#[test]
fn s2_taken_then_refused_then_released_then_taken() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let first = one.leases.lock("k").try_acquire().await.unwrap().unwrap();
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        assert!(one.leases.lock("k").try_acquire().await.unwrap().is_none(), "not within the context either");
        assert!(first.is_valid() && first.verify().await.unwrap());
        assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(!first.is_valid() && !first.verify().await.unwrap());
        let third = two.leases.lock("k").try_acquire().await.unwrap().unwrap();
        assert!(third.token() > first.token());
        assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released, "again is once");
        assert!(third.is_valid());
    });
}

/// S3: `test_maintain_lock`.
#[test]
fn s3_renewal_keeps_the_lease() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        for _ in 0..5 {
            world.sim.pass(LEASE).await;
            assert!(guard.is_valid());
            assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        }
        let renewals = one.store.take_beats();
        assert!((15..=24).contains(&renewals), "about one renewal a heartbeat: {renewals}");
    });
}

#[test]
fn one_transaction_renews_all_keys() {
    everywhere(async |world| {
        let tab = world.tab();
        let names: Vec<_> = (0..20).map(|key| format!("k{key}")).collect();
        let guards = join_all(names.iter().map(|name| tab.leases.lock(name).acquire())).await;
        tab.store.take_seen();
        world.sim.pass(HEARTBEAT * 10).await;
        let renewals = tab.store.take_beats();
        assert!((9..=13).contains(&renewals), "{renewals}");
        assert!(guards.iter().flatten().all(|guard| guard.is_valid()));
    });
}

/// X10: a cancelled acquire leaves no orphan, wherever it was dropped.
#[test]
fn x10_a_dropped_request_leaves_no_orphan() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        for polls in 0..4 {
            let held = one.leases.lock("k").acquire().await.unwrap();
            let mut request = Box::pin(two.leases.lock("k").acquire());
            for _ in 0..polls {
                poll_fn(|context| {
                    assert!(request.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                })
                .await;
                world.sim.pass(ms(1)).await;
            }
            if polls == 3 {
                // Granted, but nobody looked.
                held.release().await.unwrap();
            }
            drop(request);
            held.release().await.unwrap();
            // The other context keeps for a moment what nobody else wants.
            world.sim.pass(ms(101)).await;
            let status = one.leases.status("k").await.unwrap();
            assert!(status.holders.is_empty() && status.queue.is_empty(), "after {polls} polls: {status:?}");
        }
    });
}

/// X17: dropping the lock object, or the manager, releases nothing while a guard lives.
#[test]
fn x17_a_guard_outlives_what_made_it() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let request = one.leases.lock("k");
        let guard = request.acquire().await.unwrap();
        drop(one);
        world.sim.pass(LEASE * 3).await;
        assert!(guard.is_valid());
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        drop(guard);
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

/// X18: zero and less than a millisecond.
#[test]
fn x18_short_time_outs() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let zero = |tab: &crate::support::world::Tab| tab.leases.lock("k").timeout(ms(0)).acquire();
        let guard = zero(&one).await.unwrap();
        assert!(matches!(zero(&two).await.unwrap_err(), AcquireError::Timeout { .. }));
        for nanos in [1, 999_999] {
            let short = std::time::Duration::from_nanos(nanos);
            let before = world.sim.now().monotonic;
            let refused = two.leases.lock("k").timeout(short).acquire().await;
            assert!(matches!(refused.unwrap_err(), AcquireError::Timeout { .. }));
            assert!(world.sim.now().monotonic.since(before) <= 1, "it ends within a millisecond");
        }
        guard.release().await.unwrap();
        let short = std::time::Duration::from_nanos(1);
        assert!(two.leases.lock("k").timeout(short).acquire().await.is_ok(), "a free key is had at once");
    });
}

/// X4: a second wait that times out waits again.
#[test]
fn x4_every_time_out_is_its_own() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        for _ in 0..3 {
            let mut waited = pin!(two.leases.lock("k").timeout(secs(2)).acquire());
            assert!(world.within(ms(1_999), &mut waited).await.is_none(), "it waits to the end");
            assert!(matches!(waited.await.unwrap_err(), AcquireError::Timeout { .. }));
        }
    });
}
