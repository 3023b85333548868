//! What crosses an upgrade or a downgrade.

use futures::future::poll_immediate;
use leasehold::{LostReason, Mode, ReleaseOutcome, store::Fault};

use crate::support::{
    world::{HEARTBEAT, ms, secs},
    yard::yard,
};

#[test]
fn an_exclusive_request_does_not_join_a_downgraded_lease() {
    yard(async |yard| {
        let (one, two) = (yard.slow(1), yard.slow(1));
        let first = one.lock("k").share_in_process().acquire().await.unwrap();
        first.downgrade().await.unwrap();
        let _reader = two.lock("k").shared().acquire().await.unwrap();
        let second = one.lock("k").share_in_process().try_acquire().await.unwrap();
        assert!(second.is_none(), "exclusive while another context shares");
    });
}

#[test]
fn a_downgrade_takes_nothing_from_those_who_hold_too() {
    yard(async |yard| {
        let (one, two) = (yard.slow(1), yard.slow(1));
        let first = one.lock("k").share_in_process().acquire().await.unwrap();
        let second = one.lock("k").share_in_process().acquire().await.unwrap();
        first.downgrade().await.unwrap();
        assert_eq!((first.mode(), second.mode()), (Mode::Shared, Mode::Exclusive));
        let reader = two.lock("k").shared().try_acquire().await.unwrap();
        assert!(reader.is_none() || !second.is_valid(), "shared while the second guard holds exclusively");
        drop(second);
        yard.sim.pass(ms(500)).await;
        assert!(two.lock("k").shared().try_acquire().await.unwrap().is_some(), "all who are left share");
        assert!(first.is_valid());
    });
}

#[test]
fn a_lease_that_is_being_downgraded_is_not_handed_on_exclusively() {
    yard(async |yard| {
        let (one, two) = (yard.slow(100), yard.slow(1));
        let first = one.lock("k").acquire().await.unwrap();
        assert!(poll_immediate(first.downgrade()).await.is_none());
        let waits = one.lock("k").acquire();
        drop(first);
        let second = waits.await.unwrap();
        yard.sim.pass(ms(500)).await;
        let reader = two.lock("k").shared().try_acquire().await.unwrap();
        assert!(reader.is_none() || !second.is_valid(), "both hold");
    });
}

#[test]
fn an_upgrade_after_a_dropped_downgrade_is_a_real_one() {
    yard(async |yard| {
        let (one, two) = (yard.slow(100), yard.slow(1));
        let guard = one.lock("k").acquire().await.unwrap();
        assert!(poll_immediate(guard.downgrade()).await.is_none());
        guard.upgrade().await.unwrap();
        yard.sim.pass(ms(500)).await;
        let reader = two.lock("k").shared().try_acquire().await.unwrap();
        assert!(reader.is_none() || guard.mode() == Mode::Shared, "both hold");
    });
}

#[test]
fn a_dropped_downgrade_shows_in_the_mode() {
    yard(async |yard| {
        let one = yard.slow(100);
        let guard = one.lock("k").acquire().await.unwrap();
        assert!(poll_immediate(guard.downgrade()).await.is_none());
        yard.sim.pass(ms(500)).await;
        assert_eq!(one.status("k").await.unwrap().holders[0].mode, Mode::Shared);
        assert_eq!(guard.mode(), Mode::Shared);
    });
}

#[test]
fn a_twin_that_shares_does_not_swallow_an_upgrade() {
    yard(async |yard| {
        let (one, two) = (yard.named("w"), yard.named("w"));
        let first = one.lock("k").shared().acquire().await.unwrap();
        let second = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(second.upgrade());
        let early = yard.within(secs(30), &mut upgrade).await;
        assert!(second.is_valid() || yard.within(ms(1), second.lost()).await.is_some(), "neither valid nor lost");
        drop(first);
        assert!(early.is_some() || yard.within(secs(30), upgrade).await.is_some(), "never answered");
    });
}

#[test]
fn a_guard_that_goes_while_it_is_upgraded_takes_its_lease_along() {
    yard(async |yard| {
        let (one, two) = (yard.slow_and_deaf(50), yard.deaf());
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let other = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(400), &mut upgrade).await.is_none());
        // The store upgrades now, and nobody hears.
        other.release().await.unwrap();
        yard.sim.pass(ms(200)).await;
        drop(upgrade);
        drop(guard);
        let next = one.lock("k").shared().acquire().await.unwrap();
        for _ in 0..20 {
            yard.sim.pass(ms(50)).await;
            let writer = two.lock("k").try_acquire().await.unwrap();
            assert!(writer.is_none() || !next.is_valid(), "both hold");
        }
    });
}

