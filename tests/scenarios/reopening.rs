//! matrix-rust-sdk: its `cross_process_lock.rs` and its SQLite store: M1 to M3, M5, M7 to M11.

use leasehold::{
    AcquireError, LeaseManager, LostReason, ReleaseOutcome,
    executor::Executor,
    machine::{Action, Batch, Key, Operation, SessionId, StoreErrorKind},
    store::Store,
};

use crate::support::{
    doubles::SlowStore,
    world::{LEASE, LIMIT, Tab, everywhere, ms, secs},
};

/// M1: `test_simple_lock_unlock`.
#[test]
fn m1_clones_count_and_the_last_one_gives_back() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").try_acquire().await.unwrap().unwrap();
        assert!(!guard.changed_hands(), "clean");
        let clone = guard.clone();
        assert_eq!(clone.token(), guard.token(), "one lease");
        drop(guard);
        world.sim.pass(LEASE * 2).await;
        assert!(clone.is_valid(), "the clone holds on");
        assert_eq!(two.leases.status("k").await.unwrap().holders.len(), 1);
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        drop(clone);
        let next = world.within(ms(100), two.leases.lock("k").acquire()).await;
        assert!(next.expect("the last clone gave it back").unwrap().is_valid());
    });
}

/// M2: `test_self_recovery`.
#[test]
fn m2_a_lock_made_anew_recovers_its_own_key() {
    everywhere(async |world| {
        let (one, two) = (world.tab().with(|builder| builder.instance("worker-1")), world.tab());
        let lock = one.leases.lock("k");
        let guard = lock.clone().acquire().await.unwrap();
        drop(lock);
        assert!(guard.is_valid(), "the lock object holds nothing, the guard does");
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
        drop(guard);
        world.sim.pass(secs(1)).await;
        assert!(two.leases.status("k").await.unwrap().is_idle(), "it is gone from the record too");
        let again = one.leases.lock("k").try_acquire().await.unwrap().expect("own keys are had again");
        assert!(!again.changed_hands(), "clean: nobody else held it");
        drop(again);
        let Tab { leases, store, executor } = one;
        drop(leases);
        let anew = LeaseManager::builder(store, executor).instance("worker-1").build().unwrap();
        let guard = anew.lock("k").try_acquire().await.unwrap().expect("nor does a manager made anew wait");
        assert!(!guard.changed_hands(), "who remembers nothing has nothing to forget");
    });
}

/// M3: `test_multiple_holders_same_process`.
#[test]
fn m3_two_holders_of_one_process_share_if_both_say_so() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let share = || one.leases.lock("k").share_in_process();
        let first = share().try_acquire().await.unwrap().unwrap();
        let second = share().try_acquire().await.unwrap().expect("both hold it");
        assert!(second.token() > first.token(), "each with a token of its own");
        assert!(one.leases.lock("k").try_acquire().await.unwrap().is_none(), "who does not say so is excluded");
        assert!(two.leases.lock("k").share_in_process().try_acquire().await.unwrap().is_none(), "so are others");
        assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(second.is_valid() && !first.is_valid());
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none(), "one of two still holds");
        assert_eq!(second.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

/// M5: `test_multiple_processes_up_to_dirty`.
#[test]
fn m5_who_held_it_before_another_did_is_told_until_it_takes_note() {
    everywhere(async |world| {
        let (a, b) = (world.tab(), world.tab());
        let turn = async |tab: &Tab| tab.leases.lock("k").acquire().await.unwrap();
        assert!(!turn(&a).await.changed_hands(), "the first time is clean");
        assert!(!turn(&b).await.changed_hands(), "for each of them");
        for _ in 0..3 {
            assert!(turn(&a).await.changed_hands());
            let again = turn(&a).await;
            assert!(again.changed_hands(), "until it is cleared");
            again.clear_changed();
            assert!(!again.changed_hands());
            drop(again);
            assert!(!turn(&a).await.changed_hands(), "once cleared it is clean");
            let other = turn(&b).await;
            assert!(other.changed_hands());
            other.clear_changed();
        }
    });
}

/// M7: a lease cannot be written through a connection that was closed.
#[test]
fn m7_a_closed_connection_refuses_to_write() {
    everywhere(async |world| {
        let tab = world.tab();
        let handle = tab.store.clone();
        handle.close().await;
        let inspect = Operation { key: Key::new("k").unwrap(), action: Action::Inspect };
        let refused =
            handle.transact(Batch::new(SessionId(1), vec![inspect]), world.sim.now(), LIMIT).await.unwrap_err();
        assert_eq!((refused.kind, refused.retry), (StoreErrorKind::Closed, false));
        let leases = LeaseManager::builder(handle, tab.executor.clone()).build().unwrap();
        let failed = leases.lock("k").acquire().await.unwrap_err();
        assert!(matches!(&failed, AcquireError::Store(error) if error.kind == StoreErrorKind::Closed), "{failed}");
        assert!(tab.leases.status("k").await.unwrap().is_idle(), "nothing was written");
    });
}

/// M8: a lease outlives the connection through which it was taken, and goes on refusing others.
#[test]
fn m8_a_lease_persists_while_its_store_is_closed_and_opened_again() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let parts = one.leases.lock("k").acquire().await.unwrap().into_parts();
        let token = parts.token();
        one.leases.close().await;
        world.sim.pass(LEASE / 2).await;
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none(), "while it is closed");
        let reopened = reopen(&one);
        let guard = reopened.resume(parts).await.unwrap();
        assert!(guard.is_valid() && guard.token() > token);
        world.sim.pass(LEASE * 2).await;
        assert!(guard.is_valid(), "it is renewed again");
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none(), "and once it is open again");
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    });
}

