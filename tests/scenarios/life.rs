//! The life of a context: it is suspended and wakes, it closes, and tells of itself meanwhile.

use std::{cell::Cell, sync::Arc};

use futures::{FutureExt, channel::oneshot, future::join_all, join};
use leasehold::{
    AcquireError, LeaseEventKind, LeaseManager, LostReason, Mode, ReleaseOutcome,
    store::{Durability, Fault, NoStore, Store},
};

use crate::support::world::{LEASE, everywhere, ms, secs};

#[test]
fn a_suspension_ends_what_is_held_and_others_have_it_at_once() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let guards = [
            one.leases.lock("a").acquire().await.unwrap(),
            one.leases.lock("b").acquire().await.unwrap(),
            one.leases.lock("b2").shared().acquire().await.unwrap(),
        ];
        drop(one.leases.lock("lingers").acquire().await.unwrap());
        let mut wait = Box::pin(two.leases.lock("a").acquire());
        assert!(world.within(secs(1), &mut wait).await.is_none());
        one.leases.suspend();
        for guard in &guards {
            assert!(!guard.is_valid());
            assert_eq!(guard.lost().now_or_never(), Some(LostReason::Suspended), "told before anything else");
        }
        // Nothing of the context runs any more.
        one.executor.freeze();
        assert!(world.within(ms(1), wait).await.is_some());
        for key in ["b", "b2", "lingers"] {
            assert!(three.leases.lock(key).try_acquire().await.unwrap().is_some(), "{key}");
        }
        one.executor.thaw();
        one.leases.wake();
        assert!(guards.iter().all(|guard| !guard.is_valid()), "what is lost stays lost");
        assert_eq!(guards[0].release().await.unwrap(), ReleaseOutcome::Lost);
    });
}

/// Its beacon goes with the suspension, so that what the store could not be told is proven all the same.
#[test]
fn a_suspension_that_the_store_does_not_hear_of_frees_the_key_too() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Stall));
        one.leases.suspend();
        assert!(!guard.is_valid());
        one.executor.freeze();
        let next = world.within(ms(1), two.leases.lock("k").acquire()).await;
        assert!(next.expect("the beacon is gone").unwrap().is_valid());
    });
}

#[test]
fn a_waiting_request_survives_a_suspension_inside_its_deadline() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let held = two.leases.lock("k").acquire().await.unwrap();
        let start = world.now();
        let mut patient = Box::pin(one.leases.lock("k").timeout(secs(60)).acquire());
        let mut hasty = Box::pin(one.leases.lock("k").timeout(secs(15)).acquire());
        assert!((&mut hasty).now_or_never().is_none());
        assert!(world.within(secs(5), &mut patient).await.is_none());
        one.leases.suspend();
        world.sim.pass(ms(1)).await;
        assert!(two.leases.status("k").await.unwrap().queue.is_empty(), "it has no place meanwhile");
        assert!(matches!(hasty.await.unwrap_err(), AcquireError::Timeout { .. }));
        assert_eq!(world.ms_since(start), 15_000, "time-outs go on");
        one.leases.wake();
        world.sim.pass(ms(1)).await;
        let queue = three.leases.status("k").await.unwrap().queue;
        assert_eq!(queue.iter().map(|waiter| waiter.holder).collect::<Vec<_>>(), [one.leases.session()]);
        held.release().await.unwrap();
        let guard = world.within(ms(1), patient).await.expect("it queued again").unwrap();
        assert!(guard.is_valid() && guard.token() > held.token());
    });
}

#[test]
fn a_context_that_wakes_has_another_session() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let before = one.leases.session();
        drop(one.leases.lock("k").acquire().await.unwrap());
        one.leases.suspend();
        one.leases.suspend();
        let mut asked = Box::pin(one.leases.lock("k").acquire());
        assert!(world.within(secs(30), &mut asked).await.is_none(), "who asks meanwhile waits");
        one.leases.wake();
        let guard = world.within(ms(1), asked).await.expect("now it is asked").unwrap();
        assert_ne!(one.leases.session(), before);
        assert_eq!(two.leases.status("k").await.unwrap().holders[0].holder, one.leases.session());
        let now = one.leases.session();
        one.leases.wake();
        assert_eq!((one.leases.session(), guard.is_valid()), (now, true), "who is awake is not woken");
        world.sim.pass(LEASE * 3).await;
        assert!(guard.is_valid() && two.leases.lock("k").try_acquire().await.unwrap().is_none());
    });
}

/// What cannot wait until the context goes on is told so.
#[test]
fn a_suspended_context_tells_what_it_cannot_do() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("held").acquire().await.unwrap();
        let parts = tab.leases.lock("k").acquire().await.unwrap().into_parts();
        tab.leases.suspend();
        let suspended = |key: &str| AcquireError::Lost { key: key.into(), reason: LostReason::Suspended };
        let several = tab.leases.lock_all([("a", Mode::Exclusive), ("b", Mode::Shared)]);
        assert_eq!(several.try_acquire().await.unwrap_err(), suspended("a"));
        assert_eq!(tab.leases.resume(parts).await.unwrap_err(), suspended("k"));
        assert_eq!(guard.extend(secs(60)).await.unwrap_err(), suspended("held"));
        assert_eq!(guard.upgrade().await.unwrap_err(), suspended("held"));
        world.within(secs(1), tab.leases.close()).await.expect("it closes all the same");
        assert_eq!(tab.leases.lock("k").acquire().await.unwrap_err(), AcquireError::Closed);
    });
}

