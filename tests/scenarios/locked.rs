//! Stores in which somebody else may keep single records locked, as an open fenced transaction does in PostgreSQL.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::{join, join_all};
use leasehold::{
    AcquireError, LeaseManager, Mode, StoreError,
    executor::{Executor, SimExecutor},
    machine::{Batch, Monotonic, Now, Reply, StoreClock, StoreErrorKind},
    store::{Fault, MemoryStore, Reach, Store},
};

use crate::support::world::{HEARTBEAT, LEASE, World, everywhere, ms};

/// How long the store waits for a lock before it gives up.
const PATIENCE: Duration = ms(500);
/// More milliseconds than a transaction takes if it waits for no lock.
const SHORT: u64 = 50;

/// A transaction that needs a locked record waits for it, and fails if that takes too long. Other transactions do not wait.
#[derive(Clone, Debug)]
struct Locking {
    inner: MemoryStore,
    sim: SimExecutor,
    locked: Arc<Mutex<BTreeSet<String>>>,
    refused: Arc<Mutex<usize>>,
    /// So many transactions are carried out, and their answers are lost.
    lost: Arc<Mutex<usize>>,
    /// The server is down for so many transactions.
    down: Arc<Mutex<usize>>,
    /// So long each transaction takes at least.
    pace: Arc<Mutex<Duration>>,
}

impl Locking {
    fn lose_answers(&self, many: usize) {
        *self.lost.lock().unwrap() = many;
    }

    fn lock(&self, key: &str) {
        self.locked.lock().unwrap().insert(key.into());
    }

    fn unlock(&self, key: &str) {
        self.locked.lock().unwrap().remove(key);
    }

    fn waits(&self, batch: &Batch) -> bool {
        let locked = self.locked.lock().unwrap();
        batch.keys().iter().any(|key| locked.contains(key.as_str()))
    }

    fn take_refused(&self) -> usize {
        std::mem::take(&mut *self.refused.lock().unwrap())
    }
}

#[async_trait::async_trait]
impl Store for Locking {
    async fn transact(&self, batch: Batch, _: Now, limit: Duration) -> Result<Reply, StoreError> {
        let pace = *self.pace.lock().unwrap();
        self.sim.sleep(pace).await;
        let is_down = {
            let mut down = self.down.lock().unwrap();
            let is_down = *down > 0;
            *down = down.saturating_sub(1);
            is_down
        };
        if is_down {
            return Err(StoreError::transient("the server is down"));
        }
        let until = self.sim.now().monotonic.plus(u64::try_from(PATIENCE.as_millis()).unwrap());
        while self.waits(&batch) {
            if self.sim.now().monotonic >= until {
                *self.refused.lock().unwrap() += 1;
                return Err(StoreError::locked("another transaction keeps a record locked"));
            }
            self.sim.sleep(ms(5)).await;
        }
        let reply = self.inner.transact(batch, self.sim.now(), limit).await;
        let mut lost = self.lost.lock().unwrap();
        if *lost > 0 {
            *lost -= 1;
            return Err(StoreError::unknown("the answer was lost"));
        }
        reply
    }

    async fn close(&self) {}

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

/// A store, and a manager over it.
fn open(world: &World) -> (Locking, LeaseManager) {
    let sim = world.sim.context();
    let store = Locking {
        inner: world.shared.clone(),
        sim: sim.clone(),
        locked: Arc::default(),
        refused: Arc::default(),
        lost: Arc::default(),
        down: Arc::default(),
        pace: Arc::new(Mutex::new(ms(1))),
    };
    (store.clone(), manager(&store, sim))
}

fn manager(store: &Locking, executor: SimExecutor) -> LeaseManager {
    let builder = LeaseManager::builder(store.clone(), executor).lease(LEASE).heartbeat(HEARTBEAT).beacon(false);
    builder.linger(ms(0)).build().unwrap()
}

fn since(world: &World, start: Monotonic) -> u64 {
    world.ms_since(start)
}

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
                let acquired = since(world, start);
                guard.release().await.unwrap();
                let both = since(world, start);
                assert!(acquired <= 500 + SHORT && both <= 1_000 + SHORT, "{number}: {acquired}, {both} ms");
            }
            store.unlock("slow");
            world.now()
        };
        let (slow, unlocked) = join(slow, others).await;
        assert!(slow.unwrap().is_valid());
        assert!(since(world, unlocked) <= SHORT * 2, "granted {} ms after the lock ended", since(world, unlocked));
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
            (guard, since(world, start))
        };
        let unlock = async {
            world.sim.pass(LEASE).await;
            store.unlock("key 7");
        };
        let (granted, ()) = join(join_all((0..64).map(acquire)), unlock).await;
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

