//! Loss is told: X2, X3, X12.

use std::{
    cell::Cell,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Wake, Waker},
};

use leasehold::store::Fault;
use leasehold::{AcquireError, LeaseGuard, LostReason, OnLoss, ReleaseOutcome, executor::Executor};

use crate::support::world::{HEARTBEAT, LEASE, everywhere, ms, secs};

struct Nothing;

impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

/// X2: the guard says that it is lost, and the fast path refuses.
#[test]
fn x2_a_lost_guard_says_so_and_no_guard_comes_of_it() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let lost = guard.lost();
        one.store.fail_always(Some(Fault::Refuse));
        let next = two.leases.lock("k").acquire().await.unwrap();
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        one.store.fail_always(None);
        assert_eq!(lost.await, LostReason::Expired);
        assert_eq!(guard.lost().await, LostReason::Expired, "told to every later call too");
        assert!(!guard.verify().await.unwrap());
        assert!(one.leases.lock("k").try_acquire().await.unwrap().is_none(), "the lost lease gives no guard");
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost);
        assert!(next.is_valid());
    });
}

/// A released lease cannot be lost any more, so it keeps no waker: otherwise a task that nobody wakes would live for ever.
#[test]
fn a_released_lease_keeps_no_waker_for_its_loss() {
    everywhere(async |world| {
        let tab = world.dark_tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        let (curious, mut lost) = (Arc::new(Nothing), Box::pin(guard.lost()));
        let waker = Waker::from(curious.clone());
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it was woken, and looks once more");
        drop(waker);
        assert_eq!(Arc::strong_count(&curious), 1);
    });
}

/// X3: what the loser does late cannot touch the successor, not even in the same context.
#[test]
fn x3_a_stale_release_or_renewal_touches_no_successor() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let stale = one.leases.lock("k").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Refuse));
        let next = two.leases.lock("k").acquire().await.unwrap();
        one.store.fail_always(None);
        assert_eq!(stale.release().await.unwrap(), ReleaseOutcome::Lost);
        assert!(next.verify().await.unwrap());
        next.release().await.unwrap();
        let again = one.leases.lock("k").acquire().await.unwrap();
        drop(stale);
        world.sim.pass(LEASE * 2).await;
        assert!(again.is_valid() && again.verify().await.unwrap(), "the same context's own successor");
        assert_eq!(again.release().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(again.release().await.unwrap(), ReleaseOutcome::Released);
    });
}

/// X12: a frozen holder learns of the loss before its code goes on.
#[test]
fn x12_a_frozen_holder_knows_before_it_acts() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.executor.freeze();
        let next = two.leases.lock("k").acquire().await.unwrap();
        world.sim.pass(secs(60)).await;
        // The very first thing that its code does, before any timer of its own ran.
        assert!(!guard.is_valid());
        one.executor.thaw();
        assert!(!guard.verify().await.unwrap());
        assert_eq!(guard.lost().await, LostReason::Expired);
        assert!(next.is_valid());
    });
}

/// A context that was blocked for less than its lease, with nobody after the lease, keeps it once it has asked.
#[test]
fn a_holder_in_doubt_asks_and_goes_on() {
    everywhere(async |world| {
        let tab = world.dark_tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        tab.executor.freeze();
        world.sim.pass(LEASE * 2).await;
        assert!(!guard.is_valid());
        tab.executor.thaw();
        world.sim.pass(ms(10)).await;
        assert!(guard.is_valid(), "nobody took it, so the late renewal was allowed");
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    });
}

/// P4: the guard stops being valid before another can be granted, whatever the order of events.
#[test]
fn belief_ends_before_another_begins() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Stall));
        let mut next = std::pin::pin!(two.leases.lock("k").acquire());
        loop {
            if let Some(next) = world.within(ms(50), &mut next).await {
                return assert!(!guard.is_valid() && next.unwrap().is_valid());
            }
        }
    });
}

/// Rule j.
#[test]
fn belief_in_a_lease_that_was_shortened_ends_before_another_begins() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let first = one.leases.lock("k").acquire().await.unwrap();
        first.extend(secs(3_600)).await.unwrap();
        drop(first);
        let second = one.leases.lock("k").acquire().await.unwrap();
        world.sim.pass(HEARTBEAT * 2).await;
        assert!(second.is_valid());
        one.store.fail_always(Some(Fault::Stall));
        let mut next = std::pin::pin!(two.leases.lock("k").acquire());
        loop {
            if let Some(next) = world.within(ms(50), &mut next).await {
                return assert!(!second.is_valid() && next.unwrap().is_valid());
            }
        }
    });
}

