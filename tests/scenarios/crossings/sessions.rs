//! What crosses the opening or the end of a session, or a lease that leaves it.

use std::sync::atomic::Ordering;

use leasehold::{LeaseManager, store::Fault};

use crate::support::{
    doubles::Deaf,
    world::{HEARTBEAT, LEASE, ms, secs},
    yard::{MOST_ALARMS, with_a_twin, yard},
};

#[test]
fn parts_are_resumed_once() {
    yard(async |yard| {
        let leases = yard.slow(1);
        let parts = leases.lock("k").acquire().await.unwrap().into_parts();
        let first = leases.resume(parts.clone()).await.unwrap();
        let again = leases.resume(parts).await;
        assert!(again.is_err() || !first.is_valid(), "two guards of one lease");
    });
}

#[test]
fn old_parts_of_a_lease_that_was_taken_apart_again_are_void() {
    yard(async |yard| {
        let leases = yard.slow(1);
        let parts = leases.lock("k").acquire().await.unwrap().into_parts();
        let first = leases.resume(parts.clone()).await.unwrap();
        let token = first.token();
        let _new = first.into_parts();
        let again = leases.resume(parts).await;
        assert!(again.is_err() || again.unwrap().token() > token, "the same token twice");
    });
}

#[test]
fn a_twin_that_renewed_right_before_it_died_is_dead() {
    with_a_twin(async |yard, one, executor, store| {
        let guard = one.lock("k").acquire().await.unwrap();
        let two = yard.named("w");
        let mut waits = Box::pin(two.lock("k").acquire());
        assert!(yard.within(ms(100), &mut waits).await.is_none());
        assert_eq!(guard.verify().await, Ok(true));
        // It dies: nothing of it is left.
        store.fail_always(Some(Fault::Stall));
        drop((guard, one));
        executor.kill();
        let granted = yard.within(secs(60), waits).await.expect("it waits for ever");
        assert!(granted.is_ok(), "{granted:?}");
    });
}

/// The first opening is answered after its time limit, while the second one is on its way.
#[test]
fn a_session_that_is_opened_too_late_is_ended_without_haste() {
    yard(async |yard| {
        let (leases, alarms) = yard.slow_and_counted(3_000);
        drop(yard.within(secs(30), leases.lock("k").acquire()).await);
        let alarms = alarms.load(Ordering::Relaxed);
        assert!(alarms < MOST_ALARMS, "it woke itself {alarms} times");
    });
}

/// The move to a session of its own is not answered, and the lease is taken over before it is tried again.
#[test]
fn a_lease_that_was_taken_over_here_is_not_moved_away_by_a_late_attempt() {
    yard(async |yard| {
        let ((one, store), two) = (yard.faulty(), yard.deaf());
        let guard = one.lock("k").acquire().await.unwrap();
        store.inject(Fault::LoseReply);
        let parts = guard.into_parts();
        let again = one.resume(parts).await.unwrap();
        for _ in 0..60 {
            yard.sim.pass(secs(1)).await;
            assert!(two.lock("k").try_acquire().await.unwrap().is_none() || !again.is_valid(), "both hold");
        }
        assert!(again.is_valid(), "nobody took it");
    });
}

/// A dead session stands ahead at two keys, was seen last at one of them, and nobody waits there any more.
#[test]
fn a_silent_session_is_ended_wherever_it_stands_ahead() {
    for left_ms in (20_000..25_000).step_by(250) {
        yard(async |yard| {
            let frozen = yard.sim.context();
            let builder = LeaseManager::builder(yard.shared.clone(), frozen.clone()).signals(Deaf);
            let dead = builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap();
            let _held = (dead.lock("a").acquire().await.unwrap(), dead.lock("b").acquire().await.unwrap());
            frozen.freeze();
            let (living, alarms) = yard.slow_and_counted(1_000);
            let mut first = Box::pin(living.lock("a").acquire());
            assert!(yard.within(ms(100), &mut first).await.is_none());
            let mut second = Box::pin(living.lock("b").acquire());
            assert!(yard.within(ms(left_ms), &mut second).await.is_none());
            drop(second);
            assert!(yard.within(secs(15), first).await.is_some(), "the dead keep it");
            let alarms = alarms.load(Ordering::Relaxed);
            assert!(alarms < MOST_ALARMS, "it woke itself {alarms} times");
        });
    }
}

/// A signal says that a request was granted whose session was not confirmed, and never will be.
#[test]
fn a_grant_of_an_opening_that_was_never_answered_is_asked_for_again() {
    yard(async |yard| {
        let (one, (two, store)) = (yard.slow(0), yard.faulty());
        let first = one.lock("k").acquire().await.unwrap();
        store.inject(Fault::Silence);
        let mut second = Box::pin(two.lock("k").acquire());
        assert!(yard.within(ms(500), &mut second).await.is_none());
        first.release().await.unwrap();
        assert!(yard.within(LEASE * 2, second).await.is_some(), "it waits for ever");
    });
}

/// Nothing is released for longer than anybody may be silent, and the session goes on all the same.
#[test]
fn a_release_goes_on_as_long_as_its_session_does() {
    yard(async |yard| {
        let ((one, store), two) = (yard.faulty(), yard.deaf());
        let (first, second) = (one.lock("a").acquire().await.unwrap(), one.lock("b").acquire().await.unwrap());
        store.fail_always(Some(Fault::Refuse));
        drop(first);
        yard.sim.pass(LEASE * 2).await;
        store.heal();
        yard.sim.pass(HEARTBEAT).await;
        assert!(second.is_valid(), "nobody ended its session");
        assert!(yard.within(LEASE * 2, two.lock("a").acquire()).await.is_some(), "nobody holds it, and nobody gets it");
    });
}

/// A request is dropped while its session is being opened, and the session goes on for another one.
#[test]
fn a_request_that_is_dropped_during_the_opening_leaves_nothing() {
    yard(async |yard| {
        let (one, two) = (yard.slow(1_000), yard.slow(1));
        let mut first = Box::pin(one.lock("a").acquire());
        assert!(yard.within(ms(500), &mut first).await.is_none());
        drop(first);
        let second = one.lock("b").acquire().await.unwrap();
        assert!(yard.within(LEASE * 3, two.lock("a").acquire()).await.is_some(), "nobody holds it, and nobody gets it");
        assert!(second.is_valid());
    });
}
