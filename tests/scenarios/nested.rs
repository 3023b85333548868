//! A request that is nested in the work of another one, whose lease it shares.

use futures::future::join;
use leasehold::{LeaseGuard, LeaseManager, LeaseRequest};

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
