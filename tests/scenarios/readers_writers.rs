//! Synapse's `tests/storage/databases/main/test_lock.py`: readers, writers, several locks: S7 to S15.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use futures::future::join_all;
use leasehold::{LeaseManager, LostReason, Mode, ReleaseOutcome, store::Fault};

use crate::support::{
    doubles::SlowStore,
    world::{HEARTBEAT, LEASE, Tab, World, everywhere, ms, secs},
};

const BOTH: [Mode; 2] = [Mode::Exclusive, Mode::Shared];
/// By then a holder that fell silent is replaced, without a sign of its death.
const REPLACED: Duration = LEASE.saturating_add(LEASE).saturating_add(HEARTBEAT);

/// Who is inside at this moment, and the most that ever were.
#[derive(Default)]
struct Room {
    writers: Cell<u64>,
    readers: Cell<u64>,
    most_readers: Cell<u64>,
    visits: Cell<u64>,
}

impl Room {
    async fn visit(&self, world: &World, leases: &LeaseManager, mode: Mode, stay_ms: u64) {
        let guard = leases.lock("k").mode(mode).acquire().await.unwrap();
        let inside = if mode == Mode::Shared { &self.readers } else { &self.writers };
        inside.set(inside.get() + 1);
        self.most_readers.set(self.most_readers.get().max(self.readers.get()));
        let (writers, readers) = (self.writers.get(), self.readers.get());
        assert!(writers == 0 || (writers, readers) == (1, 0), "{writers} writers and {readers} readers inside");
        world.sim.pass(ms(stay_ms)).await;
        assert!(guard.is_valid());
        inside.set(inside.get() - 1);
        self.visits.set(self.visits.get() + 1);
    }
}

/// S7: `test_acquire_write_contention`, with readers among the writers.
#[test]
fn s7_a_writer_is_alone() {
    everywhere(async |world| {
        let (tabs, room) = ([world.tab(), world.tab(), world.tab()], Room::default());
        let guests = (0..9).map(|guest: u64| {
            let (leases, room) = (&tabs[guest as usize % 3].leases, &room);
            let mode = if guest < 3 { Mode::Exclusive } else { Mode::Shared };
            async move {
                for turn in 0..6 {
                    room.visit(world, leases, mode, 1 + (guest + turn) % 4).await;
                    world.sim.pass(ms(guest % 3)).await;
                }
            }
        });
        join_all(guests).await;
        assert_eq!(room.visits.get(), 54);
        assert!(room.most_readers.get() > 1, "readers were together");
    });
}

/// S8: `test_acquire_multiple_reads`.
#[test]
fn s8_three_readers_are_inside_together() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let room = Room::default();
        let readers = [&one, &one, &two].map(|tab| room.visit(world, &tab.leases, Mode::Shared, 10));
        assert!(world.within(ms(11), join_all(readers)).await.is_some(), "nobody waits for anybody");
        assert_eq!(room.most_readers.get(), 3);
    });
}

/// Whether a key is to be had in this mode, from another context and from the holder's own.
async fn obtainable(leases: [&LeaseManager; 2], mode: Mode) -> [bool; 2] {
    let mut had = [false; 2];
    for (had, leases) in had.iter_mut().zip(leases) {
        *had = leases.lock("k").mode(mode).try_acquire().await.unwrap().is_some();
    }
    had
}

/// S9: `test_write_lock_acquired`.
#[test]
fn s9_a_writer_blocks_readers_and_writers() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let everybody = [&two.leases, &one.leases];
        let writer = one.leases.lock("k").acquire().await.unwrap();
        for mode in BOTH {
            assert_eq!(obtainable(everybody, mode).await, [false; 2], "{mode:?}");
        }
        drop(writer);
        for mode in BOTH {
            assert_eq!(obtainable(everybody, mode).await, [true; 2], "{mode:?}");
        }
    });
}