#[test]
fn an_upgrade_whose_signal_was_lost_does_not_lose_the_guard() {
    yard(async |yard| {
        let (one, two) = (yard.deaf(), yard.deaf());
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let other = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(100), &mut upgrade).await.is_none());
        other.release().await.unwrap();
        two.close().await;
        assert_eq!(yard.within(secs(30), upgrade).await, Some(Ok(())));
        assert!(guard.is_valid() && guard.mode() == Mode::Exclusive);
    });
}

#[test]
fn a_question_during_an_upgrade_does_not_lose_the_guard() {
    yard(async |yard| {
        let (one, two) = (yard.deaf(), yard.deaf());
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let other = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(100), &mut upgrade).await.is_none());
        other.release().await.unwrap();
        two.close().await;
        assert_eq!(guard.verify().await, Ok(true));
        assert_eq!(yard.within(secs(30), upgrade).await, Some(Ok(())));
        assert!(guard.is_valid() && guard.mode() == Mode::Exclusive);
    });
}

#[test]
fn an_upgrade_without_an_answer_leaves_no_guard_without_a_lease() {
    yard(async |yard| {
        let ((one, store), two) = (yard.faulty(), yard.slow(1));
        let guard = one.lock("k").shared().acquire().await.unwrap();
        store.fail_always(Some(Fault::LoseReply));
        assert!(guard.upgrade().await.is_err(), "it waits for the answer for ever");
        store.heal();
        for _ in 0..40 {
            yard.sim.pass(ms(100)).await;
            let writer = two.lock("k").try_acquire().await.unwrap();
            assert!(writer.is_none() || !guard.is_valid(), "both hold");
        }
        yard.sim.pass(secs(10)).await;
        assert!(guard.is_valid(), "it goes on sharing");
        assert!(two.lock("k").shared().try_acquire().await.unwrap().is_some());
    });
}

#[test]
fn an_upgrade_dropped_in_the_moment_of_its_success_leaves_the_guard_sharing() {
    yard(async |yard| {
        let (one, two) = (yard.slow(10), yard.slow(1));
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(poll_immediate(&mut upgrade).await.is_none());
        yard.sim.pass(ms(500)).await;
        // Answered, but not polled again.
        drop(upgrade);
        yard.sim.pass(ms(500)).await;
        assert_eq!(guard.mode(), Mode::Shared);
        assert!(two.lock("k").shared().try_acquire().await.unwrap().is_some());
    });
}

#[test]
fn a_release_during_a_granted_upgrade_is_no_loss() {
    yard(async |yard| {
        let (one, two) = (yard.slow_and_deaf(50), yard.deaf());
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let other = two.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(400), &mut upgrade).await.is_none());
        other.release().await.unwrap();
        yard.sim.pass(ms(200)).await;
        drop(upgrade);
        assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
        yard.sim.pass(ms(500)).await;
        assert!(two.lock("k").try_acquire().await.unwrap().is_some());
    });
}

/// The upgrade is granted and stolen before its answer comes, and a signal tells of the theft before that.
#[test]
fn an_upgrade_that_was_stolen_before_it_was_answered_is_not_believed() {
    yard(async |yard| {
        let (one, two) = (yard.slow(1_000), yard.slow(0));
        let guard = one.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(yard.within(ms(1_500), &mut upgrade).await.is_none());
        let thief = two.lock("k").steal().await.unwrap();
        let upgraded = yard.within(secs(30), upgrade).await;
        yard.sim.pass(HEARTBEAT * 2).await;
        assert!(thief.is_valid() && !guard.is_valid(), "both hold: {upgraded:?}");
        assert_eq!(yard.within(secs(1), guard.lost()).await, Some(LostReason::Stolen));
    });
}

/// The answer to a downgrade comes after the store upgraded the lease again.
#[test]
fn a_late_downgrade_does_not_lose_the_lease_that_was_upgraded_since() {
    yard(async |yard| {
        let (one, store) = yard.faulty();
        let guard = one.lock("k").acquire().await.unwrap();
        store.inject(Fault::LoseReply);
        assert!(guard.downgrade().await.is_err());
        store.inject(Fault::LoseReply);
        let upgrade = guard.upgrade();
        let lost = yard.within(secs(10), upgrade).await;
        assert_eq!((lost, guard.is_valid()), (Some(Ok(())), true));
    });
}
