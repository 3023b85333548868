//! Stores in which somebody else may keep single records locked, as an open fenced transaction does in PostgreSQL.

mod leftovers;
mod turns;
mod waits;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    AcquireError, LeaseManager, StoreError,
    executor::{Executor, SimExecutor},
    machine::{Batch, Monotonic, Now, Reply, StoreClock, StoreErrorKind},
    store::{MemoryStore, Reach, Store},
};

use crate::support::world::{HEARTBEAT, LEASE, World, ms};

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
    /// How many transactions are carried out while their answers are lost.
    lost: Arc<Mutex<usize>>,
    /// The server is down for this many transactions.
    down: Arc<Mutex<usize>>,
    /// How long each transaction takes at least.
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

/// Ends the lock after this time, and says when that was.
async fn unlock_after(world: &World, wait: Duration, store: &Locking, key: &str) -> Monotonic {
    world.sim.pass(wait).await;
    store.unlock(key);
    world.now()
}

fn is_locked<T>(result: &Result<T, AcquireError>) -> bool {
    matches!(result, Err(AcquireError::Store(error)) if error.kind == StoreErrorKind::Locked)
}
