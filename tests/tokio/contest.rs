//! Many threads, every way to take a lease, every way to give it back.

use std::time::Duration;
use std::{
    pin::pin,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    thread,
};

use futures::future::join_all;
use leasehold::{
    LeaseGuard, LeaseManager, LeaseRequest, Mode, ReleaseOutcome, StoreError,
    executor::{Executor, TokioExecutor},
    machine::{Batch, Now, Reply, StoreClock},
    store::{MemoryStore, Reach, Store},
};
use tokio::{
    task::{spawn, yield_now},
    time::{sleep, timeout},
};

use crate::{PATIENCE, ms, until};

/// A store that now and then lets others go first, before it applies or before it answers.
#[derive(Debug, Clone)]
struct Jitter {
    inner: MemoryStore,
    dice: Dice,
}

#[async_trait::async_trait]
impl Store for Jitter {
    async fn transact(&self, batch: Batch, mut now: Now, limit: Duration) -> Result<Reply, StoreError> {
        if self.dice.one_in(3) {
            yield_now().await;
            now = TokioExecutor::new().now();
        }
        let reply = self.inner.transact(batch, now, limit).await;
        if self.dice.one_in(3) {
            yield_now().await;
        }
        if self.dice.one_in(97) {
            sleep(ms(1)).await;
        }
        reply
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

/// Dice for several threads.
#[derive(Debug, Clone, Default)]
struct Dice(Arc<AtomicU64>);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        // A Weyl sequence, mixed.
        let rolled = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        ((rolled ^ (rolled >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % end
    }

    fn one_in(&self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// What contestants for two keys see of each other.
#[derive(Default)]
struct Arena {
    dice: Dice,
    turns: AtomicU64,
    inside: [AtomicBool; 2],
    largest: [Mutex<u64>; 2],
}

const TURNS: u64 = 20_000;

/// Contexts and tasks within them take two keys in every way there is, and give them back likewise.
async fn contend<S: Store>(clock: StoreClock, store: impl Fn(MemoryStore) -> S) {
    let (memory, arena) = (MemoryStore::with_clock(clock), Arc::new(Arena::default()));
    let build = |number: u64| {
        // Nobody is silent for so long, nor for the two heartbeats that an heir's first lease lasts.
        let builder = LeaseManager::builder(store(memory.clone()), TokioExecutor::new()).lease(2 * PATIENCE);
        builder.beacon(number.is_multiple_of(2)).build().unwrap()
    };
    let contexts: Vec<_> = (0..8).map(build).collect();
    let tasks = contexts.iter().flat_map(|leases| [leases.clone(), leases.clone()]);
    let mut all = pin!(join_all(tasks.map(|leases| spawn(arena.clone().take_turns(leases)))));
    let mut turns = 0;
    let ended = loop {
        match timeout(PATIENCE, all.as_mut()).await {
            Ok(ended) => break ended,
            // A busy machine may need minutes.
            Err(_) => {
                let before = std::mem::replace(&mut turns, arena.turns.load(Ordering::Relaxed));
                assert!(turns > before, "nobody waits for ever");
            }
        }
    };
    ended.into_iter().for_each(Result::unwrap);
    // What was dropped is given back in the background.
    for key in ["a", "b"] {
        until(async || {
            let status = contexts[0].status(key).await.unwrap();
            status.holders.is_empty() && status.queue.is_empty()
        })
        .await;
    }
    for leases in contexts {
        timeout(PATIENCE, leases.close()).await.expect("closing ends");
    }
}

impl Arena {
    async fn take_turns(self: Arc<Self>, leases: LeaseManager) {
        while self.turns.fetch_add(1, Ordering::Relaxed) < TURNS {
            let which = usize::from(self.dice.one_in(2));
            let Some(guard) = self.ask(leases.lock(["a", "b"][which])).await else { continue };
            self.enter(which, &guard).await;
            match self.dice.below(3) {
                0 => assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released),
                1 => drop(guard.release()),
                _ => drop(guard),
            }
        }
    }

    async fn ask(&self, request: LeaseRequest) -> Option<LeaseGuard> {
        match self.dice.below(8) {
            0 => return request.try_acquire().await.unwrap(),
            1 => return request.timeout(ms(self.dice.below(3))).acquire().await.ok(),
            2 => {}
            _ => return Some(request.acquire().await.unwrap()),
        }
        // Dropped somewhere on its way.
        let mut future = pin!(request.acquire());
        for _ in 0..self.dice.below(4) {
            if let Poll::Ready(guard) = futures::poll!(future.as_mut()) {
                return guard.ok();
            }
            yield_now().await;
        }
        None
    }

    async fn enter(&self, which: usize, guard: &LeaseGuard) {
        let token = guard.token().as_u64();
        let largest = std::mem::replace(&mut *self.largest[which].lock().unwrap(), token);
        assert!(largest < token, "tokens grow: {largest}, then {token}");
        assert!(!self.inside[which].swap(true, Ordering::SeqCst), "two are inside");
        if self.dice.one_in(16) {
            yield_now().await;
        }
        if self.dice.one_in(256) {
            assert!(guard.verify().await.unwrap());
        }
        assert!(guard.is_valid());
        self.inside[which].store(false, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_way_to_take_and_give_back_on_several_threads() {
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        contend(clock, |memory| memory).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_way_to_take_and_give_back_when_the_store_lets_others_go_first() {
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        contend(clock, |inner| Jitter { inner, dice: Dice::default() }).await;
    }
}

/// Another thread brings the grant at the moment in which the upgrade is dropped.
#[test]
fn an_upgrade_that_is_dropped_while_it_is_granted_leaves_the_guard_shared() {
    const ROUNDS: usize = 4_000;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let store = MemoryStore::new();
    let manager = || LeaseManager::builder(store.clone(), TokioExecutor::new()).build().unwrap();
    let (one, two) = (manager(), manager());
    for round in 0..ROUNDS {
        let guard = Arc::new(runtime.block_on(one.lock("k").shared().acquire()).unwrap());
        let sharer = runtime.block_on(two.lock("k").shared().acquire()).unwrap();
        let upgraded = guard.clone();
        let mut upgrade = Box::pin(async move { upgraded.upgrade().await });
        runtime.block_on(async { assert!(futures::poll!(upgrade.as_mut()).is_pending()) });
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _entered = runtime.enter();
                start.wait();
                drop(sharer);
            });
            let _entered = runtime.enter();
            start.wait();
            (0..round % 60).for_each(|_| std::hint::spin_loop());
            drop(upgrade);
        });
        let shares = async {
            while guard.mode() == Mode::Exclusive {
                yield_now().await
            }
        };
        assert!(
            runtime.block_on(async { timeout(PATIENCE, shares).await }).is_ok(),
            "round {round}: it stays exclusive"
        );
        runtime.block_on(guard.release()).unwrap();
    }
}
