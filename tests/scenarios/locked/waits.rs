//! Whoever waits for a locked key, or holds it, until the lock ends.

use futures::future::join;
use leasehold::{AcquireError, Mode};

use super::{SHORT, is_locked, manager, open, unlock_after};
use crate::support::world::{LEASE, everywhere, ms};

#[test]
fn a_try_waits_until_the_lock_ends() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let other = manager(&store, world.sim.context());
        let held = other.lock("k").acquire().await.unwrap();
        store.lock("k");
        let unlock = unlock_after(world, ms(3_000), &store, "k");
        let (tried, _) = join(leases.lock("k").try_acquire(), unlock).await;
        assert!(tried.unwrap().is_none(), "it is taken, and that is no error");
        drop(held);
    });
}

#[test]
fn a_lock_that_does_not_end_is_reported() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lock("k");
        let start = world.now();
        let tried = leases.lock("k").try_acquire().await;
        assert!(is_locked(&tried), "{tried:?}");
        let waited = world.ms_since(start);
        assert!((5_000..=7_000).contains(&waited), "{waited} ms");
        let waited = leases.lock("k").acquire().await;
        assert!(is_locked(&waited), "{waited:?}");
        let limited = leases.lock("k").timeout(LEASE * 3).acquire().await;
        assert!(is_locked(&limited), "{limited:?}");
    });
}

#[test]
fn leases_live_on_while_a_key_is_locked() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let guard = leases.lock("mine").acquire().await.unwrap();
        store.lock("slow");
        let wait = leases.lock("slow").timeout(LEASE * 5).acquire();
        let (waited, ()) = join(wait, world.sim.pass(LEASE * 6)).await;
        assert!(is_locked(&waited), "{waited:?}");
        assert!(guard.is_valid());
        let start = world.now();
        guard.release().await.unwrap();
        assert!(world.ms_since(start) <= 500 + SHORT);
    });
}

/// `verify` and `release` of the locked key wait for the lock, and then succeed.
#[test]
fn a_holder_asks_about_its_lease_until_the_lock_ends() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let guard = leases.lock("k").acquire().await.unwrap();
        store.lock("k");
        let unlock = unlock_after(world, ms(2_000), &store, "k");
        let (current, _) = join(guard.verify(), unlock).await;
        assert!(current.unwrap());
        store.lock("k");
        let unlock = unlock_after(world, ms(2_000), &store, "k");
        let (released, _) = join(guard.release(), unlock).await;
        released.unwrap();
    });
}

#[test]
fn several_keys_of_which_one_is_locked_are_granted_when_the_lock_ends() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lock("b");
        let unlock = unlock_after(world, ms(4_000), &store, "b");
        let all = leases.lock_all([("a", Mode::Exclusive), ("b", Mode::Exclusive)]);
        let (guards, unlocked) = join(all.acquire(), unlock).await;
        let _guards = guards.unwrap();
        assert!(world.ms_since(unlocked) <= SHORT * 2);
    });
}

/// A theft whose wait for the lock timed out has taken nothing, and does not count as an attempt.
#[test]
fn a_theft_is_carried_out_when_the_lock_ends() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let other = manager(&store, world.sim.context());
        let held = other.lock("k").acquire().await.unwrap();
        store.lock("k");
        let unlock = unlock_after(world, ms(3_000), &store, "k");
        let (stolen, _) = join(leases.lock("k").steal(), unlock).await;
        assert!(stolen.unwrap().token() > held.token());
    });
}

#[test]
fn a_manager_is_closed_while_a_key_is_locked() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let guard = leases.lock("mine").acquire().await.unwrap();
        store.lock("slow");
        let close = async {
            world.sim.pass(ms(1_700)).await;
            let start = world.now();
            leases.close().await;
            world.ms_since(start)
        };
        let (waited, closed) = join(leases.lock("slow").acquire(), close).await;
        assert!(matches!(waited, Err(AcquireError::Closed)), "{waited:?}");
        assert!(closed <= 1_000 + SHORT, "{closed} ms");
        drop(guard);
        let start = world.now();
        let _guard = manager(&store, world.sim.context()).lock("mine").acquire().await.unwrap();
        assert!(world.ms_since(start) <= SHORT, "it was released");
    });
}

/// The store is asked whether a writer still waits, and cannot say.
#[test]
fn a_try_that_shares_beside_readers_of_its_own_context_is_answered_while_the_key_is_locked() {
    everywhere(async |world| {
        for asks in [false, true] {
            let (store, leases) = open(world);
            let other = manager(&store, world.sim.context());
            let first = leases.lock("k").shared().acquire().await.unwrap();
            let mut write = Box::pin(other.lock("k").acquire());
            assert!(world.within(ms(1_000), &mut write).await.is_none());
            store.lock("k");
            let verify = async {
                if asks {
                    assert!(first.verify().await.is_err());
                }
            };
            let start = world.now();
            let both = world.within(LEASE, join(verify, leases.lock("k").shared().try_acquire())).await;
            let ((), tried) = both.expect("it does not wait until the lock ends");
            assert!(
                tried.unwrap().is_none() && world.ms_since(start) <= 12_000,
                "{asks}: {} ms",
                world.ms_since(start)
            );
        }
    });
}
