//! How long a lease is held, by whom first, and who takes it by force.

use std::{cell::RefCell, time::Duration};

use futures::future::{FutureExt, join, join_all};
use leasehold::{AcquireError, InvalidOptions, LeaseGuard, LeaseState, LostReason, ReleaseOutcome, store::Fault};

use crate::support::{
    doubles::Deaf,
    world::{HEARTBEAT, LEASE, Tab, everywhere, ms, secs},
};

async fn hold(tab: &Tab) -> LeaseGuard {
    tab.leases.lock("k").acquire().await.unwrap()
}

#[test]
fn without_renewal_a_lease_runs_out_by_itself() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").auto_renew(false).acquire().await.unwrap();
        let mut wait = Box::pin(hold(&two));
        let start = world.now();
        assert!(world.within(LEASE * 8 / 10, &mut wait).await.is_none());
        assert!(guard.is_valid());
        assert_eq!(guard.lost().await, LostReason::Expired);
        let lost_ms = world.ms_since(start);
        assert!(!guard.is_valid() && lost_ms <= 18_000, "within the lease and its margin: {lost_ms}");
        assert!(world.within(ms(1), wait).await.is_some(), "what ran out is given back at once");
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost);
    });
}

#[test]
fn without_renewal_the_user_keeps_it_by_hand() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").auto_renew(false).acquire().await.unwrap();
        for _ in 0..3 {
            world.sim.pass(LEASE / 2).await;
            assert!(guard.verify().await.unwrap());
        }
        guard.extend(secs(120)).await.unwrap();
        one.store.take_seen();
        world.sim.pass(secs(119)).await;
        assert!(guard.is_valid(), "the heartbeats of the session keep a lease of two minutes");
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        assert_eq!(world.within(LEASE, guard.lost()).await, Some(LostReason::Expired));
    });
}

#[test]
fn a_hold_ends_after_its_time() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").max_hold(secs(30)).acquire().await.unwrap();
        assert!(guard.remaining() < LEASE);
        let mut wait = Box::pin(hold(&two));
        assert!(world.within(ms(29_999), &mut wait).await.is_none());
        assert!(guard.is_valid() && guard.remaining() <= ms(1));
        assert!(world.within(ms(2), wait).await.is_some(), "given back in time, with nobody's help");
        assert_eq!(guard.lost().now_or_never(), Some(LostReason::Expired));
        assert!(!guard.is_valid());
    });
}

/// A guard would be of no use, and a second request might come too late as well.
#[test]
fn a_hold_that_is_over_before_its_task_runs_is_told_as_a_loss() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = hold(&one).await;
        let mut wait = Box::pin(two.leases.lock("k").max_hold(secs(1)).acquire());
        assert!(world.within(secs(1), &mut wait).await.is_none());
        guard.release().await.unwrap();
        world.sim.pass(secs(2)).await;
        assert_eq!(wait.await.unwrap_err(), AcquireError::Lost { key: "k".into(), reason: LostReason::Expired });
    });
}

/// Of those who share in a context, only the one whose time is over goes.
#[test]
fn the_end_of_one_hold_is_not_the_end_of_the_others() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let short = one.leases.lock("k").shared().max_hold(secs(5)).acquire().await.unwrap();
        let long = one.leases.lock("k").shared().acquire().await.unwrap();
        assert_eq!(world.within(secs(6), short.lost()).await, Some(LostReason::Expired));
        world.sim.pass(LEASE).await;
        assert!(long.is_valid() && !short.is_valid());
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
    });
}

/// "At least this long from now", whatever the heartbeats in between renew.
#[test]
fn an_extension_outlasts_many_heartbeats() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = hold(&one).await;
        guard.extend(secs(100)).await.unwrap();
        for passed in (0..50).step_by(5) {
            assert!(guard.remaining() >= secs(100 - passed), "after {passed} s: {:?}", guard.remaining());
            world.sim.pass(HEARTBEAT).await;
        }
        one.store.fail_always(Some(Fault::Stall));
        let mut wait = Box::pin(hold(&two));
        assert!(world.within(secs(49), &mut wait).await.is_none(), "others see how long it lasts");
        assert!(guard.is_valid());
        assert!(world.within(secs(60), wait).await.is_some());
        assert!(!guard.is_valid());
    });
}

#[test]
fn what_is_lost_or_absurd_is_not_extended() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = hold(&one).await;
        for (span, span_ms) in [(ms(0), 0), (secs(86_401), 86_401_000)] {
            let refused = guard.extend(span).await.unwrap_err();
            assert_eq!(refused, AcquireError::InvalidOptions(InvalidOptions::Span { option: "extend", span_ms }));
        }
        one.store.inject(Fault::Refuse);
        assert!(matches!(guard.extend(secs(60)).await, Err(AcquireError::Store(_))));
        let thief = two.leases.lock("k").steal().await.unwrap();
        assert_eq!(
            guard.extend(secs(60)).await,
            Err(AcquireError::Lost { key: "k".into(), reason: LostReason::Stolen })
        );
        thief.release().await.unwrap();
        assert_eq!(thief.extend(secs(60)).await, Err(AcquireError::Released { key: "k".into() }));
    });
}

