//! gitea's `globallock`: G1 to G9.

use std::cell::Cell;

use futures::future::{FutureExt, join_all};
use leasehold::{
    AcquireError, LeaseState, LostReason, Mode, OnLoss, ReleaseOutcome,
    executor::Executor,
    machine::{Action, Batch, Key, Operation, Outcome, SessionId},
    store::{Fault, Store},
};

use crate::support::world::{HEARTBEAT, LEASE, LIMIT, World, everywhere, ms, secs};

/// G1: `lock`: a second one waits for its time-out, a third one follows the release; a release after a failure works.
#[test]
fn g1_a_taken_lock_is_refused_in_time_and_free_after_the_release() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let start = world.now();
        let refused = two.leases.lock("k").timeout(secs(1)).acquire().await;
        assert!(matches!(refused.unwrap_err(), AcquireError::Timeout { .. }));
        assert_eq!(world.ms_since(start), 1_000);
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
        let third = two.leases.lock("k").timeout(secs(1)).acquire().await.unwrap();
        let thief = one.leases.lock("k").steal().await.unwrap();
        for _ in 0..2 {
            assert_eq!(third.release().await.unwrap(), ReleaseOutcome::Lost, "late is no error");
        }
        assert!(thief.is_valid());
    });
}

/// G2: `try lock`: refused without an error; it works right after the guard was dropped.
#[test]
fn g2_a_try_is_refused_while_taken_and_works_after_the_drop() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").try_acquire().await.unwrap().unwrap();
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        assert!(one.leases.lock("k").try_acquire().await.unwrap().is_none());
        drop(held);
        let next = two.leases.lock("k").try_acquire().await.unwrap().expect("it is free");
        drop(next);
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some(), "for the same context too");
    });
}

/// G3: `wait and acquired`: blocked for more than a second, then acquired in the moment of the release.
#[test]
fn g3_who_waits_is_blocked_until_the_release_and_no_longer() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let start = world.now();
        let wait = async {
            let guard = two.leases.lock("k").acquire().await.unwrap();
            (guard, world.ms_since(start))
        };
        let release = async {
            world.sim.pass(ms(1_200)).await;
            held.release().await.unwrap()
        };
        let ((guard, waited_ms), _) = futures::join!(wait, release);
        assert_eq!(waited_ms, 1_200);
        assert!(guard.is_valid());
    });
}

/// G4: `multiple release`: a stale second release does not free the next holder, of this context or of another.
#[test]
fn g4_a_second_release_does_not_free_the_next_holder() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        for next in [&one, &two] {
            let first = one.leases.lock("k").acquire().await.unwrap();
            assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released);
            let second = next.leases.lock("k").acquire().await.unwrap();
            assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released, "the answer stays the same");
            drop(first);
            world.sim.pass(LEASE).await;
            assert!(second.is_valid() && second.verify().await.unwrap());
            assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
            second.release().await.unwrap();
        }
    });
}

/// G5: redis `failed extend`: what stands in the record is removed under its holder.
#[test]
fn g5_a_lease_that_is_removed_from_the_store_is_told_and_nothing_blows_up() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let kept = one.leases.lock("other").acquire().await.unwrap();
        remove_grant(world, "k").await;
        assert_eq!(
            guard.extend(secs(60)).await.unwrap_err(),
            AcquireError::Lost { key: "k".into(), reason: LostReason::Evicted }
        );
        assert_eq!(guard.lost().await, LostReason::Evicted);
        assert!(!guard.is_valid() && kept.is_valid());
        let next = two.leases.lock("k").try_acquire().await.unwrap().expect("it is free");
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost);
        world.sim.pass(LEASE).await;
        assert!(next.is_valid() && kept.is_valid());
    });
}

/// A heartbeat reads the session's row and no record. So a holder learns only by `verify`, or by a fence, that its grant was removed.
#[test]
fn heartbeats_do_not_tell_that_a_lease_was_removed_from_its_record() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        remove_grant(world, "k").await;
        let next = two.leases.lock("k").try_acquire().await.unwrap().expect("it is free");
        world.sim.pass(LEASE * 3).await;
        assert!(guard.is_valid() && next.is_valid() && next.token() > guard.token());
        assert!(!guard.verify().await.unwrap());
        assert_eq!(guard.lost().await, LostReason::Evicted);
        assert!(next.is_valid());
    });
}

