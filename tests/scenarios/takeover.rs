//! Dead and silent holders: S4, S5, and what beacons and watching are for.

use std::{cell::Cell, pin::pin};

use futures::future::join_all;
use leasehold::executor::Executor;
use leasehold::machine::StoreClock;
use leasehold::store::Fault;
use leasehold::{LeaseManager, LostReason};

use crate::support::doubles::SlowStore;
use crate::support::world::{HEARTBEAT, LEASE, World, everywhere, ms, secs};

/// S4: `test_timeout_lock`: renewal stopped.
#[test]
fn s4_a_holder_that_cannot_renew_is_overtaken_and_told() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Refuse));
        let next = two.leases.lock("k").acquire().await.unwrap();
        assert!(!guard.is_valid(), "the old guard stopped being valid before the new one came into being");
        assert!(next.token() > guard.token());
        one.store.fail_always(None);
        assert_eq!(guard.lost().await, LostReason::Expired);
        assert!(next.is_valid(), "the old context's renewals touch nothing of the new holder's");
        world.sim.pass(LEASE).await;
        assert!(next.is_valid() && !guard.is_valid());
    });
}

/// S5: `test_drop`: a context that vanishes without a word, as in a crash.
#[test]
fn s5_a_crashed_holder_without_beacon_is_replaced_after_a_lease() {
    for seed in 0..8 {
        let world = World::with_clock(seed, StoreClock::Observed);
        world.run(async {
            let (one, two) = (world.dark_tab(), world.dark_tab());
            let guard = one.leases.lock("k").acquire().await.unwrap();
            one.executor.kill();
            let limit = LEASE + LEASE / 10 + HEARTBEAT + ms(1_000);
            let next = world.within(limit, two.leases.lock("k").acquire()).await;
            assert!(next.expect("replaced within lease (1 + m) + heartbeat + 1 s").unwrap().is_valid());
            assert!(!guard.is_valid());
        });
    }
}

/// More keys wait than one context remembers the holders of.
#[test]
fn a_crashed_holder_of_very_many_keys_is_replaced_in_all_of_them() {
    let world = World::with_clock(1, StoreClock::Observed);
    world.run(async {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let names: Vec<_> = (0..300).map(|key| format!("k{key}")).collect();
        let _guards = join_all(names.iter().map(|name| one.leases.lock(name).acquire())).await;
        one.executor.kill();
        let served = Cell::new(0);
        let waits = join_all(names.iter().map(|name| async {
            let guard = two.leases.lock(name).acquire().await;
            served.set(served.get() + 1);
            guard
        }));
        let all = world.within(secs(600), waits).await;
        assert!(all.is_some(), "{} of {} after ten minutes", served.get(), names.len());
    });
}

/// The same with beacons, which stand while the context lives and vanish with it.
#[test]
fn a_context_that_vanishes_takes_its_beacon_along_and_is_replaced_at_once() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let take_over = async { two.leases.lock("k").timeout(ms(100)).acquire().await };
        let crash = async {
            world.sim.pass(ms(10)).await;
            one.executor.kill();
            // What a crash does: nothing of the context runs again, not even its destructors.
            leasehold_vanish(guard, one);
        };
        let (next, ()) = futures::join!(take_over, crash);
        assert!(next.unwrap().is_valid());
    });
}

/// A waiter watches those who are ahead of it. A thief comes past it, and is to be watched from then on.
#[test]
fn a_thief_that_vanishes_is_replaced_at_once_by_who_waited_before() {
    everywhere(async |world| {
        let (one, two, thief) = (world.tab(), world.tab(), world.tab());
        let _robbed = one.leases.lock("k").acquire().await.unwrap();
        let mut waiting = pin!(two.leases.lock("k").acquire().into_future());
        assert!(world.within(ms(100), waiting.as_mut()).await.is_none());
        let guard = thief.leases.lock("k").steal().await.unwrap();
        assert!(world.within(ms(100), waiting.as_mut()).await.is_none());
        thief.executor.kill();
        leasehold_vanish(guard, thief);
        assert!(world.within(ms(500), waiting).await.is_some_and(|told| told.is_ok()), "it is replaced at once");
    });
}