/// S10: `test_read_lock_acquired`.
#[test]
fn s10_a_reader_blocks_writers_until_the_last_one_has_gone() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let everybody = [&two.leases, &one.leases];
        let first = one.leases.lock("k").shared().acquire().await.unwrap();
        assert_eq!(obtainable(everybody, Mode::Exclusive).await, [false; 2]);
        let second = two.leases.lock("k").shared().try_acquire().await.unwrap().expect("readers share");
        drop(first);
        assert_eq!(obtainable(everybody, Mode::Exclusive).await, [false; 2], "one reader is left");
        let mut writer = std::pin::pin!(one.leases.lock("k").acquire());
        assert!(world.within(LEASE * 2, &mut writer).await.is_none(), "who waits, waits for the last one");
        assert!(second.is_valid());
        drop(second);
        let writer = world.within(ms(1), writer).await.expect("and is served at once").unwrap();
        assert!(writer.is_valid());
    });
}

/// S11: `test_maintain_lock` of readers and writers.
#[test]
fn s11_renewal_keeps_readers_and_writers() {
    everywhere(async |world| {
        let (one, two, rival) = (world.tab(), world.tab(), world.tab());
        let readers = [&one, &two].map(|tab| tab.leases.lock("read").shared().acquire());
        let readers = join_all(readers).await;
        let writer = one.leases.lock("write").acquire().await.unwrap();
        for _ in 0..5 {
            world.sim.pass(LEASE).await;
            assert!(writer.is_valid() && readers.iter().flatten().all(|reader| reader.is_valid()));
            assert!(rival.leases.lock("read").try_acquire().await.unwrap().is_none());
            assert!(rival.leases.lock("write").shared().try_acquire().await.unwrap().is_none());
            assert!(rival.leases.lock("read").shared().try_acquire().await.unwrap().is_some());
        }
        assert!(readers[1].as_ref().unwrap().verify().await.unwrap());
    });
}

/// S12: `test_timeout_lock` of readers and writers: only the silent one is overtaken.
#[test]
fn s12_a_silent_reader_or_writer_is_overtaken_and_told() {
    for mode in BOTH {
        everywhere(async |world| {
            let (silent, live, other) = (world.dark_tab(), world.dark_tab(), world.dark_tab());
            let old = silent.leases.lock("k").mode(mode).acquire().await.unwrap();
            let reader =
                if mode == Mode::Shared { live.leases.lock("k").shared().try_acquire().await } else { Ok(None) };
            let reader = reader.unwrap();
            silent.store.fail_always(Some(Fault::Refuse));
            let mut writer = std::pin::pin!(other.leases.lock("k").acquire());
            let early = world.within(REPLACED, &mut writer).await;
            assert_eq!(early.is_none(), mode == Mode::Shared, "a reader that lives is waited for");
            let status = live.leases.status("k").await.unwrap();
            assert!(status.holders.iter().all(|holder| holder.token != old.token()), "the silent one has gone");
            let next = match (early, reader) {
                (Some(next), _) => next.unwrap(),
                (None, reader) => {
                    assert!(reader.as_ref().unwrap().is_valid());
                    drop(reader);
                    world.within(ms(1), writer).await.expect("at once").unwrap()
                }
            };
            silent.store.heal();
            assert!(!old.is_valid() && !old.verify().await.unwrap());
            assert_eq!(old.lost().await, LostReason::Expired);
            assert!(next.is_valid() && next.token() > old.token());
        });
    }
}

/// S13: `test_drop` of readers and writers: a lease without a guard is not renewed, though its context lives.
#[test]
fn s13_what_was_dropped_without_release_is_to_be_had_after_a_lease() {
    for mode in BOTH {
        everywhere(async |world| {
            let (one, two) = (world.dark_tab(), world.tab());
            drop(one.leases.lock("k").mode(mode).acquire().await.unwrap().into_parts());
            let mut next = std::pin::pin!(two.leases.lock("k").acquire());
            assert!(world.within(LEASE - secs(1), &mut next).await.is_none(), "it still stands in the record");
            assert!(world.within(REPLACED - LEASE, next).await.expect("it ran out").unwrap().is_valid());
        });
    }
}

