//! Whether the store is blamed for a request that ends without a lease.

use std::pin::pin;

use leasehold::{AcquireError, Mode, machine::Applied, store::Fault};

use crate::support::world::{LEASE, Tab, World, everywhere, ms, secs};

#[test]
fn an_old_failure_of_the_store_is_not_blamed_for_a_time_out() {
    for fault in [Fault::Refuse, Fault::Fail] {
        everywhere(async |world| {
            let tab = world.tab();
            tab.leases.lock("k").acquire().await.unwrap().release().await.unwrap();
            world.sim.pass(secs(60)).await;
            tab.store.fail_always(Some(fault));
            let told = tab.leases.lock("other").try_acquire().await;
            assert!(matches!(told, Err(AcquireError::Store(_))), "{told:?}");
            tab.store.fail_always(None);
            world.sim.pass(secs(3_600)).await;
            tab.store.fail_always(Some(Fault::Silence));
            let told = tab.leases.lock("k").timeout(secs(1)).acquire().await.unwrap_err();
            assert!(matches!(told, AcquireError::Timeout { .. }), "{told:?}");
        });
    }
}

/// Freezes the context for three lease times while the store leaves one transaction unanswered. The store answers all others.
async fn stands_still_while_it_asks(world: &World, tab: &Tab) {
    tab.store.take_seen();
    tab.store.inject(Fault::Silence);
    while tab.store.take_seen().is_empty() {
        world.sim.pass(ms(50)).await;
    }
    tab.executor.freeze();
    world.sim.pass(LEASE * 3).await;
    tab.executor.thaw();
}

#[test]
fn a_waiter_that_was_frozen_asks_again_before_it_blames_the_store() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let mut waits = pin!(two.leases.lock("k").acquire());
        assert!(world.within(secs(1), &mut waits).await.is_none());
        stands_still_while_it_asks(world, &two).await;
        let told = world.within(secs(60), &mut waits).await;
        assert!(told.is_none(), "the key is held: {told:?}");
        held.release().await.unwrap();
        waits.await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_request_behind_a_guard_of_its_own_manager_survives_a_freeze() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        let mut waits = pin!(tab.leases.lock("k").acquire());
        assert!(world.within(secs(1), &mut waits).await.is_none());
        stands_still_while_it_asks(world, &tab).await;
        let told = world.within(secs(60), &mut waits).await;
        assert!(told.is_none(), "the guard is held ({}): {told:?}", guard.is_valid());
        guard.release().await.unwrap();
        waits.await.unwrap().release().await.unwrap();
    });
}

/// What an error of the store says of the request.
fn applied<T: std::fmt::Debug>(told: Result<T, AcquireError>) -> Applied {
    match told {
        Err(AcquireError::Store(error)) => error.applied,
        other => panic!("the store fails: {other:?}"),
    }
}

/// The last attempt is refused, and an earlier one got no answer.
#[test]
fn an_error_does_not_deny_what_an_earlier_attempt_may_have_done() {
    everywhere(async |world| {
        for (opens, fault) in [(true, Fault::Fail), (true, Fault::Refuse), (false, Fault::Fail), (false, Fault::Refuse)]
        {
            let (tab, other) = (world.tab(), world.tab());
            let _held = if opens { None } else { Some(tab.leases.lock("other").acquire().await.unwrap()) };
            tab.store.inject(Fault::LoseReply);
            let mut one = Box::pin(tab.leases.lock("k").acquire());
            assert!(world.within(ms(1), &mut one).await.is_none());
            tab.store.fail_always(Some(fault));
            assert!(!other.leases.status("k").await.unwrap().holders.is_empty(), "the first attempt was applied");
            assert_eq!(
                applied(world.within(secs(600), one).await.unwrap()),
                Applied::Unknown,
                "{fault:?}, opens: {opens}"
            );
            tab.store.fail_always(None);
            world.sim.pass(LEASE * 3).await;
            tab.store.inject(Fault::LoseReply);
            let mut several = Box::pin(tab.leases.lock_all([("k", Mode::Exclusive), ("l", Mode::Exclusive)]).acquire());
            assert!(world.within(ms(1), &mut several).await.is_none());
            tab.store.fail_always(Some(fault));
            assert_eq!(
                applied(world.within(secs(600), several).await.unwrap()),
                Applied::Unknown,
                "{fault:?}, opens: {opens}"
            );
        }
    });
}

/// The attempts of another request got no answers, long ago.
#[test]
fn a_request_that_was_refused_is_told_that_it_was_not_applied() {
    everywhere(async |world| {
        let tab = world.tab();
        tab.store.fail_always(Some(Fault::LoseReply));
        let first = world.within(secs(600), tab.leases.lock("a").acquire()).await.unwrap();
        assert_eq!(applied(first), Applied::Unknown);
        tab.store.fail_always(Some(Fault::Fail));
        let later = world.within(secs(600), tab.leases.lock("b").acquire()).await.unwrap();
        assert_eq!(applied(later), Applied::No, "no attempt of this request went without an answer");
    });
}
