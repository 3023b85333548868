//! Where two things happen at once: each of these went wrong once.

mod sessions;
mod upgrades;

use std::time::Duration;

use futures::future::poll_immediate;
use leasehold::{LeaseState, LostReason, Mode, executor::Executor, store::Fault};

use crate::support::{
    world::{HEARTBEAT, LEASE, everywhere, ms, secs},
    yard::yard,
};

#[test]
fn a_request_that_waits_for_tokens_outlives_the_linger() {
    yard(async |yard| {
        let leases = yard.slow(100);
        for _ in 0..64 {
            let guard = leases.lock("k").acquire().await.unwrap();
            drop(guard);
        }
        let next = yard.within(secs(60), leases.lock("k").acquire()).await;
        assert!(next.is_some_and(|next| next.is_ok()), "it waited for ever");
    });
}

/// By a wish of another context.
#[test]
fn a_request_in_doubt_outlives_the_linger() {
    yard(async |yard| {
        let leases = yard.slow(100);
        drop(leases.lock("k").acquire().await.unwrap());
        yard.sim.set_wall_clock(3_600_000);
        let next = yard.within(secs(60), leases.lock("k").acquire()).await;
        assert!(next.is_some_and(|next| next.is_ok()), "it waited for ever");
    });
}

#[test]
fn a_thief_whose_context_queues_already_goes_first() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let robbed = one.leases.lock("k").acquire().await.unwrap();
        let mut second = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut second).await.is_none());
        let mut third = Box::pin(three.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut third).await.is_none());
        let thief = world.within(ms(100), three.leases.lock("k").steal()).await;
        assert!(thief.is_some_and(|thief| thief.is_ok()), "somebody else got what it stole");
        assert_eq!(robbed.lost().await, LostReason::Stolen);
    });
}

#[test]
fn who_got_it_instead_is_not_robbed_too() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let _robbed = one.leases.lock("k").acquire().await.unwrap();
        let mut second = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut second).await.is_none());
        let mut third = Box::pin(three.leases.lock("k").acquire());
        assert!(world.within(ms(100), &mut third).await.is_none());
        let mut thief = Box::pin(three.leases.lock("k").steal());
        let stolen = world.within(ms(100), &mut thief).await;
        drop(stolen);
        let second = world.within(secs(1), second).await;
        if let Some(second) = second {
            assert!(world.within(secs(30), second.unwrap().lost()).await.is_none(), "robbed by a heartbeat");
        }
    });
}

#[test]
fn trying_for_several_keys_replaces_a_dead_holder() {
    everywhere(async |world| {
        let (one, two) = (world.dark_tab(), world.dark_tab());
        let held = one.leases.lock("a").acquire().await.unwrap();
        one.store.fail_always(Some(Fault::Stall));
        one.executor.kill();
        std::mem::forget(held);
        let keys = [("a", Mode::Exclusive), ("b", Mode::Exclusive)];
        for _ in 0..60 {
            if two.leases.lock_all(keys).try_acquire().await.unwrap().is_some() {
                return;
            }
            world.sim.pass(secs(1)).await;
        }
        panic!("its holder is dead for a minute");
    });
}

#[test]
fn holding_for_no_time_is_refused_or_lost_but_ends() {
    yard(async |yard| {
        let leases = yard.slow(10);
        let guard = yard.within(secs(10), leases.lock("k").max_hold(Duration::ZERO).acquire()).await;
        assert!(guard.is_some(), "asks for ever");
        let guard = yard.within(secs(10), leases.lock("k").max_hold(Duration::ZERO).try_acquire()).await;
        assert!(guard.is_some(), "asks for ever");
    });
}

#[test]
fn an_extension_ends_with_its_guard() {
    yard(async |yard| {
        let leases = yard.slow(1);
        let first = leases.lock("k").acquire().await.unwrap();
        first.extend(secs(3_600)).await.unwrap();
        drop(first);
        let _second = leases.lock("k").acquire().await.unwrap();
        yard.sim.pass(HEARTBEAT * 2).await;
        let holder = leases.status("k").await.unwrap().holders.remove(0);
        let now = yard.sim.now().wall;
        assert!(holder.expires_at < now.plus(60_000), "{:?} at {now:?}", holder.expires_at);
    });
}

#[test]
fn a_try_to_share_ends_although_the_store_is_down() {
    yard(async |yard| {
        let (one, store) = yard.faulty();
        let guard = one.lock("k").shared().acquire().await.unwrap();
        store.fail_always(Some(Fault::Refuse));
        yard.sim.pass(LEASE).await;
        assert!(!guard.is_valid());
        let tried = yard.within(LEASE * 2, one.lock("k").shared().try_acquire()).await;
        assert!(tried.is_some(), "it waits for the store for ever");
        store.heal();
        yard.sim.pass(HEARTBEAT * 2).await;
        assert!(guard.is_valid());
    });
}

#[test]
fn a_watch_hears_that_a_lease_was_taken_out_of_its_guard() {
    yard(async |yard| {
        let leases = yard.slow(1);
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut watch = guard.watch();
        let mut changed = Box::pin(watch.changed());
        assert!(poll_immediate(&mut changed).await.is_none());
        let _parts = guard.into_parts();
        assert_eq!(yard.within(secs(1), changed).await, Some(LeaseState::Released));
    });
}