#[test]
fn all_watchers_see_doubt_and_its_end_and_the_loss() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = hold(&one).await;
        let mut watches: Vec<_> = (0..20).map(|_| guard.watch()).collect();
        let all = |state: LeaseState| move |seen: Vec<LeaseState>| seen.iter().all(|seen| *seen == state);
        assert!(join_all(watches.iter_mut().map(|watch| watch.changed())).now_or_never().is_none());
        one.store.fail_always(Some(Fault::Refuse));
        let doubted = world.within(LEASE, join_all(watches.iter_mut().map(|watch| watch.changed()))).await;
        assert!(doubted.is_some_and(all(LeaseState::Suspect)) && !guard.is_valid());
        one.store.heal();
        let certain = world.within(HEARTBEAT, join_all(watches.iter_mut().map(|watch| watch.changed()))).await;
        assert!(certain.is_some_and(all(LeaseState::Held)) && guard.is_valid());
        let _thief = two.leases.lock("k").steal().await.unwrap();
        drop(guard);
        let lost = world.within(ms(1), join_all(watches.iter_mut().map(|watch| watch.changed()))).await;
        assert!(lost.is_some_and(all(LeaseState::Lost(LostReason::Stolen))), "a watch outlives the guard");
        assert!(world.within(LEASE, watches[0].changed()).await.is_none(), "that was the end");
    });
}

/// A request with a higher priority raises the place of its whole context.
#[test]
fn a_later_and_more_urgent_request_raises_its_contexts_place() {
    everywhere(async |world| {
        let tabs: Vec<_> = (0..3).map(|_| world.tab()).collect();
        let held = hold(&tabs[0]).await;
        let order = RefCell::new(Vec::new());
        let waits = [(1, 0, "first"), (2, 0, "second"), (2, 5, "urgent"), (1, -5, "last")];
        let waits = waits.into_iter().enumerate().map(|(turn, (tab, priority, name))| {
            let (leases, order) = (&tabs[tab].leases, &order);
            async move {
                world.sim.pass(ms(turn as u64 + 1)).await;
                let guard = leases.lock("k").priority(priority).acquire().await.unwrap();
                order.borrow_mut().push(name);
                // Longer than a tenure: then it is the other context's turn.
                world.sim.pass(ms(60)).await;
                guard.release().await.unwrap();
            }
        });
        let release = async {
            world.sim.pass(secs(1)).await;
            let status = tabs[0].leases.status("k").await.unwrap();
            let queue: Vec<_> = status.queue.iter().map(|waiter| (waiter.holder, waiter.priority)).collect();
            assert_eq!(queue, [(tabs[2].leases.session(), 5), (tabs[1].leases.session(), 0)]);
            held.release().await.unwrap();
        };
        join(join_all(waits), release).await;
        assert_eq!(order.into_inner(), ["urgent", "first", "second", "last"]);
    });
}

/// A thief goes before everybody who waits, and who was robbed is told at once.
#[test]
fn who_is_robbed_is_told_at_once_and_does_not_take_it_back() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let robbed = hold(&one).await;
        let mut wait = Box::pin(hold(&three));
        assert!(world.within(secs(1), &mut wait).await.is_none());
        let start = world.now();
        let thief = two.leases.lock("k").steal().await.unwrap();
        assert_eq!(robbed.lost().now_or_never(), Some(LostReason::Stolen));
        assert_eq!(world.ms_since(start), 0);
        assert!(!robbed.is_valid() && thief.is_valid() && thief.token() > robbed.token());
        assert!(world.within(LEASE * 5, &mut wait).await.is_none(), "the thief holds like any other");
        assert!(thief.is_valid() && !robbed.is_valid());
        assert_eq!(robbed.release().await.unwrap(), ReleaseOutcome::Lost);
        thief.release().await.unwrap();
        assert!(world.within(ms(1), wait).await.is_some());
    });
}

#[test]
fn who_is_robbed_and_cannot_hear_learns_of_it_at_its_next_renewal() {
    everywhere(async |world| {
        let one = world.tab().with(|builder| builder.signals(Deaf));
        let two = world.tab();
        let robbed = hold(&one).await;
        let thief = two.leases.lock("k").steal().await.unwrap();
        assert!(robbed.is_valid(), "it believes until it asks: that is what tokens are for");
        assert_eq!(world.within(HEARTBEAT + ms(1), robbed.lost()).await, Some(LostReason::Stolen));
        world.sim.pass(LEASE * 5).await;
        assert!(thief.is_valid() && !robbed.is_valid());
        assert!(one.leases.lock("k").try_acquire().await.unwrap().is_none());
    });
}

