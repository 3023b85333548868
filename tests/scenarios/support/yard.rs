//! Contexts that differ in their store and their signals, over one store in memory.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use leasehold::{
    LeaseManager,
    executor::{Executor, MaybeSendFuture, SimExecutor},
    machine::{Now, StoreClock},
    store::{FaultyStore, MemoryStore},
};

use super::{
    doubles::{Deaf, SlowStore},
    world::{HEARTBEAT, LEASE},
};

/// Contexts over one store in memory: each may be slow, hear nothing, or have a store that fails.
pub(crate) struct Yard {
    pub(crate) sim: SimExecutor,
    pub(crate) shared: MemoryStore,
}

impl Yard {
    fn run<F: Future<Output = ()>>(scenario: impl FnOnce(SimExecutor, MemoryStore) -> F) {
        let sim = SimExecutor::new(1);
        sim.block_on(scenario(sim.clone(), MemoryStore::with_clock(StoreClock::Observed)));
    }

    /// A context whose store needs this long each way.
    pub(crate) fn slow(&self, each_way_ms: u64) -> LeaseManager {
        let store = SlowStore::new(self.shared.clone(), self.sim.clone(), each_way_ms..=each_way_ms);
        LeaseManager::builder(store, self.sim.context()).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
    }

    pub(crate) fn slow_and_deaf(&self, each_way_ms: u64) -> LeaseManager {
        let store = SlowStore::new(self.shared.clone(), self.sim.clone(), each_way_ms..=each_way_ms);
        let builder = LeaseManager::builder(store, self.sim.context()).signals(Deaf);
        builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
    }

    pub(crate) fn deaf(&self) -> LeaseManager {
        let builder = LeaseManager::builder(self.shared.clone(), self.sim.context()).signals(Deaf);
        builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
    }

    pub(crate) fn faulty(&self) -> (LeaseManager, FaultyStore<MemoryStore>) {
        let store = FaultyStore::new(self.shared.clone());
        let builder = LeaseManager::builder(store.clone(), self.sim.context()).lease(LEASE).heartbeat(HEARTBEAT);
        (builder.build().unwrap(), store)
    }

    pub(crate) fn named(&self, instance: &str) -> LeaseManager {
        let builder = LeaseManager::builder(self.shared.clone(), self.sim.context()).instance(instance);
        builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap()
    }

    /// A context whose store needs this long each way, and how many alarms it sets.
    pub(crate) fn slow_and_counted(&self, each_way_ms: u64) -> (LeaseManager, Arc<AtomicUsize>) {
        let store = SlowStore::new(self.shared.clone(), self.sim.clone(), each_way_ms..=each_way_ms);
        let executor = CountingExecutor { sim: self.sim.context(), alarms: Arc::default() };
        let alarms = executor.alarms.clone();
        (LeaseManager::builder(store, executor).lease(LEASE).heartbeat(HEARTBEAT).build().unwrap(), alarms)
    }

    pub(crate) async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future.fuse());
        let mut limit = pin!(self.sim.pass(limit).fuse());
        futures::select_biased! { value = future => Some(value), () = limit => None }
    }
}

/// This many alarms are enough for half a minute.
pub(crate) const MOST_ALARMS: usize = 1_000;

/// An executor that counts the alarms of its context, which is not to run in circles.
#[derive(Clone, Debug)]
struct CountingExecutor {
    sim: SimExecutor,
    alarms: Arc<AtomicUsize>,
}

impl Executor for CountingExecutor {
    fn now(&self) -> Now {
        self.sim.now()
    }

    fn spawn(&self, future: MaybeSendFuture<'static, ()>) {
        self.sim.spawn(future);
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        let alarms = self.alarms.fetch_add(1, Ordering::Relaxed);
        // Whoever counts them finds too many; the test comes to its end all the same.
        self.sim.sleep(if alarms < MOST_ALARMS { duration } else { LEASE })
    }

    fn random(&self) -> u128 {
        self.sim.random()
    }

    fn has_crashed(&self) -> bool {
        self.sim.has_crashed()
    }
}

pub(crate) fn with_a_twin(scenario: impl AsyncFnOnce(&Yard, LeaseManager, SimExecutor, FaultyStore<MemoryStore>)) {
    yard(async |yard| {
        let executor = yard.sim.context();
        let store = FaultyStore::new(yard.shared.clone());
        let builder = LeaseManager::builder(store.clone(), executor.clone()).instance("w");
        let leases = builder.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap();
        scenario(yard, leases, executor, store).await;
    });
}

pub(crate) fn yard(scenario: impl AsyncFnOnce(&Yard)) {
    Yard::run(|sim, shared| async move { scenario(&Yard { sim, shared }).await });
}
