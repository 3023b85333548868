//! Names: of a context that outlives its incarnations (X8), and of keys that the store does not show.

use leasehold::{
    AcquireError, InvalidKey, InvalidOptions, LeaseManager, Mode, executor::SimExecutor, store::MemoryStore,
};

use crate::support::world::{HEARTBEAT, LEASE, Tab, World, everywhere, ms, secs};

/// How long it takes to tell a living twin from a page that is being reloaded.
const VERDICT_MS: u64 = 250;

fn worker(world: &World) -> Tab {
    world.tab().with(|builder| builder.instance("worker-1"))
}

fn dark_worker(world: &World) -> Tab {
    world.tab().with(|builder| builder.instance("worker-1").beacon(false))
}

fn in_use() -> AcquireError {
    AcquireError::InstanceInUse { key: "k".into(), instance: "worker-1".into() }
}

/// X8: after a restart the leases of the dead incarnation are had at once; those of a living twin are refused.
#[test]
fn x8_a_restart_takes_over_at_once_and_a_live_twin_is_refused() {
    everywhere(async |world| {
        for waits in [false, true] {
            let ask = async |tab: &Tab| {
                let request = tab.leases.lock("k");
                if waits { request.acquire().await.map(Some) } else { request.try_acquire().await }
            };
            let dead = worker(world);
            let guard = ask(&dead).await.unwrap().unwrap();
            let token = guard.token();
            dead.crash(guard);
            let start = world.now();
            let restarted = worker(world);
            let guard = ask(&restarted).await.unwrap().expect("its own dead incarnation is no obstacle");
            assert_eq!(world.ms_since(start), 0);
            assert!(guard.token() > token);

            let twin = worker(world);
            assert_eq!(ask(&twin).await.unwrap_err(), in_use());
            assert_eq!(world.ms_since(start), VERDICT_MS);
            assert!(guard.is_valid());
            assert!(restarted.leases.status("k").await.unwrap().queue.is_empty(), "the twin left no place");
            assert!(twin.leases.lock("free").acquire().await.is_ok(), "only what the other one holds is refused");
            guard.release().await.unwrap();
        }
    });
}

/// A page that is reloaded overlaps with itself for a moment.
#[test]
fn a_twin_that_dies_within_the_verdict_is_taken_over() {
    everywhere(async |world| {
        for waits in [false, true] {
            let old = worker(world);
            let guard = old.leases.lock("k").acquire().await.unwrap();
            let new = worker(world);
            let ask = async {
                let request = new.leases.lock("k");
                if waits { Some(request.acquire().await.unwrap()) } else { request.try_acquire().await.unwrap() }
            };
            let end = async {
                world.sim.pass(ms(VERDICT_MS - 1)).await;
                old.crash(guard);
            };
            let start = world.now();
            let (taken, ()) = futures::join!(ask, end);
            assert!(taken.expect("it died in time").is_valid());
            assert_eq!(world.ms_since(start), VERDICT_MS - 1);
        }
    });
}

/// The twin stays alive, but by then another context holds the key.
#[test]
fn a_twin_that_gives_the_key_back_within_the_verdict_refuses_nobody() {
    everywhere(async |world| {
        for reads in [false, true] {
            let (old, other, new) = (worker(world), world.tab(), worker(world));
            let mode = if reads { Mode::Shared } else { Mode::Exclusive };
            let guard = old.leases.lock("k").mode(mode).acquire().await.unwrap();
            let mut next = Box::pin(other.leases.lock("k").mode(mode).acquire());
            let next_guard = world.within(ms(10), &mut next).await;
            let mut waits = Box::pin(new.leases.lock("k").acquire());
            assert!(world.within(ms(100), &mut waits).await.is_none());
            guard.release().await.unwrap();
            assert!(world.within(secs(1), &mut waits).await.is_none(), "another context holds the key");
            let next_guard = if let Some(guard) = next_guard { guard } else { next.await };
            next_guard.unwrap().release().await.unwrap();
            assert!(waits.await.is_ok());
        }
    });
}

/// Without a beacon nobody knows yet whether the twin lives: a try is refused, and a wait is one like any other...
#[test]
fn a_silent_twin_without_a_beacon_is_waited_for() {
    everywhere(async |world| {
        let dead = dark_worker(world);
        let guard = dead.leases.lock("k").acquire().await.unwrap();
        dead.crash(guard);
        let restarted = dark_worker(world);
        let start = world.now();
        assert!(restarted.leases.lock("k").try_acquire().await.unwrap().is_none());
        assert_eq!(world.ms_since(start), VERDICT_MS);
        let limit = LEASE + LEASE / 10 + HEARTBEAT;
        assert!(world.within(limit, restarted.leases.lock("k").acquire()).await.expect("after its lease").is_ok());
    });
}

