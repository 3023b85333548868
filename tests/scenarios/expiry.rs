//! redsync, below gitea's locks: R1 to R14. What is about several Redis nodes (R9) or scripts (R13) has no counterpart:
//! a store is one place, and runs the same code as all others.

use std::error::Error;

use futures::future::join_all;
use leasehold::{
    AcquireError, InvalidKey, InvalidOptions, LostReason, ReleaseOutcome, StoreError,
    machine::{Applied, StoreErrorKind},
    store::Fault,
};

use crate::support::world::{LEASE, everywhere, ms, secs};

/// R1: `TestMutex`: all contenders get their turn, each with a larger token.
#[test]
fn r1_all_contenders_have_their_turn() {
    everywhere(async |world| {
        let tabs: Vec<_> = (0..8).map(|_| world.tab()).collect();
        let turns = tabs.iter().map(|tab| async {
            let guard = tab.leases.lock("k").acquire().await.unwrap();
            let begun = world.now();
            world.sim.pass(ms(10)).await;
            assert!(guard.is_valid());
            guard.release().await.unwrap();
            (begun, guard.token())
        });
        let mut turns = join_all(turns).await;
        turns.sort();
        assert!(turns.windows(2).all(|pair| pair[0].0.plus(10) <= pair[1].0), "one after the other: {turns:?}");
        assert!(turns.windows(2).all(|pair| pair[0].1 < pair[1].1), "{turns:?}");
    });
}

/// R2: `TestTryLock`: of many who try at once, one has it, and may extend it.
#[test]
fn r2_of_many_tries_one_succeeds_and_extends() {
    everywhere(async |world| {
        let tabs: Vec<_> = (0..8).map(|_| world.tab()).collect();
        let tries = join_all(tabs.iter().map(|tab| tab.leases.lock("k").try_acquire())).await;
        let winners: Vec<_> = tries.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(winners.len(), 1);
        winners[0].extend(secs(60)).await.unwrap();
        assert!(winners[0].remaining() >= secs(60));
    });
}

/// R3: `TestMutexAlreadyLocked`: that it is taken is no error, and the status says by whom.
#[test]
fn r3_who_finds_it_taken_learns_by_whom() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").info("backup").acquire().await.unwrap();
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        let refused = two.leases.lock("k").timeout(ms(0)).acquire().await;
        assert!(matches!(refused.unwrap_err(), AcquireError::Timeout { .. }));
        let status = two.leases.status("k").await.unwrap();
        assert_eq!(status.holders.len(), 1);
        let holder = &status.holders[0];
        assert_eq!((holder.holder, holder.token), (one.leases.session(), held.token()));
        assert_eq!((holder.info.as_str(), holder.own), ("backup", false));
        assert!(status.queue.is_empty(), "who tried left no place");
    });
}

/// R4: `TestMutexExtend`: the lease lasts longer, here and in the store.
#[test]
fn r4_an_extended_lease_lasts_longer() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let expires_at = async || two.leases.status("k").await.unwrap().holders[0].expires_at;
        let (remaining, recorded) = (guard.remaining(), expires_at().await);
        guard.extend(secs(60)).await.unwrap();
        assert!(remaining < secs(20) && guard.remaining() >= secs(60));
        assert!(expires_at().await >= recorded.plus(40_000));
    });
}

/// R5: `TestMutexExtendExpired`: what ran out is not extended.
#[test]
fn r5_an_expired_lease_is_not_extended() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").auto_renew(false).acquire().await.unwrap();
        world.sim.pass(LEASE).await;
        assert_eq!(
            guard.extend(LEASE).await.unwrap_err(),
            AcquireError::Lost { key: "k".into(), reason: LostReason::Expired }
        );
        assert!(!guard.is_valid());
    });
}

