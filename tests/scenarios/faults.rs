//! A store that fails: X9, lost answers, silence.

use std::{panic::AssertUnwindSafe, pin::pin};

use futures::{FutureExt, future::join_all};
use leasehold::store::Fault;
use leasehold::{AcquireError, Mode, ReleaseOutcome};

use crate::support::world::{HEARTBEAT, LEASE, World, everywhere, ms, secs};

/// X9: transient errors in renewal are survived within the lease.
#[test]
fn x9_transient_errors_lose_nothing() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        for _ in 0..10 {
            one.store.inject(Fault::Refuse);
            one.store.inject(Fault::LoseReply);
            world.sim.pass(HEARTBEAT).await;
            assert!(guard.is_valid());
        }
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
    });
}

#[test]
fn a_request_whose_answer_is_lost_is_granted_once() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        one.store.inject(Fault::LoseReply);
        let guard = one.leases.lock("k").acquire().await.unwrap();
        assert!(guard.is_valid());
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some(), "nothing is left behind");
    });
}

#[test]
fn a_request_that_may_wait_outlives_lost_answers() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        for _ in 0..3 {
            one.store.inject(Fault::LoseReply);
        }
        let guard = one.leases.lock("k").acquire().await.unwrap();
        assert!(guard.is_valid());
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        let status = two.leases.status("k").await.unwrap();
        assert_eq!((status.holders.len(), status.queue.len()), (1, 0), "of the earlier attempts nothing is left");
        guard.release().await.unwrap();
        world.sim.pass(secs(1)).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

#[test]
fn a_try_that_is_given_up_after_lost_answers_leaves_nothing() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        for _ in 0..3 {
            one.store.inject(Fault::LoseReply);
        }
        let failed = one.leases.lock("k").try_acquire().await;
        assert!(matches!(failed, Err(AcquireError::Store(_))), "{failed:?}");
        world.sim.pass(secs(1)).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some(), "it was withdrawn in the background");
    });
}

/// L1: a store that is down is told, after a few attempts.
#[test]
fn a_dead_store_is_told() {
    everywhere(async |world| {
        let tab = world.tab();
        tab.store.fail_always(Some(Fault::Fail));
        let failed = tab.leases.lock("k").try_acquire().await.unwrap_err();
        assert!(failed.to_string().contains("failed on demand"), "{failed}");
        tab.store.fail_always(Some(Fault::Refuse));
        assert!(matches!(tab.leases.lock("k").acquire().await, Err(AcquireError::Store(_))));
        tab.store.fail_always(None);
        assert!(tab.leases.lock("k").acquire().await.unwrap().is_valid());
    });
}

/// A server that is restarted refuses connections meanwhile.
#[test]
fn who_said_for_how_long_waits_out_a_store_that_refuses() {
    everywhere(async |world| limits_outlast(world, Fault::Refuse).await);
}

/// While the store fails, requests with a time limit wait, and all others are told.
async fn limits_outlast(world: &World, fault: Fault) {
    let (one, two) = (world.tab(), world.tab());
    let held = one.leases.lock("k").acquire().await.unwrap();
    let mut queued = pin!(two.leases.lock("k").timeout(secs(300)).acquire());
    assert!(world.within(secs(1), &mut queued).await.is_none());
    two.store.fail_always(Some(fault));
    let mut late = pin!(two.leases.lock("free").timeout(secs(300)).acquire());
    let mut both =
        pin!(two.leases.lock_all([("a", Mode::Exclusive), ("b", Mode::Exclusive)]).timeout(secs(300)).acquire());
    let mut unlimited = ["k", "free"].map(|key| Box::pin(two.leases.lock(key).acquire()));
    let [behind, beside] = &mut unlimited;
    let mut tries = pin!(two.leases.lock("c").try_acquire());
    let (told, told_too, tried, queues, asks, asks_for_both) = futures::join!(
        world.within(secs(100), behind),
        world.within(secs(100), beside),
        world.within(secs(100), &mut tries),
        world.within(secs(100), &mut queued),
        world.within(secs(100), &mut late),
        world.within(secs(100), &mut both),
    );
    assert!(queues.is_none() && asks.is_none(), "{queues:?}, {asks:?}");
    assert!(asks_for_both.is_none(), "{asks_for_both:?}");
    for told in [told, told_too] {
        assert!(matches!(told, Some(Err(AcquireError::Store(_)))), "who did not say is told: {told:?}");
    }
    assert!(matches!(tried, Some(Err(AcquireError::Store(_)))), "who only tries is told: {tried:?}");
    two.store.fail_always(None);
    held.release().await.unwrap();
    for wait in [queued, late] {
        assert!(world.within(secs(30), wait).await.expect("the store answers").unwrap().is_valid());
    }
    assert!(world.within(secs(30), both).await.expect("the store answers").unwrap().is_valid());
}