#[test]
fn a_try_waits_until_the_lock_ends() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let other = manager(&store, world.sim.context());
        let held = other.lock("k").acquire().await.unwrap();
        store.lock("k");
        let unlock = async {
            world.sim.pass(ms(3_000)).await;
            store.unlock("k");
        };
        let (tried, ()) = join(leases.lock("k").try_acquire(), unlock).await;
        assert!(tried.unwrap().is_none(), "it is taken, and that is no error");
        drop(held);
    });
}

#[test]
fn a_lock_that_does_not_end_is_reported() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lock("k");
        let start = world.now();
        let tried = leases.lock("k").try_acquire().await;
        assert!(matches!(&tried, Err(AcquireError::Store(error)) if error.kind == StoreErrorKind::Locked), "{tried:?}");
        let waited = since(world, start);
        assert!((5_000..=7_000).contains(&waited), "{waited} ms");
        let waited = leases.lock("k").acquire().await;
        assert!(
            matches!(&waited, Err(AcquireError::Store(error)) if error.kind == StoreErrorKind::Locked),
            "{waited:?}"
        );
        let limited = leases.lock("k").timeout(LEASE * 3).acquire().await;
        assert!(
            matches!(&limited, Err(AcquireError::Store(error)) if error.kind == StoreErrorKind::Locked),
            "{limited:?}"
        );
    });
}

#[test]
fn leases_live_on_while_a_key_is_locked() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let guard = leases.lock("mine").acquire().await.unwrap();
        store.lock("slow");
        let wait = leases.lock("slow").timeout(LEASE * 5).acquire();
        let (waited, ()) = join(wait, world.sim.pass(LEASE * 6)).await;
        assert!(
            matches!(&waited, Err(AcquireError::Store(error)) if error.kind == StoreErrorKind::Locked),
            "{waited:?}"
        );
        assert!(guard.is_valid());
        let start = world.now();
        guard.release().await.unwrap();
        assert!(since(world, start) <= 500 + SHORT);
    });
}

/// `verify` and `release` of the locked key wait for the lock, and then succeed.
#[test]
fn a_holder_asks_about_its_lease_until_the_lock_ends() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let guard = leases.lock("k").acquire().await.unwrap();
        store.lock("k");
        let unlock = async {
            world.sim.pass(ms(2_000)).await;
            store.unlock("k");
        };
        let (current, ()) = join(guard.verify(), unlock).await;
        assert!(current.unwrap());
        store.lock("k");
        let unlock = async {
            world.sim.pass(ms(2_000)).await;
            store.unlock("k");
        };
        let (released, ()) = join(guard.release(), unlock).await;
        released.unwrap();
    });
}

#[test]
fn several_keys_of_which_one_is_locked_are_granted_when_the_lock_ends() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lock("b");
        let unlock = async {
            world.sim.pass(ms(4_000)).await;
            store.unlock("b");
            world.now()
        };
        let all = leases.lock_all([("a", Mode::Exclusive), ("b", Mode::Exclusive)]);
        let (guards, unlocked) = join(all.acquire(), unlock).await;
        let _guards = guards.unwrap();
        assert!(since(world, unlocked) <= SHORT * 2);
    });
}

/// A theft whose wait for the lock timed out has taken nothing, and does not count as an attempt.
#[test]
fn a_theft_is_carried_out_when_the_lock_ends() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let other = manager(&store, world.sim.context());
        let held = other.lock("k").acquire().await.unwrap();
        store.lock("k");
        let unlock = async {
            world.sim.pass(ms(3_000)).await;
            store.unlock("k");
        };
        let (stolen, ()) = join(leases.lock("k").steal(), unlock).await;
        assert!(stolen.unwrap().token() > held.token());
    });
}