/// M8, while somebody waits who would notice if the sign of life of the first context went.
#[test]
fn m8_a_lease_without_a_guard_outlives_the_context_that_took_it() {
    everywhere(async |world| {
        for closes in [true, false] {
            let (one, two) = (world.tab(), world.tab());
            let parts = one.leases.lock("k").acquire().await.unwrap().into_parts();
            let mut waiting = std::pin::pin!(two.leases.lock("k").acquire());
            assert!(world.within(ms(10), &mut waiting).await.is_none());
            if closes {
                one.leases.close().await;
            }
            let early = world.within(LEASE - secs(2), &mut waiting).await;
            assert!(early.is_none(), "it was taken before it ran out, closed: {closes}");
            let guard = reopen(&one).resume(parts).await.expect("it still stands in the record");
            assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
            assert!(world.within(ms(1), waiting).await.is_some());
        }
    });
}

/// M9: works immediately after reopen.
#[test]
fn m9_a_reopened_store_works_at_once() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        tab.leases.close().await;
        assert_eq!(guard.lost().await, LostReason::Closed);
        let closed_at = world.sim.now();
        let next = reopen(&tab).lock("k").try_acquire().await.unwrap().expect("nothing was left behind");
        assert!(next.is_valid() && next.token() > guard.token());
        assert_eq!(world.sim.now(), closed_at, "without waiting");
    });
}

/// M10: five cycles of close and reopen.
#[test]
fn m10_five_times_closed_and_opened_again() {
    everywhere(async |world| {
        let (tab, rival) = (world.tab(), world.tab());
        let mut last = None;
        for _ in 0..5 {
            let leases = reopen(&tab);
            let guard = leases.lock("k").try_acquire().await.unwrap().expect("free after each cycle");
            assert!(last.replace(guard.token()) < Some(guard.token()), "tokens grow over all of them");
            assert!(rival.leases.lock("k").try_acquire().await.unwrap().is_none());
            leases.close().await;
            assert!(!guard.is_valid());
            assert_eq!(leases.lock("k").acquire().await.unwrap_err(), AcquireError::Closed);
        }
    });
}

/// M11: close waits for what still uses the connection.
#[test]
fn m11_close_waits_for_the_transaction_in_flight_and_for_the_release() {
    everywhere(async |world| {
        let (tab, other) = (world.tab(), world.tab());
        let slow = SlowStore::new(tab.store.clone(), world.sim.clone(), 20..=20);
        let leases = LeaseManager::builder(slow, tab.executor.clone()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let start = world.sim.now().monotonic;
        let close = async {
            world.sim.pass(ms(5)).await;
            leases.close().await;
            assert_eq!(world.sim.now().monotonic.since(start), 80, "one in flight, then the release, 40 ms each");
        };
        let look = async {
            world.sim.pass(ms(45)).await;
            assert!(!other.leases.status("k").await.unwrap().is_idle(), "not before it is released");
        };
        let (verified, (), ()) = futures::join!(guard.verify(), close, look);
        assert!(verified.is_ok(), "who was under way is answered: {verified:?}");
        assert!(other.leases.status("k").await.unwrap().is_idle(), "all is given back by then");
    });
}

/// Another manager of the same context, over a connection of its own.
fn reopen(tab: &Tab) -> LeaseManager {
    LeaseManager::builder(tab.store.clone(), tab.executor.clone()).lease(LEASE).build().unwrap()
}
