//! A world with one store and several contexts.

use std::time::Duration;

use futures::future::{Either, select};
use leasehold::{
    LeaseManager, LeaseManagerBuilder,
    executor::{Executor, SimExecutor},
    machine::{Monotonic, StoreClock},
    store::{Fault, FaultyStore, MemoryStore},
};

pub(crate) const LEASE: Duration = Duration::from_secs(20);
/// More than a transaction takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Dice of the world: the same seed throws the same.
pub(crate) struct Dice<'a>(pub(crate) &'a SimExecutor);

impl Dice<'_> {
    pub(crate) fn below(&self, end: u64) -> u64 {
        u64::try_from(self.0.random() % u128::from(end)).unwrap()
    }

    pub(crate) fn one_in(&self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub(crate) fn index(&self, items: usize) -> usize {
        usize::try_from(self.below(items as u64)).unwrap()
    }
}

/// One store, whose clock is trusted like memory's, or merely observed like IndexedDB's.
pub(crate) struct World {
    pub(crate) sim: SimExecutor,
    pub(crate) shared: MemoryStore,
}

/// A context: its manager, its executor to freeze, its connection to break.
pub(crate) struct Tab {
    pub(crate) leases: LeaseManager,
    pub(crate) executor: SimExecutor,
    pub(crate) store: FaultyStore<MemoryStore>,
}

impl Tab {
    /// The same context, with options of its own.
    pub(crate) fn with(self, choose: impl FnOnce(LeaseManagerBuilder) -> LeaseManagerBuilder) -> Self {
        let builder = LeaseManager::builder(self.store.clone(), self.executor.clone());
        let leases = choose(builder.lease(LEASE).heartbeat(HEARTBEAT)).build().unwrap();
        Self { leases, ..self }
    }

    /// What a crash does: nothing of the context runs again, not even the destructors of what it held.
    pub(crate) fn crash<T>(self, held: T) {
        self.executor.kill();
        self.store.fail_always(Some(Fault::Fail));
        drop(held);
        drop(self.leases);
        // What the end of the guards began does not go on either.
        self.executor.kill();
    }

    /// How many transactions it sent since the last look.
    pub(crate) fn take_transactions(&self) -> usize {
        self.store.take_seen().len()
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_clock(seed, StoreClock::Observed)
    }

    pub(crate) fn with_clock(seed: u64, clock: StoreClock) -> Self {
        Self { sim: SimExecutor::new(seed), shared: MemoryStore::with_clock(clock) }
    }

    pub(crate) fn tab(&self) -> Tab {
        self.tab_with(true)
    }

    /// A tab without a sign of life: it is judged by watching alone.
    pub(crate) fn dark_tab(&self) -> Tab {
        self.tab_with(false)
    }

    fn tab_with(&self, beacon: bool) -> Tab {
        let store = FaultyStore::new(self.shared.clone());
        let executor = self.sim.context();
        let builder = LeaseManager::builder(store.clone(), executor.clone());
        let leases = builder.lease(LEASE).heartbeat(HEARTBEAT).beacon(beacon).build().unwrap();
        Tab { leases, executor, store }
    }

    pub(crate) fn now(&self) -> Monotonic {
        self.sim.now().monotonic
    }

    /// How many ms have passed since.
    pub(crate) fn ms_since(&self, start: Monotonic) -> u64 {
        self.now().since(start)
    }

    /// What the future gives within this time, if anything.
    pub(crate) async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        match select(Box::pin(future), Box::pin(self.sim.pass(limit))).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }

    pub(crate) fn run<T>(&self, scenario: impl Future<Output = T>) -> T {
        self.sim.block_on(scenario)
    }
}

/// Runs a scenario for both kinds of clock and several orders of events.
pub(crate) fn everywhere(scenario: impl AsyncFn(&World)) {
    for clock in [StoreClock::Trusted, StoreClock::Observed] {
        for seed in 0..8 {
            let world = World::with_clock(seed, clock);
            world.run(scenario(&world));
        }
    }
}
