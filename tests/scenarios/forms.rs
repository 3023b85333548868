//! The forms in which a lease is had: work under it, a lead, a guard with a value, clones.

use std::{
    cell::{Cell, RefCell},
    future::pending,
    panic::AssertUnwindSafe,
};

use futures::{future::FutureExt, join};
use leasehold::store::Fault;
use leasehold::{AcquireError, LostReason, MappedLeaseGuard, Mode, OnLoss, ReleaseOutcome};

use crate::support::world::{LEASE, Tab, everywhere, ms, secs};

/// Tells when it is dropped.
struct Told<'a>(&'a Cell<bool>);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

async fn is_free(tab: &Tab) -> bool {
    tab.leases.lock("k").try_acquire().await.unwrap().is_some()
}

#[test]
fn work_runs_under_the_lease_and_gives_it_back() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let work = one.leases.lock("k").run(async |guard| {
            assert!(guard.is_valid() && !is_free(&two).await);
            world.sim.pass(LEASE * 2).await;
            guard.token()
        });
        let ran = work.await.unwrap();
        assert_eq!(ran.lost, None);
        let next = two.leases.lock("k").try_acquire().await.unwrap().expect("it was given back");
        assert!(next.token() > ran.value);
    });
}

#[test]
fn a_loss_does_not_stop_work_that_only_wants_to_know() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let work = one.leases.lock("k").run(async |guard| {
            world.sim.pass(secs(2)).await;
            (guard.is_valid(), guard.lost().now_or_never())
        });
        let theft = async {
            world.sim.pass(secs(1)).await;
            two.leases.lock("k").steal().await.unwrap()
        };
        let (ran, thief) = join!(work, theft);
        let ran = ran.unwrap();
        assert_eq!((ran.value, ran.lost), ((false, Some(LostReason::Stolen)), Some(LostReason::Stolen)));
        assert!(thief.is_valid());
    });
}

#[test]
fn a_loss_drops_work_that_must_not_go_on() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let dropped = Cell::new(false);
        let work = one.leases.lock("k").on_loss(OnLoss::Abort).run(async |_| {
            let _told = Told(&dropped);
            pending::<()>().await;
        });
        let theft = async {
            world.sim.pass(secs(1)).await;
            assert!(!dropped.get());
            two.leases.lock("k").steal().await.unwrap()
        };
        let (told, thief) = join!(world.within(ms(1_001), work), theft);
        assert_eq!(
            told.expect("at once").unwrap_err(),
            AcquireError::Lost { key: "k".into(), reason: LostReason::Stolen }
        );
        assert!(dropped.get() && thief.is_valid());
    });
}

#[test]
fn dropped_work_gives_the_lease_back() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let dropped = Cell::new(false);
        let mut work = Box::pin(one.leases.lock("k").run(async |_| {
            let _told = Told(&dropped);
            pending::<()>().await;
        }));
        assert!(world.within(secs(1), &mut work).await.is_none());
        assert!(!is_free(&two).await);
        drop(work);
        assert!(dropped.get() && is_free(&two).await);
    });
}

/// A panic of the user's ends its guards; it must not keep the thread in their end.
#[test]
fn a_guard_that_is_dropped_by_a_panic_gives_the_lease_back() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let work = one.leases.lock("k").run(async |_| -> () { panic!("the work's own") });
        assert!(AssertUnwindSafe(work).catch_unwind().await.is_err());
        assert!(is_free(&two).await);
    });
}

#[test]
fn work_that_tries_is_not_begun_if_the_key_is_taken() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let begun = Cell::new(false);
        let held = one.leases.lock("k").acquire().await.unwrap();
        assert_eq!(two.leases.lock("k").try_run(async |_| begun.set(true)).await, Ok(None));
        assert!(!begun.get());
        held.release().await.unwrap();
        let ran = two.leases.lock("k").try_run(async |guard| guard.is_valid()).await.unwrap().expect("it is free");
        assert!(ran.value && ran.lost.is_none());
        let aborted = two.leases.lock("k").on_loss(OnLoss::Abort).try_run(async |_| {
            let _thief = one.leases.lock("k").steal().await.unwrap();
            pending::<()>().await;
        });
        assert_eq!(aborted.await, Err(AcquireError::Lost { key: "k".into(), reason: LostReason::Stolen }));
    });
}

/// A lost lead is won anew: the work is dropped, and begun again with a larger token.
#[test]
fn who_loses_the_lead_campaigns_again() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let (terms, ended) = (RefCell::new(Vec::new()), Cell::new(false));
        let lead = one.leases.elect("k", async |guard| {
            terms.borrow_mut().push(guard.token());
            if terms.borrow().len() == 1 {
                let _told = Told(&ended);
                pending::<()>().await;
            }
            world.sim.pass(LEASE).await;
            "done"
        });
        let coup = async {
            world.sim.pass(secs(1)).await;
            let thief = two.leases.lock("k").steal().await.unwrap();
            world.sim.pass(secs(1)).await;
            assert!(ended.get() && terms.borrow().len() == 1, "the old term is over, and the new one not begun");
            assert!(two.leases.leader("k").await.unwrap().unwrap().own);
            thief.release().await.unwrap();
            thief.token()
        };
        let (led, between) = join!(lead, coup);
        assert_eq!(led, Ok("done"));
        let terms = terms.into_inner();
        assert!(terms.len() == 2 && terms[0] < between && between < terms[1], "{terms:?}, {between:?}");
        assert!(is_free(&two).await, "a lead that is over is given back");
    });
}