/// ... until it is seen to renew its lease.
#[test]
fn a_twin_that_renews_its_lease_is_alive() {
    everywhere(async |world| {
        let (one, two) = (dark_worker(world), dark_worker(world));
        let guard = one.leases.lock("k").acquire().await.unwrap();
        let refused = world.within(HEARTBEAT * 3, two.leases.lock("k").acquire()).await;
        assert_eq!(refused.expect("when it was seen to").unwrap_err(), in_use());
        assert!(guard.is_valid());
    });
}

#[test]
fn other_instances_are_no_twins() {
    everywhere(async |world| {
        let (one, two, nameless) =
            (worker(world), world.tab().with(|builder| builder.instance("worker-2")), world.tab());
        let guard = one.leases.lock("k").acquire().await.unwrap();
        for other in [&two, &nameless] {
            let start = world.now();
            assert!(other.leases.lock("k").try_acquire().await.unwrap().is_none());
            assert_eq!(world.ms_since(start), 0);
        }
        let mut wait = Box::pin(two.leases.lock("k").acquire());
        assert!(world.within(LEASE, &mut wait).await.is_none());
        let status = nameless.leases.status("k").await.unwrap();
        assert_eq!((status.holders[0].instance.as_str(), status.queue[0].instance.as_str()), ("worker-1", "worker-2"));
        guard.release().await.unwrap();
        assert!(world.within(ms(1), wait).await.is_some());
    });
}

#[test]
fn an_instance_has_a_name() {
    let builder = LeaseManager::builder(MemoryStore::new(), SimExecutor::new(0));
    assert_eq!(builder.instance("").build().unwrap_err(), InvalidOptions::Instance);
}

fn hidden(world: &World) -> Tab {
    world.tab().with(|builder| builder.key_codec(|key| key.chars().rev().collect()))
}

#[test]
fn a_codec_hides_the_names_of_keys_from_the_store() {
    everywhere(async |world| {
        let (one, two, plain) = (hidden(world), hidden(world), world.tab());
        let guard = one.leases.lock("notes").acquire().await.unwrap();
        assert_eq!(guard.key(), "notes");
        assert!(two.leases.lock("notes").try_acquire().await.unwrap().is_none(), "the same name, the same key");
        assert!(plain.leases.lock("notes").try_acquire().await.unwrap().is_some(), "the store knows it by another");
        assert!(plain.leases.lock("seton").try_acquire().await.unwrap().is_none());
        assert_eq!(two.leases.status("notes").await.unwrap().holders[0].token, guard.token());
        world.sim.pass(secs(1)).await;
        let listed = two.leases.list("").await.unwrap();
        assert_eq!(listed.iter().map(|status| status.key.as_str()).collect::<Vec<_>>(), ["seton"]);
    });
}

#[test]
fn a_codec_is_asked_in_every_form() {
    everywhere(async |world| {
        let (one, two) = (hidden(world), hidden(world));
        for waits in [false, true] {
            let request = one.leases.lock_all([("ab", Mode::Exclusive), ("cd", Mode::Shared)]);
            let all =
                if waits { request.acquire().await.unwrap() } else { request.try_acquire().await.unwrap().unwrap() };
            assert_eq!(all.keys().collect::<Vec<_>>(), ["ab", "cd"]);
            assert!(all.token("ab").is_some() && two.leases.lock("ab").try_acquire().await.unwrap().is_none());
        }
        let parts = one.leases.lock("ab").acquire().await.unwrap().into_parts();
        assert_eq!(parts.key(), "ab");
        let resumed = two.leases.resume(parts).await.unwrap();
        assert_eq!(resumed.key(), "ab");
        assert!(one.leases.leader("ab").await.unwrap().is_some());
    });
}

/// The limits hold for both names of a key.
#[test]
fn a_codec_that_gives_no_key_is_told() {
    everywhere(async |world| {
        let tab = world.tab().with(|builder| builder.key_codec(|key| key.replace('x', "")));
        for name in ["", "xx"] {
            let refused = tab.leases.lock(name).acquire().await.unwrap_err();
            assert_eq!(refused, AcquireError::InvalidKey(InvalidKey::Empty), "{name:?}");
        }
        assert!(tab.leases.lock("xkx").acquire().await.is_ok());
    });
}
