//! At a locked key some wait, and all others take turns with them.

use futures::future::{join, join_all};
use leasehold::executor::Executor;

use super::{SHORT, open, unlock_after};
use crate::support::world::{LEASE, everywhere, ms};

#[test]
fn a_key_that_stays_locked_delays_each_other_request_once_at_most() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lock("slow");
        let slow = leases.lock("slow").acquire();
        let others = async {
            world.sim.pass(ms(100)).await;
            for number in 0..5 {
                let more = leases.clone();
                world.sim.spawn(Box::pin(async move { drop(more.lock("slow").shared().try_acquire().await) }));
                let start = world.now();
                let guard = leases.lock(&format!("quick {number}")).acquire().await.unwrap();
                let acquired = world.ms_since(start);
                guard.release().await.unwrap();
                let both = world.ms_since(start);
                assert!(acquired <= 500 + SHORT && both <= 1_000 + SHORT, "{number}: {acquired}, {both} ms");
            }
            store.unlock("slow");
            world.now()
        };
        let (slow, unlocked) = join(slow, others).await;
        assert!(slow.unwrap().is_valid());
        assert!(world.ms_since(unlocked) <= SHORT * 2, "granted {} ms after the lock ended", world.ms_since(unlocked));
    });
}

/// All keys go in one transaction at first. Then each goes alone, which shows the locked one.
#[test]
fn what_was_asked_for_at_the_same_moment_does_not_wait_for_the_locked_key() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lock("key 7");
        let start = world.now();
        let acquire = async |number: usize| {
            let guard = leases.lock(&format!("key {number}")).acquire().await.unwrap();
            (guard, world.ms_since(start))
        };
        let unlock = async {
            world.sim.pass(LEASE).await;
            store.unlock("key 7");
        };
        let (granted, _) = join(join_all((0..64).map(acquire)), unlock).await;
        for (number, (guard, after)) in granted.iter().enumerate() {
            assert!(guard.is_valid());
            // All keys went together once, and then each alone.
            assert!(number == 7 || *after <= 2 * 500 + 64 * 2, "key {number}: {after} ms");
        }
    });
}

#[test]
fn locked_keys_take_turns() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let slow = ["a", "b", "c"];
        slow.iter().for_each(|key| store.lock(key));
        let acquire = async |key: &str| {
            let guard = leases.lock(key).acquire().await.unwrap();
            (guard, world.now())
        };
        let unlock = async {
            world.sim.pass(ms(4_000)).await;
            store.unlock("b");
            let unlocked = world.now();
            world.sim.pass(LEASE / 4).await;
            slow.iter().for_each(|key| store.unlock(key));
            unlocked
        };
        let (granted, unlocked) = join(join_all(slow.iter().map(|key| acquire(key))), unlock).await;
        let after = granted[1].1.since(unlocked);
        assert!(after <= 1_000 + 4 * SHORT, "after {after} ms");
        assert!(granted[0].1.since(unlocked) > 5_000, "the others were locked for longer");
    });
}

/// Each key goes alone only while one of them is locked.
#[test]
fn transactions_are_large_again_after_the_lock() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lock("key 7");
        let keys: Vec<_> = (0..256).map(|number| format!("key {number}")).collect();
        let unlock = unlock_after(world, ms(2_000), &store, "key 7");
        let (guards, _) = join(join_all(keys.iter().map(|key| leases.lock(key).acquire())), unlock).await;
        assert!(guards.iter().all(Result::is_ok));
        drop(guards);
        world.sim.pass(ms(1_000)).await;
        store.take_refused();
        let start = world.now();
        let again = join_all(keys.iter().map(|key| leases.lock(key).acquire())).await;
        assert!(again.iter().all(Result::is_ok));
        assert!(world.ms_since(start) <= 5, "in {} ms, 1 ms for each transaction", world.ms_since(start));
        assert_eq!(store.take_refused(), 0);
    });
}

/// Requests at another locked key come and go all the time.
#[test]
fn a_request_is_not_overtaken_for_ever_by_those_at_another_locked_key() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let _mine = leases.lock("mine").acquire().await.unwrap();
        store.lock("a");
        store.lock("b");
        let crowd = async {
            loop {
                let _ = world.within(ms(100), leases.lock("a").acquire()).await;
            }
        };
        let wait = async {
            let ask = async {
                let guard = leases.lock("b").timeout(LEASE * 3).acquire().await.unwrap();
                (guard, world.now())
            };
            let unlock = unlock_after(world, ms(2_000), &store, "b");
            let ((_guard, granted), unlocked) = join(ask, unlock).await;
            assert!(granted.since(unlocked) <= 2_000, "{} ms", granted.since(unlocked));
        };
        futures::future::select(Box::pin(wait), Box::pin(crowd)).await;
    });
}
