//! A store that applies one attempt without an answer, and then refuses whatever is not a heartbeat alone.

use std::fmt;

use leasehold::{
    AcquireError, Mode,
    machine::{Applied, StoreClock},
};

use crate::support::{
    judged::{
        Judged,
        Verdict::{self, Locked, Refused, RefusedForGood},
    },
    world::{World, everywhere, ms, secs},
};

/// What an error of the store says of the request.
fn applied<T: fmt::Debug>(told: Result<T, AcquireError>) -> Applied {
    match told {
        Err(AcquireError::Store(error)) => error.applied,
        other => panic!("the store fails: {other:?}"),
    }
}

const THEN: [Verdict; 3] = [Refused, RefusedForGood, Locked];

/// Heartbeats succeed meanwhile. They tell nothing of the attempt.
#[test]
fn an_error_does_not_deny_an_attempt_that_went_unanswered_before_a_heartbeat() {
    for then in THEN {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let _held = leases.lock("held").acquire().await.unwrap();
            store.answers_no_more(then);
            let told = world.within(secs(600), leases.lock("k").acquire()).await.unwrap();
            assert!(!other.leases.status("k").await.unwrap().holders.is_empty(), "it was applied");
            assert_eq!(applied(told), Applied::Unknown, "{then:?}");
        });
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let _held = leases.lock("held").acquire().await.unwrap();
            let both = [("a", Mode::Exclusive), ("b", Mode::Exclusive)];
            store.answers_no_more(then);
            let told = world.within(secs(600), leases.lock_all(both).acquire()).await.unwrap();
            assert!(!other.leases.status("a").await.unwrap().holders.is_empty(), "it was applied");
            assert_eq!(applied(told), Applied::Unknown, "several, {then:?}");
        });
    }
}

#[test]
fn an_error_does_not_deny_a_theft_that_went_unanswered() {
    for then in THEN {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let victim = other.leases.lock("k").acquire().await.unwrap();
            let _held = leases.lock("held").acquire().await.unwrap();
            store.answers_no_more(then);
            let told = world.within(secs(600), leases.lock("k").steal()).await.unwrap();
            assert!(!victim.verify().await.unwrap_or(false), "it was robbed");
            assert_eq!(applied(told), Applied::Unknown, "{then:?}");
        });
    }
}

#[test]
fn an_error_does_not_deny_an_upgrade_that_went_unanswered() {
    for then in [Refused, Locked] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let guard = leases.lock("k").shared().acquire().await.unwrap();
            store.answers_no_more(then);
            let told = world.within(secs(600), guard.upgrade()).await.unwrap();
            assert_eq!(other.leases.status("k").await.unwrap().holders[0].mode, Mode::Exclusive);
            assert_eq!(applied(told), Applied::Unknown, "{then:?}");
        });
    }
}

#[test]
fn an_error_does_not_deny_a_release_that_went_unanswered() {
    for then in THEN {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let _held = leases.lock("held").acquire().await.unwrap();
            let guard = leases.lock("k").acquire().await.unwrap();
            store.answers_no_more(then);
            let told = world.within(secs(600), guard.release()).await.unwrap();
            assert!(other.leases.status("k").await.unwrap().holders.is_empty(), "it was released");
            assert_eq!(told.expect_err("the store fails").applied, Applied::Unknown, "{then:?}");
        });
    }
}

/// The withdrawal ends the lease: the parts cannot be resumed again.
#[test]
fn an_error_does_not_deny_that_parts_were_resumed() {
    for then in [Refused, Locked] {
        everywhere(async |world| {
            let (leases, store) = Judged::over(world);
            let other = world.tab();
            let _held = leases.lock("held").acquire().await.unwrap();
            let parts = other.leases.lock("k").acquire().await.unwrap().into_parts();
            world.sim.pass(ms(1_000)).await;
            store.answers_no_more(then);
            let told = world.within(secs(600), leases.resume(parts)).await.unwrap();
            assert_eq!(applied(told), Applied::Unknown, "{then:?}");
        });
    }
}

/// Its place stands, and the holder's release may grant it.
#[test]
fn an_error_does_not_deny_the_place_of_a_waiter() {
    everywhere(async |world| {
        let holder = world.dark_tab();
        let (leases, store) = Judged::over(world);
        let guard = holder.leases.lock("k").acquire().await.unwrap();
        let mut waits = Box::pin(leases.lock("k").acquire());
        assert!(world.within(secs(3), &mut waits).await.is_none());
        store.judge(|_| Refused);
        let told = world.within(secs(120), waits).await.unwrap();
        assert_eq!(applied(told), Applied::Unknown);
        drop(guard);
    });
}

/// The store fails once, and then refuses everything for good, so the session is lost and the request asks anew.
#[test]
fn an_error_does_not_deny_the_place_of_a_waiter_whose_session_is_lost() {
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        for seed in 0..20 {
            let world = World::with_clock(seed, clock);
            world.run(async {
                let holder = world.dark_tab();
                let (leases, store) = Judged::over(&world);
                let guard = holder.leases.lock("k").acquire().await.unwrap();
                let mut waits = Box::pin(leases.lock("k").acquire());
                assert!(world.within(secs(3), &mut waits).await.is_none());
                let mut was_asked = false;
                store.judge(move |_| if core::mem::replace(&mut was_asked, true) { RefusedForGood } else { Refused });
                let told = world.within(secs(120), waits).await.expect("it is told");
                guard.release().await.unwrap();
                let holders = holder.leases.status("k").await.unwrap().holders;
                assert!(
                    applied(told) == Applied::Unknown || holders.is_empty(),
                    "seed {seed}: it is granted the lease"
                );
            });
        }
    }
}