/// R6: `SetNXOnExtend` on a free key: a holder that slept past its lease, which nobody took, extends it.
#[test]
fn r6_an_overdue_lease_that_nobody_took_is_extended() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let token = guard.token();
        one.executor.freeze();
        world.sim.pass(LEASE * 2).await;
        assert!(!guard.is_valid());
        guard.extend(secs(60)).await.unwrap();
        assert!(guard.is_valid() && guard.token() == token && guard.remaining() >= secs(59));
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
    });
}

/// R7: `SetNXOnExtend` on a taken key: refused, and the new holder is left alone.
#[test]
fn r7_an_overdue_lease_that_was_taken_is_not_extended() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.executor.freeze();
        let next = two.leases.lock("k").acquire().await.unwrap();
        assert_eq!(
            guard.extend(secs(60)).await.unwrap_err(),
            AcquireError::Lost { key: "k".into(), reason: LostReason::Expired }
        );
        one.executor.thaw();
        world.sim.pass(LEASE * 2).await;
        assert!(next.is_valid() && !guard.is_valid());
    });
}

/// R8: `TestMutexUnlockExpired`: a release that comes too late says so, and is no error.
#[test]
fn r8_a_late_release_says_so() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").auto_renew(false).acquire().await.unwrap();
        world.sim.pass(LEASE).await;
        let next = two.leases.lock("k").try_acquire().await.unwrap().expect("it ran out");
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost);
        assert!(next.verify().await.unwrap());
    });
}

/// R10: `TestValid`: the store's own word on a guard, from the grant to the end.
#[test]
fn r10_the_store_says_whether_a_guard_holds() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        assert!(guard.verify().await.unwrap());
        world.sim.pass(LEASE * 2).await;
        assert!(guard.verify().await.unwrap());
        one.store.inject(Fault::Refuse);
        assert!(guard.verify().await.is_err(), "who gets no answer knows nothing");
        assert!(guard.is_valid() && guard.verify().await.unwrap());
        let _thief = two.leases.lock("k").steal().await.unwrap();
        assert!(!guard.verify().await.unwrap());
    });
}

/// R11: `TestMutexLockUnlockSplit`: locked here, unlocked elsewhere, by what names the lease.
#[test]
fn r11_locked_here_and_unlocked_elsewhere() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let parts = one.leases.lock("k").acquire().await.unwrap().into_parts();
        assert!(three.leases.lock("k").try_acquire().await.unwrap().is_none(), "it is held on its way too");
        let resumed = two.leases.resume(parts).await.unwrap();
        assert_eq!(resumed.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(three.leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

/// R12: errors can be told apart, and found again behind a box.
#[test]
fn r12_errors_are_told_apart_and_found_again() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        let boxed: Box<dyn Error> = two.leases.lock("k").timeout(ms(1)).acquire().await.unwrap_err().into();
        assert!(matches!(boxed.downcast_ref(), Some(AcquireError::Timeout { .. })));
        let boxed: Box<dyn Error> = two.leases.lock("").acquire().await.unwrap_err().into();
        assert_eq!(boxed.downcast_ref(), Some(&AcquireError::InvalidKey(InvalidKey::Empty)));
        let boxed: Box<dyn Error> = two.leases.lock("k").shared().steal().await.unwrap_err().into();
        assert_eq!(boxed.downcast_ref(), Some(&AcquireError::InvalidOptions(InvalidOptions::SharedTheft)));
        two.store.fail_always(Some(Fault::Fail));
        let Err(AcquireError::Store(error)) = two.leases.lock("k").acquire().await else { panic!("it failed") };
        let StoreError { kind, applied, retry, .. } = error;
        assert_eq!((kind, applied, retry), (StoreErrorKind::Unavailable, Applied::No, false));
    });
}

/// R14: redsync's example: lock, work, unlock, and look at the answer.
#[test]
fn r14_lock_work_unlock() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("my-global-mutex").acquire().await.unwrap();
        assert!(guard.is_valid() && guard.key() == "my-global-mutex");
        world.sim.pass(secs(1)).await;
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(!guard.is_valid());
    });
}