/// It is no time-out: nobody is in the way.
#[test]
fn who_waited_for_a_store_that_refuses_is_told_so_in_time() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        two.store.fail_always(Some(Fault::Refuse));
        let since = world.now();
        let told = two.leases.lock("k").timeout(secs(20)).acquire().await.unwrap_err();
        assert_eq!(world.ms_since(since), 20_000, "a time limit holds");
        assert!(matches!(&told, AcquireError::Store(error) if error.message.contains("refused on demand")), "{told:?}");
        two.store.fail_always(None);
        let told = two.leases.lock("k").timeout(secs(1)).acquire().await.unwrap_err();
        assert!(matches!(told, AcquireError::Timeout { held_elsewhere: true, .. }), "{told:?}");
    });
}

#[test]
fn a_silent_store_is_given_up_in_time_and_its_late_grant_returned() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        one.store.fail_always(Some(Fault::Silence));
        let refused = one.leases.lock("k").timeout(secs(2)).acquire().await;
        assert!(matches!(refused.unwrap_err(), AcquireError::Timeout { .. }));
        one.store.fail_always(None);
        // The withdrawal waits for the time limit of the operation in flight.
        world.sim.pass(HEARTBEAT + ms(500)).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

/// A tab that hangs with a transaction open makes the store silent for all others.
#[test]
fn who_said_for_how_long_waits_out_a_silent_store() {
    everywhere(async |world| limits_outlast(world, Fault::Silence).await);
}

#[test]
fn who_said_for_how_long_waits_behind_a_guard_in_doubt() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        let mut limited = pin!(tab.leases.lock("k").timeout(secs(300)).acquire());
        let mut unlimited = pin!(tab.leases.lock("k").acquire());
        tab.store.fail_always(Some(Fault::Silence));
        let (waits, told) =
            futures::join!(world.within(secs(100), &mut limited), world.within(secs(100), &mut unlimited));
        assert!(waits.is_none(), "{waits:?}");
        assert!(matches!(told, Some(Err(AcquireError::Store(_)))), "who did not say is told: {told:?}");
        tab.store.fail_always(None);
        world.sim.pass(secs(30)).await;
        drop(guard);
        assert!(world.within(secs(30), limited).await.expect("the store answers").unwrap().is_valid());
    });
}

#[test]
fn a_release_survives_a_dropped_future_and_a_failing_store() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        for _ in 0..4 {
            one.store.inject(Fault::Refuse);
        }
        drop(guard.release());
        drop(guard);
        world.sim.pass(secs(3)).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

/// Its session is believed for a while; after that nobody may believe in what it is granted.
#[test]
fn a_waiter_whose_store_died_is_told() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let wait = two.leases.lock("k").acquire();
        let events = async {
            world.sim.pass(secs(1)).await;
            two.store.fail_always(Some(Fault::Refuse));
            world.sim.pass(secs(30)).await;
            held.release().await.unwrap();
        };
        let (told, ()) = futures::join!(world.within(secs(600), wait), events);
        assert!(matches!(told, Some(Err(AcquireError::Store(_)))), "{told:?}");
    });
}

#[test]
fn a_release_whose_answer_is_lost_was_a_release() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        tab.store.inject(Fault::LoseReply);
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    });
}

#[test]
fn a_release_is_tried_again_though_manager_and_guard_are_gone() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.store.inject(Fault::Refuse);
        drop(guard);
        drop(one);
        world.sim.pass(secs(3)).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some(), "the release was forgotten");
    });
}

#[test]
fn who_awaits_a_release_hears_of_it_though_manager_and_guard_are_gone() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        tab.store.inject(Fault::Refuse);
        let released = guard.release();
        drop(guard);
        drop(tab);
        let released = world.within(secs(3), released).await;
        assert_eq!(released.expect("it ends").unwrap(), ReleaseOutcome::Released);
    });
}

/// Retries do not become a storm.
#[test]
fn a_failing_store_is_not_hammered() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let _guard = one.leases.lock("k").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Refuse));
        two.store.take_seen();
        let mut waiting = std::pin::pin!(two.leases.lock("k").acquire());
        assert!(world.within(secs(1), &mut waiting).await.is_none());
        two.store.fail_always(Some(Fault::Refuse));
        one.store.take_seen();
        world.sim.pass(LEASE).await;
        let (renewals, asks) = (one.store.take_seen().len(), two.store.take_seen().len());
        assert!(renewals < 40 && asks < 40, "{renewals} and {asks} transactions in a lease");
    });
}