/// S14: `test_shutdown` of readers and writers.
#[test]
fn s14_closing_leaves_neither_readers_nor_writers() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let reader = one.leases.lock("read").shared().acquire().await.unwrap();
        let other_reader = two.leases.lock("read").shared().acquire().await.unwrap();
        let writer = one.leases.lock("write").acquire().await.unwrap();
        one.leases.close().await;
        assert_eq!((reader.lost().await, writer.lost().await), (LostReason::Closed, LostReason::Closed));
        assert!(!reader.is_valid() && !writer.is_valid());
        assert!(two.leases.status("write").await.unwrap().is_idle());
        let status = two.leases.status("read").await.unwrap();
        assert!(matches!(&status.holders[..], [holder] if holder.own), "the other's own is left: {status:?}");
        assert!(other_reader.is_valid());
    });
}

/// S15: `test_acquire_multiple_locks`.
#[test]
fn s15_several_locks_are_had_together_or_not_at_all() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let keys = |keys: [&'static str; 2]| keys.map(|key| (key, Mode::Exclusive));
        let both = one.leases.lock_all(keys(["a", "b"])).try_acquire().await.unwrap().unwrap();
        for key in ["a", "b"] {
            assert!(two.leases.lock(key).try_acquire().await.unwrap().is_none(), "{key} is a member");
            assert!(one.leases.lock(key).try_acquire().await.unwrap().is_none(), "within the context too");
        }
        for overlapping in [["b", "c"], ["c", "a"]] {
            for leases in [&two.leases, &one.leases] {
                assert!(leases.lock_all(keys(overlapping)).try_acquire().await.unwrap().is_none());
                assert!(leases.status("c").await.unwrap().is_idle(), "no residue");
            }
        }
        let in_vain = two.leases.lock_all(keys(["b", "c"])).timeout(ms(500)).acquire().await;
        assert!(in_vain.is_err(), "nor by waiting");
        let free = two.leases.lock("c").try_acquire().await.unwrap().expect("nothing is left of all that");
        assert!(free.is_valid() && both.is_valid());
        assert_eq!(both.release().await.unwrap(), ReleaseOutcome::Released);
        drop(free);
        let all = ["a", "b", "c"].map(|key| (key, Mode::Exclusive));
        let all = two.leases.lock_all(all).try_acquire().await.unwrap().expect("all are free again");
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    });
}

/// S15, as contention: overlapping requests in every order neither meet inside nor block each other for ever.
#[test]
fn s15_overlapping_requests_all_get_their_turn() {
    everywhere(async |world| {
        // So slow that all of them have their first key before one has its second.
        let slow = |tab: Tab| SlowStore::new(tab.store, world.sim.clone(), 2..=5);
        let build = |_| LeaseManager::builder(slow(world.tab()), world.sim.context()).build().unwrap();
        let contexts = [(); 3].map(build);
        let inside = RefCell::new(Vec::<&str>::new());
        let pairs = [["a", "b"], ["b", "c"], ["c", "a"]];
        let work = contexts.iter().zip(pairs).map(|(leases, pair)| {
            let inside = &inside;
            async move {
                for turn in 0..5 {
                    let request = leases.lock_all(pair.map(|key| (key, Mode::Exclusive)));
                    let both = request.acquire().await.unwrap();
                    assert!(pair.iter().all(|key| !inside.borrow().contains(key)));
                    inside.borrow_mut().extend(pair);
                    world.sim.pass(ms(1 + turn % 3)).await;
                    assert!(both.is_valid());
                    inside.borrow_mut().retain(|key| !pair.contains(key));
                }
            }
        });
        assert!(world.within(secs(60), join_all(work)).await.is_some(), "they wait for each other in a circle");
    });
}
