//! Synapse's `tests/handlers/test_worker_lock.py`: waiting, here and in other workers: S16 to S20.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    time::Duration,
};

use futures::future::join_all;
use leasehold::{
    LeaseGuard,
    executor::Executor,
    machine::{BLOCK, StoreClock},
};

use crate::support::{
    doubles::Deaf,
    world::{HEARTBEAT, LEASE, Tab, World, everywhere, ms, secs},
};

const HOUR: Duration = secs(3_600);

/// A silent holder is replaced by then: its lease and the margin, the time until the onlooker asks, and a second.
fn replaced_in() -> Duration {
    LEASE + LEASE / 10 + HEARTBEAT + secs(1)
}

/// S16: `test_wait_for_lock_locally`.
#[test]
fn s16_a_local_waiter_is_served_at_the_release() {
    everywhere(async |world| {
        let tab = world.tab();
        let held = tab.leases.lock("k").acquire().await.unwrap();
        let mut waiting = pin!(tab.leases.lock("k").acquire());
        assert!(world.within(LEASE, &mut waiting).await.is_none());
        tab.store.take_seen();
        let released_at = world.sim.now();
        drop(held);
        assert!(waiting.await.unwrap().is_valid());
        assert_eq!(world.sim.now(), released_at, "at once");
        assert!(tab.store.take_seen().is_empty(), "by word of mouth, without the store");
    });
}

/// S17: `test_timeouts_for_lock_locally`: the waiter waits for an hour, then the holder forgets its lease.
#[test]
fn s17_a_local_waiter_of_an_hour_is_served_when_the_holder_falls_silent() {
    everywhere(async |world| {
        let tab = world.tab();
        let held = tab.leases.lock("k").auto_renew(false).acquire().await.unwrap();
        let mut waiting = pin!(tab.leases.lock("k").acquire());
        for _ in 0..HOUR.as_secs() / HEARTBEAT.as_secs() {
            assert!(held.verify().await.unwrap());
            assert!(world.within(HEARTBEAT, &mut waiting).await.is_none());
        }
        std::mem::forget(held);
        let next = world.within(replaced_in(), waiting).await;
        assert!(next.expect("no later than after a lease").unwrap().is_valid());
    });
}

/// S18: `test_lock_contention`: 500 who wait for one turn each.
#[test]
fn s18_five_hundred_local_waiters_cost_little() {
    everywhere(async |world| {
        let (tab, order) = (world.tab(), Queue::default());
        let held = tab.leases.lock("k").acquire().await.unwrap();
        tab.store.take_seen();
        let waiting = join_all((0..500).map(|number| order.wait(world, &tab, number)));
        let release = async {
            world.sim.pass(ms(10)).await;
            drop(held);
        };
        futures::join!(waiting, release);
        order.check(500, 2);
        let seen = tab.store.take_seen().len() as u64;
        assert!(seen <= 500 / BLOCK + 1, "{seen} transactions: more than to reserve 500 tokens");
    });
}

/// S18 between contexts: ten who wait in each of fifty.
#[test]
fn s18_five_hundred_waiters_of_fifty_contexts_cost_little() {
    for (seed, clock) in [(1, StoreClock::Trusted), (2, StoreClock::Observed)] {
        let world = World::with_clock(seed, clock);
        world.run(async {
            let (holder, order) = (world.tab(), Queue::default());
            let tabs: Vec<_> = (0..50).map(|_| world.tab()).collect();
            let held = holder.leases.lock("k").acquire().await.unwrap();
            let waiting = join_all((0..500).map(|number| order.wait(&world, &tabs[number % 50], number)));
            let release = async {
                world.sim.pass(ms(10)).await;
                drop(held);
            };
            futures::join!(waiting, release);
            order.check(500, 2);
            let seen: usize = tabs.iter().map(|tab| tab.store.take_seen().len()).sum();
            assert!(seen <= 50 * 4, "{seen} transactions: ask, adopt, give back, and no more");
        });
    }
}

/// Who had a turn, and how often whoever waits was woken.
#[derive(Default)]
struct Queue {
    served: Cell<usize>,
    inside: Cell<usize>,
    most_polls: Cell<usize>,
}

impl Queue {
    async fn wait(&self, world: &World, tab: &Tab, number: usize) {
        let guard = self.counted(tab.leases.lock("k").acquire()).await.unwrap();
        self.inside.set(self.inside.get() + 1);
        assert_eq!(self.inside.get(), 1);
        if number.is_multiple_of(10) {
            world.sim.pass(ms(1)).await;
        }
        assert!(guard.is_valid());
        self.inside.set(self.inside.get() - 1);
        self.served.set(self.served.get() + 1);
    }

    /// Notes how often a future was polled until it was ready.
    async fn counted<T>(&self, future: impl Future<Output = T>) -> T {
        let (mut future, mut polls) = (pin!(future), 0);
        let value = poll_fn(|context| {
            polls += 1;
            future.as_mut().poll(context)
        });
        let value = value.await;
        self.most_polls.set(self.most_polls.get().max(polls));
        value
    }

    fn check(&self, served: usize, most_polls: usize) {
        assert_eq!(self.served.get(), served);
        let polls = self.most_polls.get();
        assert!(polls <= most_polls, "a waiter was woken {polls} times for one turn");
    }
}

/// Another worker waits for an hour; it renews its place, and does nothing else.
async fn saturated(world: &World, waiter: &Tab, mut waiting: impl Future<Output = LeaseGuard> + Unpin) -> Duration {
    assert!(world.within(HOUR, &mut waiting).await.is_none());
    let asks = waiter.store.take_seen().len() as u64;
    let heartbeats = HOUR.as_secs() / HEARTBEAT.as_secs();
    assert!(asks <= heartbeats * 5 / 4, "{asks} transactions in {heartbeats} heartbeats");
    let start = world.sim.now().monotonic;
    assert!(waiting.await.is_valid());
    ms(world.sim.now().monotonic.since(start))
}

/// S19: `test_wait_for_lock_worker`.
#[test]
fn s19_a_waiter_of_another_worker_is_told_of_the_release() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let wait = Box::pin(async { two.leases.lock("k").acquire().await.unwrap() });
        let release = async {
            world.sim.pass(HOUR + ms(3)).await;
            held.release().await.unwrap();
        };
        let (served_in, _) = futures::join!(saturated(world, &two, wait), release);
        assert_eq!(served_in, ms(3), "in the moment of the release");
    });
}

/// S20: `test_timeouts_for_lock_worker`: the holder dies, and nobody tells.
#[test]
fn s20_a_waiter_of_another_worker_is_served_when_the_holder_dies() {
    everywhere(async |world| {
        let deaf = || world.dark_tab().with(|builder| builder.beacon(false).signals(Deaf));
        let (one, two) = (deaf(), deaf());
        let held = one.leases.lock("k").acquire().await.unwrap();
        let wait = Box::pin(async { two.leases.lock("k").acquire().await.unwrap() });
        let die = async {
            world.sim.pass(HOUR).await;
            one.executor.kill();
            one.store.fail_always(Some(leasehold::store::Fault::Fail));
            held.clone()
        };
        let (served_in, held) = futures::join!(saturated(world, &two, wait), die);
        assert!(served_in <= replaced_in(), "served after {served_in:?}");
        assert!(!held.is_valid());
    });
}