#[test]
fn an_election_ends_with_its_manager() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let lead = one.leases.elect("k", async |_| pending::<()>().await);
        let campaign = two.leases.elect("k", async |_| pending::<()>().await);
        let close = async {
            world.sim.pass(secs(1)).await;
            one.leases.close().await;
            assert!(two.leases.leader("k").await.unwrap().unwrap().own, "the next one leads");
            two.leases.close().await;
        };
        let (led, next, ()) = join!(lead, campaign, close);
        assert_eq!((led, next), (Err(AcquireError::Closed), Err(AcquireError::Closed)));
    });
}

/// Longer than any lease. A campaign in a store that never answered fails instead.
#[test]
fn an_election_outlasts_an_outage_of_its_store() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let terms = RefCell::new(Vec::new());
        let lead = one.leases.elect("k", async |lease| {
            terms.borrow_mut().push(("one", lease.token()));
            pending::<()>().await;
        });
        let campaign = two.leases.elect("k", async |lease| {
            terms.borrow_mut().push(("two", lease.token()));
            pending::<()>().await;
        });
        let events = async {
            world.sim.pass(secs(1)).await;
            for tab in [&one, &two, &three] {
                tab.store.fail_always(Some(Fault::Refuse));
            }
            let told = three.leases.elect("k", async |_| ()).await;
            assert!(matches!(told, Err(AcquireError::Store(_))), "{told:?}");
            world.sim.pass(LEASE * 5).await;
            let before = terms.borrow().len();
            one.store.fail_always(None);
            two.store.fail_always(None);
            world.sim.pass(LEASE * 2).await;
            assert!(terms.borrow().len() > before, "somebody leads again");
            one.leases.close().await;
            world.sim.pass(LEASE * 2).await;
            assert_eq!(terms.borrow().last().unwrap().0, "two", "the other one has not given up");
            two.leases.close().await;
        };
        let (led, next, ()) = join!(lead, campaign, events);
        assert_eq!((led, next), (Err(AcquireError::Closed), Err(AcquireError::Closed)));
    });
}

#[test]
fn the_leader_is_who_holds_exclusively() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        assert_eq!(two.leases.leader("k").await, Ok(None));
        let readers = one.leases.lock("k").shared().acquire().await.unwrap();
        assert_eq!(two.leases.leader("k").await, Ok(None), "who shares does not lead");
        readers.upgrade().await.unwrap();
        let seen = two.leases.leader("k").await.unwrap().expect("somebody leads");
        assert_eq!((seen.holder, seen.mode, seen.own), (one.leases.session(), Mode::Exclusive, false));
        assert!(one.leases.leader("k").await.unwrap().expect("it leads").own);
        readers.release().await.unwrap();
        world.sim.pass(secs(1)).await;
        assert_eq!(two.leases.leader("k").await, Ok(None));
    });
}

#[test]
fn a_guard_carries_what_it_protects() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let mut notes = one.leases.lock("k").acquire().await.unwrap().map(vec!["milk"]);
        notes.push("bread");
        assert_eq!(*notes, ["milk", "bread"]);
        assert!(MappedLeaseGuard::guard(&notes).is_valid() && !is_free(&two).await);
        let count = MappedLeaseGuard::map(notes, |notes| notes.len());
        assert_eq!(*count, 2);
        let (guard, count) = MappedLeaseGuard::into_inner(count);
        assert!(count == 2 && guard.is_valid() && !is_free(&two).await);
        drop(guard.map(count));
        assert!(is_free(&two).await);
    });
}

/// Its last words, a file that is flushed, say, are still under the lease.
#[test]
fn what_a_guard_protects_ends_before_the_lease() {
    struct Will<F: Fn()>(F);
    impl<F: Fn()> Drop for Will<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let was_free = Cell::new(None);
        let will = Will(|| was_free.set(is_free(&two).now_or_never()));
        drop(one.leases.lock("k").acquire().await.unwrap().map(will));
        assert_eq!(was_free.get(), Some(false));
        assert!(is_free(&two).await);
    });
}

#[test]
fn clones_count() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let clone = guard.clone();
        assert_eq!(clone.token(), guard.token());
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released, "its part");
        assert!(!guard.is_valid() && clone.is_valid() && !guard.verify().await.unwrap());
        let given_back = guard.clone();
        drop(guard);
        assert!(!given_back.is_valid(), "a clone of what was given back is given back");
        drop(given_back);
        world.sim.pass(LEASE * 2).await;
        assert!(clone.is_valid() && !is_free(&two).await);
        clone.release().await.unwrap();
        assert!(is_free(&two).await);
    });
}

#[test]
fn the_loss_is_told_to_all_clones() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let clone = guard.clone();
        let _thief = two.leases.lock("k").steal().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost, "though a clone is left");
        assert_eq!(clone.lost().now_or_never(), Some(LostReason::Stolen));
        assert!(!clone.is_valid());
    });
}