#[test]
fn a_failing_store_is_not_hammered_for_many_keys_either() {
    everywhere(async |world| {
        let tab = world.dark_tab();
        let names: Vec<_> = (0..200).map(|key| format!("k{key}")).collect();
        let _guards = join_all(names.iter().map(|name| tab.leases.lock(name).acquire())).await;
        tab.store.fail_always(Some(Fault::Refuse));
        tab.store.take_seen();
        world.sim.pass(LEASE).await;
        let seen = tab.store.take_seen().len();
        assert!(seen < 60, "{seen} transactions in a lease");
    });
}

/// Every request is asked once and withdrawn once, with a few retries: what was given up is not asked again.
#[test]
fn requests_that_were_given_up_do_not_hammer_a_failing_store() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        two.store.fail_always(Some(Fault::LoseReply));
        two.store.take_seen();
        let asks = 1_000;
        for _ in 0..asks {
            assert!(world.within(ms(20), two.leases.lock("k").acquire()).await.is_none());
        }
        let seen = two.store.take_seen();
        assert!(seen.len() < 3 * asks, "{} transactions for {asks} requests", seen.len());
    });
}

/// A bug of a store harms the call that met it, not all that come after.
#[test]
fn a_store_that_panics_once_does_not_wedge_the_context() {
    everywhere(async |world| {
        let tab = world.tab();
        let kept = tab.leases.lock("kept").acquire().await.unwrap();
        tab.store.inject(Fault::Panic);
        let broken = AssertUnwindSafe(tab.leases.lock("broken").acquire()).catch_unwind().await;
        assert!(broken.is_err(), "the panic is not hidden");
        let granted = world.within(LEASE, tab.leases.lock("other").acquire()).await;
        assert!(granted.expect("the context goes on").unwrap().is_valid());
        world.sim.pass(LEASE * 2).await;
        assert!(kept.is_valid(), "and renews what it holds");
    });
}

/// The store panics in the transaction of a request. After that transaction, the driver was to set a new alarm. No later request would.
#[test]
fn a_store_that_panics_once_stops_no_timer() {
    everywhere(async |world| {
        // The time limit of the request comes before all other alarms.
        let tab = world.tab().with(|builder| builder.store_timeout(ms(300)));
        let other = world.tab();
        let kept = tab.leases.lock("kept").acquire().await.unwrap();
        let _taken = other.leases.lock("taken").acquire().await.unwrap();
        let mut waits = pin!(tab.leases.lock("taken").timeout(LEASE).acquire());
        assert!(world.within(secs(1), &mut waits).await.is_none());
        tab.store.inject(Fault::Panic);
        let broken = AssertUnwindSafe(tab.leases.lock("broken").acquire()).catch_unwind().await;
        assert!(broken.is_err(), "the panic is not hidden");
        let told = world.within(LEASE * 2, waits).await;
        assert!(matches!(told, Some(Err(AcquireError::Timeout { .. }))), "a time limit holds: {told:?}");
        assert!(kept.is_valid(), "and what is held is renewed");
    });
}

/// `steal` failed, and said so. A plain request of the same context, which waits, must not rob the holder instead.
#[test]
fn a_theft_that_failed_robs_nobody_later() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        // Nothing of this is ever applied.
        two.store.fail_always(Some(Fault::Stall));
        let mut waits = pin!(two.leases.lock("k").timeout(secs(300)).acquire());
        let mut steals = pin!(two.leases.lock("k").steal());
        let (told, waiting) = futures::join!(world.within(secs(60), &mut steals), world.within(secs(60), &mut waits));
        assert!(matches!(told, Some(Err(AcquireError::Store(_)))), "{told:?}");
        assert!(waiting.is_none(), "{waiting:?}");
        two.store.heal();
        let granted = world.within(secs(30), &mut waits).await;
        assert!(held.is_valid(), "robbed, although nobody steals: {granted:?}");
        assert!(granted.is_none(), "{granted:?}");
    });
}

/// An upgrade behind somebody who shares, and a store that falls silent: a request without a time limit is told after a lease,
/// an upgrade waits for ever.
#[test]
fn an_upgrade_that_waits_is_told_that_its_store_is_silent() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let _reader = one.leases.lock("k").shared().acquire().await.unwrap();
        let guard = two.leases.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = pin!(guard.upgrade());
        assert!(world.within(secs(1), &mut upgrade).await.is_none());
        two.store.fail_always(Some(Fault::Stall));
        let told = world.within(secs(600), &mut upgrade).await;
        assert!(told.is_some(), "ten minutes");
    });
}
