//! A request that is nested in the work of another one, whose lease it shares.

use futures::future::join;
use leasehold::{
    LeaseGuard, LeaseManager, LeaseRequest,
    executor::Lifecycle,
    store::{Fault, Store},
};

use crate::support::world::{World, everywhere, ms, secs};

/// A lease that was held for longer than this is not handed on within its context while others wait.
const LONG_MS: u64 = 100;

fn shares(leases: &LeaseManager, reads: bool) -> LeaseRequest {
    let request = leases.lock("k").share_in_process();
    if reads { request.shared() } else { request }
}

/// Asks for the lease that this guard has, again and again.
async fn nest(world: &World, leases: &LeaseManager, reads: bool, outer: &LeaseGuard) {
    for _ in 0..40 {
        let inner = shares(leases, reads).acquire().await.unwrap();
        world.sim.pass(ms(LONG_MS)).await;
        let tried = shares(leases, reads).try_acquire().await.unwrap();
        assert!(outer.is_valid() && inner.is_valid() && tried.expect("its context shares it").is_valid());
        inner.release().await.unwrap();
    }
}

/// The work would wait for its own end.
#[test]
fn work_that_asks_for_its_own_lease_shares_it_whoever_waits() {
    everywhere(async |world| {
        for (reads, own) in [(false, false), (false, true), (true, false), (true, true)] {
            let (one, two) = (world.tab(), world.tab());
            let outer = shares(&one.leases, reads).acquire().await.unwrap();
            let waiter = if own { &one } else { &two };
            let waits = async { waiter.leases.lock("k").acquire().await.unwrap().release().await.unwrap() };
            let works = async {
                world.sim.pass(ms(LONG_MS)).await;
                nest(world, &one.leases, reads, &outer).await;
                outer.release().await.unwrap();
            };
            let done = world.within(secs(10), join(works, waits)).await;
            assert!(done.is_some(), "reads: {reads}, its own context waits: {own}");
        }
    });
}

/// An upgrade waits until nobody else shares, and the work of those who share must be able to end.
#[test]
fn work_that_asks_for_its_own_lease_shares_it_while_another_one_upgrades() {
    everywhere(async |world| {
        let one = world.tab();
        let outer = shares(&one.leases, true).acquire().await.unwrap();
        let other = shares(&one.leases, true).acquire().await.unwrap();
        let upgrades = async { assert!(other.upgrade().await.is_ok()) };
        let works = async {
            world.sim.pass(ms(LONG_MS)).await;
            nest(world, &one.leases, true, &outer).await;
            outer.release().await.unwrap();
        };
        assert!(world.within(secs(10), join(works, upgrades)).await.is_some());
    });
}

/// Only who shares is let in: others of the context keep their turn.
#[test]
fn who_does_not_share_waits_for_those_who_do() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let outer = shares(&one.leases, false).acquire().await.unwrap();
        let mut waits = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(LONG_MS), &mut waits).await.is_none());
        let mut plain = Box::pin(one.leases.lock("k").acquire());
        assert!(world.within(ms(LONG_MS), &mut plain).await.is_none());
        outer.release().await.unwrap();
        let next = world.within(ms(LONG_MS), waits).await.expect("it came first").unwrap();
        assert!(world.within(ms(LONG_MS), &mut plain).await.is_none());
        next.release().await.unwrap();
        assert!(world.within(ms(LONG_MS), plain).await.expect("it is its turn").unwrap().is_valid());
    });
}

/// The request comes before the store has answered the upgrade.
#[test]
fn a_nested_request_made_during_an_upgrade_joins_the_lease() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let other = two.leases.lock("k").shared().acquire().await.unwrap();
        let outer = shares(&one.leases, true).acquire().await.unwrap();
        let works = async {
            let nested = async {
                world.sim.pass(ms(1)).await;
                shares(&one.leases, true).acquire().await.unwrap()
            };
            let (upgraded, inner) = join(outer.upgrade(), nested).await;
            assert!(upgraded.is_ok() && inner.is_valid());
        };
        let frees = async {
            world.sim.pass(ms(LONG_MS)).await;
            other.release().await.unwrap();
        };
        assert!(world.within(secs(600), join(works, frees)).await.is_some());
    });
}