#[test]
fn a_context_closes_when_it_is_told_to() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let (end, ended) = oneshot::channel::<()>();
        one.leases.close_when(ended.map(drop));
        let guard = one.leases.lock("k").acquire().await.unwrap();
        world.sim.pass(LEASE).await;
        assert!(guard.is_valid());
        end.send(()).unwrap();
        assert_eq!(world.within(ms(1), guard.lost()).await, Some(LostReason::Closed));
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
        assert_eq!(one.leases.lock("k").acquire().await.unwrap_err(), AcquireError::Closed);
    });
}

/// Without a store a manager excludes its own requests, and nobody else's.
#[test]
fn no_store_is_shared_with_nobody() {
    everywhere(async |world| {
        let build = || LeaseManager::builder(NoStore::new(), world.sim.context()).build().unwrap();
        let (one, two) = (build(), build());
        let (inside, turns) = (Cell::new(0), Cell::new(0));
        let workers = (0..10).map(|_| async {
            let guard = one.lock("k").acquire().await.unwrap();
            inside.set(inside.get() + 1);
            assert_eq!(inside.get(), 1);
            world.sim.pass(ms(1)).await;
            inside.set(inside.get() - 1);
            turns.set(turns.get() + 1);
            guard.release().await.unwrap();
        });
        let other = two.lock("k").acquire().await.unwrap();
        join_all(workers).await;
        assert_eq!(turns.get(), 10);
        world.sim.pass(LEASE * 2).await;
        assert!(other.is_valid());
        let held = one.lock("k").shared().acquire().await.unwrap();
        assert!(one.lock("k").try_acquire().await.unwrap().is_none());
        assert!(held.is_valid() && held.token() > other.token());
        assert_eq!(NoStore::new().durability(), Durability::Ephemeral);
        one.close().await;
        assert_eq!(held.lost().now_or_never(), Some(LostReason::Closed));
    });
}

#[test]
fn waiters_are_told_their_position() {
    everywhere(async |world| {
        let tabs: Vec<_> = (0..4).map(|_| world.tab()).collect();
        let _held = tabs[0].leases.lock("k").acquire().await.unwrap();
        let mut waits: Vec<_> =
            tabs[1..].iter().map(|tab| Box::pin(tab.leases.lock("k").info("w").acquire())).collect();
        for wait in &mut waits {
            assert!(world.within(ms(1), wait).await.is_none());
        }
        let positions = async || {
            let positions = join_all(tabs.iter().map(async |tab| tab.leases.status("k").await.unwrap().position()));
            positions.await
        };
        assert_eq!(positions().await, [None, Some(0), Some(1), Some(2)]);
        drop(waits.remove(0));
        world.sim.pass(ms(1)).await;
        assert_eq!(positions().await, [None, None, Some(0), Some(1)]);
        let status = tabs[0].leases.status("k").await.unwrap();
        assert!(!status.is_idle() && status.holders[0].own && status.queue.iter().all(|waiter| waiter.info == "w"));
    });
}

#[test]
fn a_manager_counts_what_it_does() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        assert_eq!(one.leases.stats().transactions, 0);
        let held = one.leases.lock("k").acquire().await.unwrap();
        let steal = async {
            world.sim.pass(LEASE).await;
            two.leases.lock("k").steal().await.unwrap()
        };
        let (thief, ()) = join!(steal, world.sim.pass(LEASE));
        let refused = one.leases.lock("k").timeout(secs(1)).acquire().await;
        assert!(matches!(refused.unwrap_err(), AcquireError::Timeout { .. }));
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Lost);
        thief.release().await.unwrap();
        let (one_did, two_did) = (one.leases.stats(), two.leases.stats());
        assert_eq!((one_did.granted, one_did.lost, one_did.released, one_did.waited), (1, 1, 0, 1));
        assert_eq!((two_did.granted, two_did.lost, two_did.released, two_did.waited), (1, 0, 1, 0));
        assert!((3..=5).contains(&one_did.renewed), "about one a heartbeat: {}", one_did.renewed);
        assert_eq!(one_did.transactions, one.take_transactions() as u64);
    });
}

#[test]
fn a_request_that_waits_for_its_own_context_does_not_count_as_queued() {
    everywhere(async |world| {
        let tab = world.tab();
        let (held, mut events) = (tab.leases.lock("k").acquire().await.unwrap(), tab.leases.events());
        let mut wait = Box::pin(tab.leases.lock("k").acquire());
        assert!(world.within(secs(1), &mut wait).await.is_none());
        let told = events.next().await.map(|event| event.kind);
        assert_eq!((told, tab.leases.stats().waited), (Some(LeaseEventKind::Waiting { ahead: 0 }), 0));
        held.release().await.unwrap();
        wait.await.unwrap().release().await.unwrap();
    });
}

/// The manager that lists need not have met the keys.
#[test]
fn a_list_shows_all_that_is_held_or_awaited() {
    everywhere(async |world| {
        let (one, two, onlooker) = (world.tab(), world.tab(), world.tab());
        let _held = one.leases.lock("a/1").info("i").acquire().await.unwrap();
        let mut wait = Box::pin(two.leases.lock("a/1").acquire());
        assert!(world.within(ms(1), &mut wait).await.is_none());
        let names: Arc<[String]> = (0..40).map(|key| format!("many/{key:02}")).collect();
        let _many = join_all(names.iter().map(|name| two.leases.lock(name).acquire())).await;
        let listed = onlooker.leases.list("a/").await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].holders.len(), listed[0].queue.len()), (1, 1));
        assert_eq!((listed[0].holders[0].info.as_str(), listed[0].holders[0].own), ("i", false));
        let many = onlooker.leases.list("many/").await.unwrap();
        let keys: Vec<_> = many.iter().map(|status| status.key.as_str()).collect();
        assert_eq!(keys, names.iter().map(String::as_str).collect::<Vec<_>>(), "in order");
        assert!(onlooker.leases.list("b").await.unwrap().is_empty());
    });
}
