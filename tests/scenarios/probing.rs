//! Tries that take a place in the queue for a moment, and what becomes of them there.

use leasehold::{AcquireError, LeaseManager, LostReason, Mode, executor::Lifecycle};

use crate::support::{
    doubles::SlowStore,
    world::{HEARTBEAT, LEASE, everywhere, ms, secs},
};

/// The twin dies while somebody else is ahead of the try in the queue, and the context looks at the store before the verdict on the twin.
#[test]
fn a_try_behind_a_twin_that_dies_is_answered() {
    everywhere(async |world| {
        for after_ms in [20, 60, 120, 200] {
            let named = || world.tab().with(|builder| builder.instance("worker-1"));
            let (old, other, new) = (named(), world.tab(), named());
            let guard = old.leases.lock("k").acquire().await.unwrap();
            let mut wait = Box::pin(other.leases.lock("k").acquire());
            assert!(world.within(ms(50), &mut wait).await.is_none());
            let mut tries = Box::pin(new.leases.lock("k").try_acquire());
            assert!(world.within(ms(after_ms), &mut tries).await.is_none());
            old.crash(guard);
            let next = world.within(ms(1), wait).await.expect("it came first").unwrap();
            let answered = world.within(secs(1), tries).await.expect("a try does not wait until the other releases");
            assert!(answered.is_ok_and(|granted| granted.is_none()) && next.is_valid());
            assert!(new.leases.status("k").await.unwrap().queue.is_empty(), "it left its place");
            next.release().await.unwrap();
        }
    });
}

/// A try that was made before its context was suspended is refused, as one that is made afterwards is.
#[test]
fn a_try_does_not_wait_for_as_long_as_its_context_is_suspended() {
    everywhere(async |world| {
        for after_ms in [0, 10, 50] {
            let (one, two) = (world.tab(), world.tab());
            let guard = one.leases.lock("k").acquire().await.unwrap();
            // It holds the key, and answers nobody.
            one.executor.tell(Lifecycle::Ending);
            let mut tries = Box::pin(two.leases.lock("k").try_acquire());
            assert!(world.within(ms(after_ms), &mut tries).await.is_none());
            two.leases.suspend();
            let answered = world.within(secs(1), tries).await.expect("it does not wait for `wake`");
            assert_eq!(answered.unwrap_err(), AcquireError::Lost { key: "k".into(), reason: LostReason::Suspended });
            one.crash(guard);
        }
    });
}

/// Both died, as at a power failure. Each process that comes after that lives for less than a lease, and only tries.
#[test]
fn a_dead_waiter_behind_a_dead_holder_keeps_no_try_out() {
    everywhere(async |world| {
        for tries in [false, true] {
            let (one, two) = (world.tab(), world.tab());
            let guard = one.leases.lock("k").acquire().await.unwrap();
            // Else the holder says that it uses the key.
            one.executor.tell(Lifecycle::Ending);
            let request = two.leases.lock("k");
            let mut wait =
                Box::pin(
                    async move { if tries { request.try_acquire().await } else { request.acquire().await.map(Some) } },
                );
            assert!(world.within(ms(50), &mut wait).await.is_none());
            two.crash(wait);
            one.crash(guard);
            let tab = world.tab();
            let granted = tab.leases.lock("k").try_acquire().await.unwrap();
            assert!(granted.expect("all who are in the way are dead, and have beacons").is_valid());
            tab.leases.close().await;
        }
    });
}

/// As a try for one of them does.
#[test]
fn a_try_for_several_keys_finds_out_that_a_holder_is_dead() {
    everywhere(async |world| {
        let one = world.tab();
        let guard = one.leases.lock("a").acquire().await.unwrap();
        one.crash(guard);
        let mut refused = 0;
        for _ in 0..20 {
            let tab = world.tab();
            let several = tab.leases.lock_all([("a", Mode::Exclusive), ("b", Mode::Exclusive)]);
            if several.try_acquire().await.unwrap().is_some() {
                break;
            }
            refused += 1;
            world.sim.pass(secs(5)).await;
            tab.leases.close().await;
        }
        assert_eq!(refused, 0, "times refused, by contexts that live for 5 s each");
    });
}

/// Each key has a holder of its own, which has died.
#[test]
fn a_try_for_many_keys_takes_no_longer_than_one_for_a_single_key() {
    everywhere(async |world| {
        for count in [1, 10, 100] {
            let keys: Vec<_> = (0..count).map(|key| (format!("{count}, {key}"), Mode::Exclusive)).collect();
            for (key, _) in &keys {
                let tab = world.tab();
                let guard = tab.leases.lock(key).acquire().await.unwrap();
                tab.crash(guard);
            }
            let tab = world.tab();
            let granted = world.within(ms(300), tab.leases.lock_all(keys).try_acquire()).await;
            assert!(granted.unwrap_or_else(|| panic!("{count} keys")).unwrap().is_some(), "{count} keys");
        }
    });
}