/// While the store is asked for an upgrade, no request joins the lease.
#[test]
fn after_an_upgrade_is_given_up_a_nested_request_goes_before_those_who_do_not_share() {
    everywhere(async |world| {
        let (one, two, three) = (world.tab(), world.tab(), world.tab());
        let _other = two.leases.lock("k").shared().acquire().await.unwrap();
        let outer = shares(&one.leases, true).acquire().await.unwrap();
        world.sim.pass(ms(LONG_MS)).await;
        let mut waits = Box::pin(three.leases.lock("k").acquire());
        let mut plain = Box::pin(one.leases.lock("k").shared().acquire());
        let mut nested = Box::pin(shares(&one.leases, true).acquire());
        let mut upgrade = Box::pin(outer.upgrade());
        assert!(world.within(ms(10), &mut waits).await.is_none());
        assert!(world.within(ms(10), &mut upgrade).await.is_none());
        assert!(world.within(ms(10), &mut plain).await.is_none());
        assert!(world.within(ms(10), &mut nested).await.is_none());
        drop(upgrade);
        assert!(world.within(secs(600), nested).await.is_some_and(|inner| inner.is_ok()));
    });
}

/// Readers of one manager share a lease even if they did not ask for that.
#[test]
fn a_nested_request_joins_beside_a_reader_that_does_not_share() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let outer = shares(&one.leases, true).acquire().await.unwrap();
        let reader = one.leases.lock("k").shared().acquire().await.unwrap();
        let mut waits = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(ms(LONG_MS), &mut waits).await.is_none());
        let mut plain = Box::pin(one.leases.lock("k").shared().acquire());
        assert!(world.within(ms(10), &mut plain).await.is_none());
        let inner = world.within(ms(10), shares(&one.leases, true).acquire()).await;
        assert!(inner.is_some_and(|inner| inner.is_ok()) && reader.is_valid() && outer.is_valid());
    });
}

/// The nested request waits until the lease is beyond doubt. Meanwhile a more urgent request comes.
#[test]
fn a_nested_request_joins_after_a_doubt_whoever_came_meanwhile() {
    everywhere(async |world| {
        let one = world.tab();
        let outer = shares(&one.leases, false).acquire().await.unwrap();
        one.store.inject(Fault::Stall);
        one.executor.tell(Lifecycle::Shown);
        let mut nested = Box::pin(shares(&one.leases, false).timeout(secs(3_600)).acquire());
        assert!(world.within(ms(1), &mut nested).await.is_none());
        let mut urgent = Box::pin(one.leases.lock("k").priority(1).timeout(secs(3_600)).acquire());
        assert!(world.within(ms(1), &mut urgent).await.is_none());
        let inner = world.within(secs(600), nested).await;
        assert!(inner.is_some_and(|inner| inner.is_ok()) && outer.is_valid());
    });
}

/// If the lease turns out to be lost, the nested request has nothing to join, and queues behind the more urgent one.
#[test]
fn a_more_urgent_request_keeps_its_priority_in_the_queue_beside_a_nested_one() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let _outer = shares(&one.leases, false).acquire().await.unwrap();
        let mut urgent = Box::pin(one.leases.lock("k").priority(10).timeout(secs(3_600)).acquire());
        assert!(world.within(ms(LONG_MS), &mut urgent).await.is_none());
        let mut waits = Box::pin(two.leases.lock("k").priority(20).acquire());
        assert!(world.within(ms(LONG_MS), &mut waits).await.is_none());
        one.store.inject(Fault::Stall);
        one.executor.tell(Lifecycle::Shown);
        let mut nested = Box::pin(shares(&one.leases, false).timeout(secs(3_600)).acquire());
        assert!(world.within(ms(10), &mut nested).await.is_none());
        world.shared.abandon(one.leases.session());
        let _next = world.within(secs(60), waits).await.expect("the session has ended").unwrap();
        world.sim.pass(secs(10)).await;
        let queue = two.leases.status("k").await.unwrap().queue;
        assert_eq!(queue.iter().map(|waiter| waiter.priority).collect::<Vec<_>>(), [10]);
    });
}