/// Drops a context whose executor and store are dead: its memory goes, its voice does not sound.
fn leasehold_vanish(guard: leasehold::LeaseGuard, tab: crate::support::world::Tab) {
    tab.store.fail_always(Some(Fault::Fail));
    drop(guard);
    drop(tab);
}

#[test]
fn a_waiter_that_vanishes_does_not_block_the_queue() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let mut dead = Box::pin(two.leases.lock("k").acquire());
        assert!(futures::poll!(dead.as_mut()).is_pending());
        let wait = async { three.leases.lock("k").acquire().await.unwrap() };
        let events = async {
            world.sim.pass(ms(10)).await;
            two.executor.kill();
            two.store.fail_always(Some(Fault::Fail));
            drop(dead);
            drop(two);
            world.sim.pass(ms(10)).await;
            guard.release().await.unwrap();
        };
        let (granted, ()) = futures::join!(world.within(ms(100), wait), events);
        assert!(granted.is_some(), "the next one alive is granted");
    });
}

/// Otherwise no simulation would have a dead waiter: each would have left the queue properly.
#[test]
fn a_waiter_that_crashed_stands_in_the_queue_until_its_silence_ends_it() {
    everywhere(async |world| {
        let (one, two, three) = (world.dark_tab(), world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let mut dead = Box::pin(two.leases.lock("k").acquire());
        assert!(futures::poll!(dead.as_mut()).is_pending());
        world.sim.pass(ms(10)).await;
        two.executor.kill();
        world.sim.pass(ms(10)).await;
        let waiting = async || three.leases.status("k").await.unwrap().queue.len();
        assert_eq!(waiting().await, 1, "it told nobody");
        // A request that is told of the end of its runtime queues again when it is polled.
        assert!(futures::poll!(dead.as_mut()).is_pending(), "nobody is there to hear of an end");
        assert_eq!(waiting().await, 1, "it told nobody");
        two.store.fail_always(Some(Fault::Fail));
        drop(dead);
        let next = three.leases.lock("k").acquire();
        guard.release().await.unwrap();
        let asked = world.now();
        assert!(next.await.is_ok());
        assert!(ms(world.ms_since(asked)) >= LEASE, "the dead one was granted first");
    });
}

/// A slow holder is not mistaken for a dead one, whatever the wall clocks say.
#[test]
fn wall_clock_jumps_neither_lose_nor_grant_a_lease() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let mut last = guard.token();
        for jump_ms in [86_400_000, -2 * 86_400_000, 31_536_000_000, -31_536_000_000] {
            world.sim.set_wall_clock(jump_ms);
            assert!(!guard.is_valid(), "after a jump nothing is believed until the store has answered");
            assert!(guard.verify().await.unwrap());
            assert!(guard.is_valid());
            assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
            world.sim.pass(LEASE * 2).await;
            assert!(guard.is_valid());
            let other = two.leases.lock("other").acquire().await.unwrap();
            assert!(other.token() > leasehold::Token::default());
            let own = one.leases.lock("grows").acquire().await.unwrap();
            assert!(own.token() > last || jump_ms < 0);
            last = own.token().max(last);
        }
    });
}

/// Rule i.
#[test]
fn a_silent_holder_is_watched_from_after_the_answer_that_named_it() {
    let world = World::new(1);
    world.run(async {
        let (one, tab) = (world.dark_tab(), world.tab());
        let _held = one.leases.lock("k").acquire().await.unwrap();
        one.executor.kill();
        let slow = SlowStore::new(tab.store, tab.executor.clone(), 2_000..=2_000);
        let two = LeaseManager::builder(slow, tab.executor).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap();
        let asked = world.sim.now().monotonic;
        drop(two.lock("k").acquire().await.unwrap());
        let waited = ms(world.sim.now().monotonic.since(asked));
        assert!(waited >= LEASE + LEASE / 10 + ms(2 * 4_000), "the next came after {waited:?}");
    });
}