/// All readers are robbed, of the thief's own context too.
#[test]
fn a_theft_robs_all_who_share_and_the_thiefs_own_context() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let read = async |tab: &Tab| tab.leases.lock("k").shared().acquire().await.unwrap();
        let readers = [read(&one).await, read(&one).await, read(&two).await];
        let thief = one.leases.lock("k").steal().await.unwrap();
        for reader in &readers {
            assert_eq!(reader.lost().now_or_never(), Some(LostReason::Stolen));
        }
        let second = one.leases.lock("k").steal().await.unwrap();
        assert_eq!(thief.lost().now_or_never(), Some(LostReason::Stolen));
        drop((readers, thief));
        world.sim.pass(LEASE).await;
        assert!(second.is_valid() && second.verify().await.unwrap());
    });
}

/// The place that an urgent request raised falls back with it.
#[test]
fn an_urgent_request_that_was_given_up_leaves_no_priority_behind() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let held = hold(&one).await;
        let (mut first, mut second) = (Box::pin(hold(&two)), Box::pin(hold(&three)));
        assert!(world.within(ms(1), &mut first).await.is_none());
        assert!(world.within(ms(1), &mut second).await.is_none());
        let urgent = || three.leases.lock("k").priority(5);
        assert!(world.within(ms(1), urgent().acquire()).await.is_none());
        assert!(matches!(urgent().timeout(ms(1)).acquire().await.unwrap_err(), AcquireError::Timeout { .. }));
        held.release().await.unwrap();
        assert!(world.within(ms(1), first).await.is_some(), "it came first");
    });
}

/// Two tasks of a context meet at the key, and one hands the lease to the other.
#[test]
fn a_heartbeat_asks_once_about_a_lease_however_often_it_was_handed_on() {
    for turns in [1, 100, 1_000] {
        everywhere(async |world| {
            let tab = world.tab().with(|builder| builder.linger(ms(0)));
            for _ in 0..turns {
                let first = tab.leases.lock("k").acquire().await.unwrap();
                let mut second = Box::pin(tab.leases.lock("k").acquire());
                assert!((&mut second).now_or_never().is_none());
                first.release().await.unwrap();
                second.await.unwrap().release().await.unwrap();
                world.sim.pass(ms(1)).await;
            }
            tab.store.take_seen();
            let _held = tab.leases.lock("k").acquire().await.unwrap();
            world.sim.pass(HEARTBEAT * 2).await;
            let operations = tab.store.take_seen().iter().map(|batch| batch.operations.len()).max();
            assert!(operations <= Some(2), "{operations:?} operations after {turns} turns");
        });
    }
}

/// The release is the first to notice the theft.
#[test]
fn a_release_that_finds_the_lease_stolen_says_so() {
    everywhere(async |world| {
        let one = world.tab().with(|builder| builder.signals(Deaf).linger(Duration::ZERO));
        let guard = hold(&one).await;
        let thief = world.tab().leases.lock("k").steal().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost);
        assert_eq!(guard.lost().now_or_never(), Some(LostReason::Stolen));
        assert_eq!(one.leases.stats().lost, 1);
        assert!(thief.is_valid());
    });
}

/// The first attempt to release it found that out, but the answer was lost.
#[test]
fn a_release_that_is_tried_again_says_that_the_lease_was_stolen() {
    everywhere(async |world| {
        let one = world.tab().with(|builder| builder.signals(Deaf).linger(Duration::ZERO));
        let guard = hold(&one).await;
        let _thief = world.tab().leases.lock("k").steal().await.unwrap();
        one.store.inject(Fault::LoseReply);
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost);
        assert_eq!(guard.lost().now_or_never(), Some(LostReason::Stolen));
    });
}

#[test]
fn a_release_during_an_upgrade_says_that_the_lease_was_stolen() {
    everywhere(async |world| {
        let one = world.tab().with(|builder| builder.signals(Deaf));
        let _other = world.tab().leases.lock("k").shared().acquire().await.unwrap();
        let guard = one.leases.lock("k").shared().acquire().await.unwrap();
        let mut upgrade = Box::pin(guard.upgrade());
        assert!(world.within(ms(10), &mut upgrade).await.is_none());
        let _thief = world.tab().leases.lock("k").steal().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost);
        assert_eq!(guard.lost().now_or_never(), Some(LostReason::Stolen));
    });
}

/// The heartbeat asks whether others wait for a lease that goes from task to task. That does not renew a lease that only its user renews.
#[test]
fn a_hand_over_renews_no_lease_that_is_not_renewed_by_itself() {
    everywhere(async |world| {
        let tab = world.tab();
        let first = tab.leases.lock("k").acquire().await.unwrap();
        let mut next = Box::pin(tab.leases.lock("k").auto_renew(false).acquire());
        assert!(world.within(secs(1), &mut next).await.is_none());
        first.release().await.unwrap();
        let guard = next.await.unwrap();
        assert_eq!(world.within(LEASE, guard.lost()).await, Some(LostReason::Expired));
    });
}
