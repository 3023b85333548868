//! luci's `memlock`: work under a lock that may be lost: L1 to L9.

use std::time::Duration;
use std::{
    cell::Cell,
    sync::{Arc, Mutex},
};

use leasehold::{
    AcquireError, InvalidOptions, LeaseGuard, LeaseManager, LeaseManagerBuilder, LeaseState, LostReason, OnLoss, Ran,
    ReleaseOutcome, StoreError,
    executor::Executor,
    machine::{Action, Batch, Key, Now, Operation, Outcome, Reply, SessionId, StoreClock},
    store::{Fault, MemoryStore, Reach, Store},
};

use crate::support::world::{HEARTBEAT, LEASE, LIMIT, Tab, World, everywhere, ms, secs};

/// L1: fails when the service is down, and does not call the function.
#[test]
fn l1_a_store_that_is_down_is_told_and_the_work_is_not_begun() {
    everywhere(async |world| {
        let tab = world.tab();
        for fault in [Fault::Fail, Fault::Refuse, Fault::Stall] {
            tab.store.fail_always(Some(fault));
            let begun = Cell::new(false);
            let lock = || tab.leases.lock("k");
            let ran = lock().run(async |_| begun.set(true)).await;
            assert!(matches!(ran, Err(AcquireError::Store(_))), "{fault:?}: {ran:?}");
            let tried = lock().try_run(async |_| begun.set(true)).await;
            assert!(matches!(tried, Err(AcquireError::Store(_))), "{fault:?}: an error, not busy: {tried:?}");
            assert!(!begun.get(), "{fault:?}");
        }
        tab.store.heal();
        assert_eq!(tab.leases.lock("k").run(async |_| 7).await.unwrap().value, 7, "it works again");
    });
}

/// L2: returns the inner error.
#[test]
fn l2_what_the_work_returns_is_returned_and_the_lease_given_back() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let ran = one.leases.lock("k").run(async |_| Err::<(), _>("inner")).await;
        assert_eq!(ran, Ok(Ran { value: Err("inner"), lost: None }));
        assert!(two.leases.lock("k").try_acquire().await.unwrap().is_some());
    });
}

/// L3: acquires when empty.
#[test]
fn l3_a_free_key_is_had_at_once_and_held_during_the_work() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let work = async |lease: &LeaseGuard| {
            let status = two.leases.status("k").await.unwrap();
            assert!(lease.is_valid());
            (status.holders[0].holder, status.holders[0].token) == (one.leases.session(), lease.token())
        };
        let ran = one.leases.lock("k").try_run(work).await.unwrap();
        assert_eq!(ran, Some(Ran { value: true, lost: None }));
        let held = one.leases.lock("k").acquire().await.unwrap();
        let refused = two.leases.lock("k").try_run(async |_| panic!("it is taken")).await;
        assert_eq!(refused, Ok(None::<Ran<()>>));
        assert!(held.is_valid());
    });
}

/// L4: 64 refresh periods keep it.
#[test]
fn l4_work_of_64_heartbeats_keeps_its_lease() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let work = async |lease: &LeaseGuard| {
            for _ in 0..64 {
                world.sim.pass(HEARTBEAT).await;
                assert!(lease.is_valid());
                assert!(two.leases.lock("k").try_acquire().await.unwrap().is_none());
            }
        };
        let ran = one.leases.lock("k").on_loss(OnLoss::Abort).run(work).await;
        assert_eq!(ran, Ok(Ran { value: (), lost: None }));
    });
}

/// Does work of ten leases that is aborted if the lease is lost, while something happens to it. Says when it ended.
async fn aborted(world: &World, leases: &LeaseManager, event: impl Future<Output = ()>) -> (AcquireError, u64) {
    let (finished, started) = (Cell::new(false), world.sim.now().monotonic.as_ms());
    let work = async |lease: &LeaseGuard| {
        assert!(lease.is_valid());
        world.sim.pass(LEASE * 10).await;
        finished.set(true);
    };
    let (ran, ()) = futures::join!(leases.lock("k").on_loss(OnLoss::Abort).run(work), event);
    assert!(!finished.get(), "the work went on after the loss");
    (ran.unwrap_err(), world.sim.now().monotonic.as_ms() - started)
}

/// L5: lost by eviction: the record forgets its holder, or the store forgets everything.
#[test]
fn l5_work_whose_lease_was_evicted_is_aborted() {
    everywhere(async |world| {
        let tab = world.tab();
        let event = async {
            world.sim.pass(ms(100)).await;
            evict(world, &tab).await;
        };
        let (error, after_ms) = aborted(world, &tab.leases, event).await;
        assert_eq!(error, AcquireError::Lost { key: "k".into(), reason: LostReason::Evicted });
        assert!(u128::from(after_ms) <= HEARTBEAT.as_millis(), "at the next renewal: {after_ms} ms");
    });
}

/// L5, as memcache does it: all is gone.
#[test]
fn l5_work_whose_store_was_cleared_is_aborted() {
    everywhere(async |world| {
        let tab = world.tab();
        let store = Forgetful::new(tab.store.clock());
        let leases = LeaseManager::builder(store.clone(), tab.executor.clone()).build().unwrap();
        let event = async {
            world.sim.pass(ms(100)).await;
            store.forget();
        };
        let (error, after_ms) = aborted(world, &leases, event).await;
        assert_eq!(error, AcquireError::Lost { key: "k".into(), reason: LostReason::StoreCleared });
        assert!(u128::from(after_ms) <= HEARTBEAT.as_millis(), "at the next renewal: {after_ms} ms");
    });
}

