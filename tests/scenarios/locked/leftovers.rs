//! What a context left in the store while a key was locked does not stand in its own way, nor in that of others.

use futures::future::{join, join_all};
use leasehold::{Mode, store::Fault};

use super::{SHORT, manager, open, unlock_after};
use crate::support::world::{LEASE, everywhere, ms};

/// A request that was given up while its key was locked leaves nothing behind.
#[test]
fn a_request_that_is_given_up_at_a_locked_key_leaves_neither_place_nor_lease() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lock("k");
        assert!(world.within(ms(1_200), leases.lock("k").acquire()).await.is_none());
        store.unlock("k");
        world.sim.pass(ms(600)).await;
        let other = manager(&store, world.sim.context());
        let start = world.now();
        let _guard = other.lock("k").acquire().await.unwrap();
        assert!(world.ms_since(start) <= SHORT);
    });
}

/// The first opening may have been carried out. The request that goes apart ends that session first, or it would find the key taken by its own context.
#[test]
fn a_request_that_goes_apart_does_not_meet_an_earlier_session_of_its_own_context() {
    everywhere(async |world| {
        for waits in [false, true] {
            let (store, leases) = open(world);
            let key = if waits { "k" } else { "l" };
            store.lose_answers(1);
            let unlock = async {
                world.sim.pass(ms(10)).await;
                store.lock(key);
                world.sim.pass(ms(560)).await;
                store.unlock(key);
            };
            let start = world.now();
            let ask = async {
                let got = if waits {
                    Some(leases.lock(key).acquire().await.unwrap())
                } else {
                    leases.lock(key).try_acquire().await.unwrap()
                };
                (got, world.ms_since(start))
            };
            let ((got, after), ()) = join(ask, unlock).await;
            assert!(got.is_some() && after < 1_000, "waits: {waits}, {after} ms, {}", got.is_some());
        }
    });
}

/// The store opened an earlier session, but the answer was lost. It is down for a moment while the request is sent separately.
#[test]
fn a_request_at_a_locked_key_does_not_meet_an_earlier_session_although_the_store_is_down_for_a_moment() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lose_answers(1);
        let trouble = async {
            world.sim.pass(ms(10)).await;
            store.lock("k");
            world.sim.pass(ms(300)).await;
            *store.down.lock().unwrap() = 3;
            world.sim.pass(ms(260)).await;
            store.unlock("k");
        };
        let start = world.now();
        let ask = async {
            let guard = leases.lock("k").timeout(LEASE * 3).acquire().await.unwrap();
            (guard, world.ms_since(start))
        };
        let ((_guard, after), ()) = join(ask, trouble).await;
        assert!(after < 3_000, "{after} ms");
    });
}

#[test]
fn what_was_dropped_at_a_locked_key_is_given_back_before_it_is_tried_again() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let guard = leases.lock("k").acquire().await.unwrap();
        store.lock("k");
        drop(guard);
        world.sim.pass(ms(515)).await;
        store.unlock("k");
        assert!(leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

#[test]
fn what_was_dropped_at_a_locked_key_is_given_back_before_it_is_tried_again_with_others() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let guard = leases.lock("k").acquire().await.unwrap();
        store.lock("k");
        drop(guard);
        world.sim.pass(ms(515)).await;
        store.unlock("k");
        let all = leases.lock_all([("k", Mode::Exclusive), ("l", Mode::Exclusive)]);
        assert!(all.try_acquire().await.unwrap().is_some());
    });
}

#[test]
fn what_was_dropped_while_the_store_refused_is_given_back_before_it_is_tried_again() {
    everywhere(async |world| {
        let tab = world.tab().with(|builder| builder.linger(ms(0)));
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        tab.store.inject(Fault::Refuse);
        drop(guard);
        world.sim.pass(ms(1)).await;
        assert!(tab.leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

/// Its withdrawal waits among enough others to fill several transactions.
#[test]
fn a_request_that_is_given_up_beside_thousands_of_others_leaves_no_lease() {
    everywhere(async |world| {
        for of_several in [false, true] {
            let (store, leases) = open(world);
            let _mine = leases.lock("mine").acquire().await.unwrap();
            let keys = [("k", Mode::Exclusive), ("l", Mode::Exclusive)];
            store.lock("k");
            *store.pace.lock().unwrap() = ms(40);
            let ask = async {
                match of_several {
                    true => world.within(ms(200), leases.lock_all(keys).try_acquire()).await.is_some(),
                    false => world.within(ms(200), leases.lock("k").acquire()).await.is_some(),
                }
            };
            let more = async {
                world.sim.pass(ms(100)).await;
                let keys: Vec<_> = (0..3_000).map(|number| format!("key {number}")).collect();
                let more = join_all(keys.iter().map(|key| leases.lock(key).acquire()));
                assert!(world.within(ms(2_000), more).await.is_some());
            };
            let unlock = unlock_after(world, ms(545), &store, "k");
            let ((is_granted, ()), _) = join(join(ask, more), unlock).await;
            assert!(!is_granted);
            world.sim.pass(ms(3_000)).await;
            let other = manager(&store, world.sim.context());
            let all = other.lock_all(keys).try_acquire().await.unwrap();
            assert!(all.is_some(), "nobody holds them, of several: {of_several}");
        }
    });
}