/// It looks at one key after the other, over a store that takes its time.
#[test]
fn a_try_for_many_keys_holds_none_while_it_looks_at_the_others() {
    everywhere(async |world| {
        let keys: Vec<_> = (0..40).map(|key| (format!("{key:02}"), Mode::Exclusive)).collect();
        for (key, _) in &keys {
            let tab = world.tab();
            let guard = tab.leases.lock(key).acquire().await.unwrap();
            tab.crash(guard);
        }
        let context = world.sim.context();
        let store = SlowStore::new(world.shared.clone(), context.clone(), 10..=10);
        let many = LeaseManager::builder(store, context).build().unwrap();
        let mut tries = Box::pin(many.lock_all(keys).try_acquire());
        assert!(world.within(ms(500), &mut tries).await.is_none());
        let other = world.tab().leases.lock("00").try_acquire().await.unwrap();
        assert!(other.is_some(), "nobody holds it but the dead");
    });
}

/// Readers share the key. Only the writer that waits behind them is in the way, and it is dead.
#[test]
fn a_dead_writer_in_the_queue_refuses_no_try_of_a_reader() {
    everywhere(async |world| {
        for (key, of_several, is_own) in [("k", false, false), ("l", true, false), ("m", true, true)] {
            let (one, two, three) = (world.tab(), world.tab(), world.tab());
            let reader = if is_own { &three } else { &one };
            let _reader = reader.leases.lock(key).shared().acquire().await.unwrap();
            let mut write = Box::pin(two.leases.lock(key).acquire());
            assert!(world.within(secs(1), &mut write).await.is_none());
            let start = world.now();
            assert!(three.leases.lock(key).shared().try_acquire().await.unwrap().is_none());
            assert_eq!(world.ms_since(start), 0, "the writer says at once that it lives");
            two.crash(write);
            let all = three.leases.lock_all([("other", Mode::Shared), (key, Mode::Shared)]);
            let is_granted = match of_several {
                true => all.try_acquire().await.unwrap().is_some(),
                false => three.leases.lock(key).shared().try_acquire().await.unwrap().is_some(),
            };
            assert!(is_granted, "of several: {of_several}, beside a reader of its own context: {is_own}");
        }
    });
}

/// No other context has a place behind the writer, so only the readers' own context can notice that it is dead.
#[test]
fn a_reader_waits_no_longer_for_a_dead_writer_than_any_other_request() {
    everywhere(async |world| {
        for (key, beacon) in [("k", true), ("l", false)] {
            let tab = || if beacon { world.tab() } else { world.dark_tab() };
            let (reader, writer) = (tab(), tab());
            let first = reader.leases.lock(key).shared().acquire().await.unwrap();
            let mut write = Box::pin(writer.leases.lock(key).acquire());
            assert!(world.within(secs(1), &mut write).await.is_none());
            let second = reader.leases.lock(key).shared().acquire();
            assert!(world.within(LEASE * 3, second).await.is_none(), "the writer lives, beacon: {beacon}");
            writer.crash(write);
            let second = world.within(LEASE * 3, reader.leases.lock(key).shared().acquire()).await;
            assert!(second.is_some_and(|guard| guard.unwrap().is_valid()), "beacon: {beacon}");
            assert!(first.is_valid());
        }
    });
}

/// Its beacon falls with it, so there is no need to wait until its silence is long enough, nor for a heartbeat.
#[test]
fn a_reader_is_granted_as_soon_as_the_beacon_of_a_dead_writer_is_seen_gone() {
    everywhere(async |world| {
        for heartbeats in [0, 1, 3] {
            let (reader, writer) = (world.tab(), world.tab());
            let _first = reader.leases.lock("k").shared().acquire().await.unwrap();
            let mut write = Box::pin(writer.leases.lock("k").acquire());
            assert!(world.within(secs(1), &mut write).await.is_none());
            let mut second = Box::pin(reader.leases.lock("k").shared().acquire());
            assert!(world.within(ms(100) + HEARTBEAT * heartbeats, &mut second).await.is_none(), "the writer lives");
            writer.crash(write);
            let start = world.now();
            assert!(world.within(LEASE * 3, &mut second).await.unwrap().unwrap().is_valid());
            assert!(world.ms_since(start) < 100, "{} ms after {heartbeats} heartbeats", world.ms_since(start));
        }
    });
}

/// They do not wait, so the context must remember from one try to the next what it saw of the writer.
#[test]
fn tries_of_a_reader_are_granted_once_a_dead_writer_was_silent_for_long_enough() {
    everywhere(async |world| {
        for beacon in [true, false] {
            let tab = || if beacon { world.tab() } else { world.dark_tab() };
            let (reader, writer) = (tab(), tab());
            let _first = reader.leases.lock("k").shared().acquire().await.unwrap();
            let mut write = Box::pin(writer.leases.lock("k").acquire());
            assert!(world.within(secs(1), &mut write).await.is_none());
            writer.crash(write);
            let start = world.now();
            while reader.leases.lock("k").shared().try_acquire().await.unwrap().is_none() {
                assert!(world.ms_since(start) < 30_000, "beacon: {beacon}");
                world.sim.pass(secs(1)).await;
            }
        }
    });
}