/// L6: lost by failures of the store. One that may pass is a doubt; one that stays is a loss.
#[test]
fn l6_work_whose_store_failed_is_aborted_when_nothing_is_left_to_hope_for() {
    everywhere(async |world| {
        let tab = world.tab();
        let event = async {
            world.sim.pass(ms(100)).await;
            tab.store.fail_always(Some(Fault::Fail));
        };
        let (error, after_ms) = aborted(world, &tab.leases, event).await;
        assert_eq!(error, AcquireError::Lost { key: "k".into(), reason: LostReason::StoreFailed });
        assert!(u128::from(after_ms) <= HEARTBEAT.as_millis(), "at the next renewal: {after_ms} ms");
    });
}

/// L6: work that is only to be told goes on in doubt, and a store that comes back is no loss.
#[test]
fn l6_work_in_doubt_goes_on_if_it_is_only_to_be_told() {
    everywhere(async |world| {
        let tab = world.dark_tab();
        let work = async |lease: &LeaseGuard| {
            tab.store.fail_always(Some(Fault::Refuse));
            world.sim.pass(LEASE * 2).await;
            assert!(!lease.is_valid());
            assert_eq!(lease.watch().state(), LeaseState::Suspect);
            tab.store.heal();
            world.sim.pass(HEARTBEAT).await;
            assert!(lease.is_valid(), "nobody took it meanwhile");
        };
        let ran = tab.leases.lock("k").run(work).await;
        assert_eq!(ran, Ok(Ran { value: (), lost: None }));
    });
}

/// L7: stolen: the value is replaced.
#[test]
fn l7_work_whose_lease_was_stolen_is_aborted_or_told() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let theft = async {
            world.sim.pass(ms(100)).await;
            drop(two.leases.lock("k").steal().await.unwrap());
        };
        let (error, after_ms) = aborted(world, &one.leases, theft).await;
        assert_eq!(error, AcquireError::Lost { key: "k".into(), reason: LostReason::Stolen });
        assert!(after_ms <= 101, "at once: {after_ms} ms");
        let work = async |lease: &LeaseGuard| {
            let thief = two.leases.lock("k").steal().await.unwrap();
            assert_eq!(lease.lost().await, LostReason::Stolen);
            assert!(thief.is_valid() && !lease.is_valid());
            "done"
        };
        let ran = one.leases.lock("k").run(work).await;
        assert_eq!(ran, Ok(Ran { value: "done", lost: Some(LostReason::Stolen) }), "who is not aborted is told");
    });
}

/// L8: pre-emptively released while releasing: no error.
#[test]
fn l8_what_is_gone_at_the_release_is_no_error() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let lock = || one.leases.lock("k");
        let own = lock().run(async |lease| lease.release().await.unwrap()).await;
        assert_eq!(own, Ok(Ran { value: ReleaseOutcome::Released, lost: None }), "released by the work itself");
        world.sim.pass(secs(1)).await;
        let waits = async {
            world.sim.pass(ms(10)).await;
            two.leases.lock("k").acquire().await.unwrap()
        };
        let work = lock().run(async |_| {
            world.sim.pass(ms(100)).await;
            evict(world, &one).await;
            7
        });
        let (ran, next) = futures::join!(work, waits);
        assert_eq!(ran.map(|ran| (ran.value, ran.lost.is_some())), Ok((7, true)), "told, but no error");
        assert!(next.is_valid() && next.verify().await.unwrap(), "the next holder keeps it");
    });
}

/// L9: an empty client id.
#[test]
fn l9_an_empty_name_is_refused_before_anything_is_asked() {
    everywhere(async |world| {
        let tab = world.tab();
        let builder = || LeaseManager::builder(tab.store.clone(), tab.executor.clone());
        let build = |builder: LeaseManagerBuilder| builder.build().map(drop);
        assert_eq!(build(builder().instance("")), Err(InvalidOptions::Instance));
        assert_eq!(build(builder().instance("worker-1")), Ok(()));
        assert!(matches!(tab.leases.lock("").acquire().await, Err(AcquireError::InvalidKey(_))), "nor an empty key");
        assert!(tab.store.take_seen().is_empty());
    });
}

/// Somebody takes the holder of `k` for dead.
async fn evict(world: &World, tab: &Tab) {
    let connection = tab.store.clone();
    let ask = async |action| {
        let operation = Operation { key: Key::new("k").unwrap(), action };
        let reply =
            connection.transact(Batch::new(SessionId(1), vec![operation]), world.sim.now(), LIMIT).await.unwrap();
        let Reply { mut answers, .. } = reply;
        answers.remove(0).outcome
    };
    let Outcome::Status { grants, sessions, .. } = ask(Action::Inspect).await else { panic!("it is held") };
    let [grant] = &grants[..] else { panic!("{grants:?}") };
    let beat = sessions.iter().find(|(session, _)| *session == grant.holder).unwrap().1.beat;
    assert_eq!(ask(Action::End { target: grant.holder, beat }).await, Outcome::Ended);
}

/// A store that may lose everything at once.
#[derive(Clone, Debug)]
struct Forgetful(Arc<Mutex<MemoryStore>>);

impl Forgetful {
    fn new(clock: StoreClock) -> Self {
        Self(Arc::new(Mutex::new(MemoryStore::with_clock(clock))))
    }

    fn current(&self) -> MemoryStore {
        self.0.lock().unwrap().clone()
    }

    fn forget(&self) {
        let empty = MemoryStore::with_clock(self.clock());
        *self.0.lock().unwrap() = empty;
    }
}

#[async_trait::async_trait]
impl Store for Forgetful {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.current().transact(batch, now, limit).await
    }

    async fn close(&self) {}

    fn clock(&self) -> StoreClock {
        self.current().clock()
    }

    fn reach(&self) -> Reach {
        self.current().reach()
    }
}