#[test]
fn a_manager_is_closed_while_a_key_is_locked() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        let guard = leases.lock("mine").acquire().await.unwrap();
        store.lock("slow");
        let close = async {
            world.sim.pass(ms(1_700)).await;
            let start = world.now();
            leases.close().await;
            since(world, start)
        };
        let (waited, closed) = join(leases.lock("slow").acquire(), close).await;
        assert!(matches!(waited, Err(AcquireError::Closed)), "{waited:?}");
        assert!(closed <= 1_000 + SHORT, "{closed} ms");
        drop(guard);
        let start = world.now();
        let _guard = manager(&store, world.sim.context()).lock("mine").acquire().await.unwrap();
        assert!(since(world, start) <= SHORT, "it was released");
    });
}

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
        assert!(since(world, start) <= SHORT);
    });
}

/// Each key goes alone only while one of them is locked.
#[test]
fn transactions_are_large_again_after_the_lock() {
    everywhere(async |world| {
        let (store, leases) = open(world);
        store.lock("key 7");
        let keys: Vec<_> = (0..256).map(|number| format!("key {number}")).collect();
        let unlock = async {
            world.sim.pass(ms(2_000)).await;
            store.unlock("key 7");
        };
        let (guards, ()) = join(join_all(keys.iter().map(|key| leases.lock(key).acquire())), unlock).await;
        assert!(guards.iter().all(Result::is_ok));
        drop(guards);
        world.sim.pass(ms(1_000)).await;
        store.take_refused();
        let start = world.now();
        let again = join_all(keys.iter().map(|key| leases.lock(key).acquire())).await;
        assert!(again.iter().all(Result::is_ok));
        assert!(since(world, start) <= 5, "in {} ms, 1 ms for each transaction", since(world, start));
        assert_eq!(store.take_refused(), 0);
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
                (got, since(world, start))
            };
            let ((got, after), ()) = join(ask, unlock).await;
            assert!(got.is_some() && after < 1_000, "waits: {waits}, {after} ms, {}", got.is_some());
        }
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

/// Its withdrawal waits among so many others that they fill several transactions.
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
            let unlock = async {
                world.sim.pass(ms(545)).await;
                store.unlock("k");
            };
            let ((is_granted, ()), ()) = join(join(ask, more), unlock).await;
            assert!(!is_granted);
            world.sim.pass(ms(3_000)).await;
            let other = manager(&store, world.sim.context());
            let all = other.lock_all(keys).try_acquire().await.unwrap();
            assert!(all.is_some(), "nobody holds them, of several: {of_several}");
        }
    });
}

/// The store is asked whether a writer still waits, and cannot say.
#[test]
fn a_try_that_shares_beside_readers_of_its_own_context_is_answered_while_the_key_is_locked() {
    everywhere(async |world| {
        for asks in [false, true] {
            let (store, leases) = open(world);
            let other = manager(&store, world.sim.context());
            let first = leases.lock("k").shared().acquire().await.unwrap();
            let mut write = Box::pin(other.lock("k").acquire());
            assert!(world.within(ms(1_000), &mut write).await.is_none());
            store.lock("k");
            let verify = async {
                if asks {
                    assert!(first.verify().await.is_err());
                }
            };
            let start = world.now();
            let both = world.within(LEASE, join(verify, leases.lock("k").shared().try_acquire())).await;
            let ((), tried) = both.expect("it does not wait until the lock ends");
            assert!(tried.unwrap().is_none() && since(world, start) <= 12_000, "{asks}: {} ms", since(world, start));
        }
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
            let unlock = async {
                world.sim.pass(ms(2_000)).await;
                store.unlock("b");
                world.now()
            };
            let ((_guard, granted), unlocked) = join(ask, unlock).await;
            assert!(granted.since(unlocked) <= 2_000, "{} ms", granted.since(unlocked));
        };
        futures::future::select(Box::pin(wait), Box::pin(crowd)).await;
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
            (guard, since(world, start))
        };
        let ((_guard, after), ()) = join(ask, trouble).await;
        assert!(after < 3_000, "{after} ms");
    });
}