/// Removes the lease from the record under its holder, and nothing else.
async fn remove_grant(world: &World, key: &str) {
    let key = Key::new(key).unwrap();
    let ask = async |holder, action| {
        let operation = Operation { key: key.clone(), action };
        world
            .shared
            .transact(Batch::new(holder, vec![operation]), world.sim.now(), LIMIT)
            .await
            .unwrap()
            .answers
            .remove(0)
            .outcome
    };
    let looked = ask(SessionId(0), Action::Inspect).await;
    let Outcome::Status { grants, .. } = looked else { panic!("it can be read: {looked:?}") };
    for grant in grants {
        let release = Action::Release { token: grant.block.first, request: grant.request };
        assert_eq!(ask(grant.holder, release).await, Outcome::Released);
    }
}

/// G6: `close`: every form of asking is refused afterwards.
#[test]
fn g6_a_closed_manager_refuses_every_form() {
    everywhere(async |world| {
        let tab = world.tab();
        let parts = tab.leases.lock("parts").acquire().await.unwrap().into_parts();
        tab.leases.close().await;
        let lock = || tab.leases.lock("k");
        let refusals = [
            lock().acquire().await.err(),
            lock().shared().acquire().await.err(),
            lock().try_acquire().await.err(),
            lock().steal().await.err(),
            lock().run(async |_| unreachable!("not begun")).await.err(),
            lock().try_run(async |_| unreachable!("not begun")).await.err(),
            tab.leases.elect("k", async |_| unreachable!("not begun")).await.err(),
            tab.leases.lock_all([("a", Mode::Shared), ("b", Mode::Exclusive)]).acquire().await.err(),
            tab.leases.lock_all([("a", Mode::Shared), ("b", Mode::Exclusive)]).try_acquire().await.err(),
            tab.leases.resume(parts).await.err(),
        ];
        for (form, refusal) in refusals.into_iter().enumerate() {
            assert_eq!(refusal, Some(AcquireError::Closed), "form {form}");
        }
    });
}

/// G7: `TestLockAndDo`: 50 at once, the counter is exact, and a try inside is refused.
#[test]
fn g7_fifty_workers_count_exactly() {
    everywhere(async |world| {
        let tabs: Vec<_> = (0..5).map(|_| world.tab()).collect();
        let counter = Cell::new(0);
        let work = (0..50).map(|worker| {
            let (leases, counter) = (&tabs[worker % 5].leases, &counter);
            leases.lock("k").run(async move |_| {
                let read = counter.get();
                world.sim.pass(ms(2)).await;
                let inner = leases.lock("k").try_run(async |_| unreachable!("it is taken")).await;
                assert_eq!(inner, Ok(None));
                counter.set(read + 1);
            })
        });
        for ran in join_all(work).await {
            assert_eq!(ran.unwrap().lost, None);
        }
        assert_eq!(counter.get(), 50);
    });
}

/// G8: work is cancelled with the cause when the lease cannot be kept.
#[test]
fn g8_work_is_cancelled_with_the_cause_when_the_lease_is_lost() {
    everywhere(async |world| {
        let tab = world.tab();
        let finished = Cell::new(false);
        let request = tab.leases.lock("k").on_loss(OnLoss::Abort);
        let work = request.run(async |_| {
            tab.store.fail_always(Some(Fault::Fail));
            world.sim.pass(LEASE).await;
            finished.set(true);
        });
        let told = world.within(HEARTBEAT + ms(1), work).await.expect("at the next renewal");
        assert_eq!(told.unwrap_err(), AcquireError::Lost { key: "k".into(), reason: LostReason::StoreFailed });
        assert!(!finished.get());
    });
}

/// G9: `continue after release`: the end of the lease by its own owner cancels nothing.
#[test]
fn g9_work_goes_on_after_a_release() {
    everywhere(async |world| {
        let tab = world.tab();
        let ran = tab.leases.lock("k").on_loss(OnLoss::Abort).run(async |guard| {
            let (mut lost, watch) = (Box::pin(guard.lost()), guard.watch());
            guard.release().await.unwrap();
            world.sim.pass(LEASE * 2).await;
            assert!(lost.as_mut().now_or_never().is_none(), "a release is no loss");
            assert_eq!(watch.state(), LeaseState::Released);
            7
        });
        let ran = ran.await.unwrap();
        assert_eq!((ran.value, ran.lost), (7, None));
    });
}