#[test]
fn who_looked_out_for_a_loss_and_went_away_is_forgotten() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        let wakers: Vec<_> = (0..100).map(|_| Arc::new(Nothing)).collect();
        for waker in &wakers {
            let mut lost = Box::pin(guard.lost());
            let waker = Waker::from(waker.clone());
            assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let kept = wakers.iter().filter(|waker| Arc::strong_count(waker) > 1).count();
        assert!(kept < 10, "{kept} wakers of futures that are gone");
    });
}

/// L6: a holder that does not reach the store is not told of a loss. Its work ends all the same, before that of another begins.
#[test]
fn l6_work_that_is_to_end_with_its_lease_ends_before_another_is_granted_it() {
    for fault in [Fault::Refuse, Fault::Stall] {
        everywhere(async |world| {
            let (one, two) = (world.dark_tab(), world.dark_tab());
            let work = async {
                let ran =
                    one.leases.lock("k").on_loss(OnLoss::Abort).run(async |_| world.sim.pass(secs(600)).await).await;
                (ran.unwrap_err(), world.now())
            };
            let rival = async {
                world.sim.pass(ms(1)).await;
                one.store.fail_always(Some(fault));
                let guard = two.leases.lock("k").acquire().await.unwrap();
                (guard, world.now())
            };
            let ((why, ended), (guard, granted)) = futures::join!(work, rival);
            assert!(matches!(why, AcquireError::Lost { reason: LostReason::Expired, .. }), "{why}");
            assert!(ended < granted, "it worked until {ended:?}, and the other one from {granted:?}");
            one.store.fail_always(None);
            world.sim.pass(LEASE).await;
            assert!(guard.is_valid());
        });
    }
}

/// A context that was frozen for longer than its lease may have been replaced meanwhile.
#[test]
fn l6_after_a_freeze_such_work_takes_no_step_until_the_store_has_answered() {
    for is_taken in [true, false] {
        everywhere(async |world| {
            let (one, two) = (world.dark_tab(), world.dark_tab());
            let (thawed, steps) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
            let (leases, sim) = (one.leases.clone(), world.sim.clone());
            let (is_late, counted) = (thawed.clone(), steps.clone());
            one.executor.spawn(Box::pin(async move {
                let work = async |lease: &LeaseGuard| loop {
                    sim.pass(secs(1)).await;
                    if is_late.load(Relaxed) {
                        assert!(lease.is_valid(), "another one may hold the lease");
                        counted.fetch_add(1, Relaxed);
                    }
                };
                drop(leases.lock("k").on_loss(OnLoss::Abort).run(work).await);
            }));
            world.sim.pass(secs(3)).await;
            one.executor.freeze();
            world.sim.pass(LEASE * 2).await;
            let next = if is_taken { Some(two.leases.lock("k").acquire().await.unwrap()) } else { None };
            thawed.store(true, Relaxed);
            one.executor.thaw();
            world.sim.pass(secs(10)).await;
            let steps = steps.load(Relaxed);
            assert!(if is_taken { steps == 0 } else { steps >= 8 }, "{steps} steps, and taken: {}", next.is_some());
        });
    }
}

#[test]
fn a_leader_that_does_not_reach_the_store_leads_no_more_when_another_begins() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let (leaders, reigns) = (Cell::new(0), Cell::new(0));
        let lead = async |span| {
            let _leads = Reign::begin(&leaders);
            reigns.set(reigns.get() + 1);
            assert_eq!(leaders.get(), 1, "two lead");
            world.sim.pass(span).await;
        };
        // A campaign while the store is away would end in this time.
        let campaigns = one.leases.lock("k").timeout(LEASE * 2);
        let first = async { campaigns.elect(async |_| lead(secs(600)).await).await.unwrap() };
        let second = async {
            world.sim.pass(ms(1)).await;
            one.store.fail_always(Some(Fault::Stall));
            two.leases.elect("k", async |_| lead(LEASE * 5).await).await.unwrap();
            one.store.fail_always(None);
        };
        futures::join!(first, second);
        assert_eq!(reigns.get(), 3, "the first one leads again when it reaches the store");
    });
}

/// A holder that has slept is in doubt only until the store answers.
#[test]
fn a_short_doubt_ends_no_work() {
    everywhere(async |world| {
        let tab = world.dark_tab();
        let run = tab.leases.lock("k").on_loss(OnLoss::Abort).run(async |_| world.sim.pass(LEASE * 2 + secs(60)).await);
        let sleep = async {
            world.sim.pass(ms(1)).await;
            tab.executor.freeze();
            world.sim.pass(LEASE * 2).await;
            tab.executor.thaw();
        };
        let ran = futures::join!(run, sleep).0.unwrap();
        assert_eq!(ran.lost, None);
    });
}

/// Counts as one leader while this value lives.
struct Reign<'a>(&'a Cell<u32>);

impl<'a> Reign<'a> {
    fn begin(leaders: &'a Cell<u32>) -> Self {
        leaders.set(leaders.get() + 1);
        Self(leaders)
    }
}

impl Drop for Reign<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
