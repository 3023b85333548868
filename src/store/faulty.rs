//! A store that fails on demand, for tests.

use alloc::{collections::VecDeque, vec::Vec};
use core::time::Duration;

use futures::future::pending;

use super::{Durability, Reach, Store, StoreWatcher};
use crate::executor::{Mutex, Shared, WeakShared};
use crate::machine::{Batch, Key, Now, Reply, SessionId, SessionStep, StoreClock, StoreError, StoreErrorKind};
use crate::signal::Signals;

/// A fault of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It is not applied, and trying again may help.
    Refuse,
    /// It is not applied, and trying again does not help.
    Fail,
    /// It is applied, but its answer is lost.
    LoseReply,
    /// It is applied, but no answer ever comes.
    Silence,
    /// It is not applied, and no answer ever comes.
    Stall,
    /// It panics before anything is applied: a bug of the store.
    Panic,
}

/// Wraps another store, and fails on demand. Clones share the faults. If the other store cannot be cloned, as `IndexedDbStore`
/// cannot, wrap an [`Arc`](std::sync::Arc) of it, or in a browser an `Rc`: then the `FaultyStore` can be cloned.
///
/// ```
/// use leasehold::store::{Fault, FaultyStore, MemoryStore};
/// let store = FaultyStore::new(MemoryStore::new());
/// store.inject(Fault::LoseReply);    // the next transaction
/// ```
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    plan: Shared<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    next: VecDeque<Fault>,
    always: Option<Fault>,
    seen: Vec<Batch>,
}

impl<S> FaultyStore<S> {
    /// A store that works like `inner` until told otherwise.
    pub fn new(inner: S) -> Self {
        Self { inner, plan: Shared::default() }
    }

    /// Makes the next transaction that has no fault yet fail.
    pub fn inject(&self, fault: Fault) {
        self.plan.lock().next.push_back(fault);
    }

    /// Makes all transactions fail, or none.
    pub fn fail_always(&self, fault: Option<Fault>) {
        self.plan.lock().always = fault;
    }

    /// Removes all faults.
    pub fn heal(&self) {
        let mut plan = self.plan.lock();
        plan.next.clear();
        plan.always = None;
    }

    /// The transactions that were requested since the last call.
    pub fn take_seen(&self) -> Vec<Batch> {
        core::mem::take(&mut self.plan.lock().seen)
    }

    /// How many transactions since the last call contained a heartbeat of an open session.
    pub fn take_beats(&self) -> usize {
        self.take_seen().iter().filter(|batch| matches!(batch.step, SessionStep::Beat(_))).count()
    }
}

impl<S: Clone> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), plan: self.plan.clone() }
    }
}

async fn fail<T>(fault: Fault) -> Result<T, StoreError> {
    match fault {
        Fault::Refuse => Err(StoreError::transient("refused on demand")),
        Fault::Fail => Err(StoreError::permanent(StoreErrorKind::Unavailable, "failed on demand")),
        Fault::LoseReply => Err(StoreError::unknown("the answer was lost on demand")),
        Fault::Silence | Fault::Stall => pending().await,
        Fault::Panic => panic!("panicked on demand"),
    }
}

maybe_send! {
impl<S: Store> Store for FaultyStore<S> {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let fault = {
            let mut plan = self.plan.lock();
            plan.seen.push(batch.clone());
            plan.next.pop_front().or(plan.always)
        };
        let Some(fault) = fault else { return self.inner.transact(batch, now, limit).await };
        if matches!(fault, Fault::LoseReply | Fault::Silence) {
            self.inner.transact(batch, now, limit).await?;
        }
        fail(fault).await
    }

    /// While a fault is planned, this answers `None`: then the caller calls `transact`, which does what the fault says. Some faults
    /// never answer, but this function cannot wait.
    fn transact_at_once(&self, batch: &Batch, now: Now) -> Option<Result<Reply, StoreError>> {
        let is_sound = |plan: &Plan| plan.always.is_none() && plan.next.is_empty();
        if !is_sound(&self.plan.lock()) {
            return None;
        }
        let answer = self.inner.transact_at_once(batch, now)?;
        self.plan.lock().seen.push(batch.clone());
        Some(answer)
    }

    /// Does what the fault of every transaction says, if one is set. A single fault is kept for the next transaction.
    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let always = self.plan.lock().always;
        match always {
            Some(fault) => fail(fault).await,
            None => self.inner.keys(prefix).await,
        }
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn abandons(&self) -> bool {
        self.inner.abandons()
    }

    /// Deletes the session unless all transactions fail.
    fn abandon(&self, session: SessionId) {
        if self.plan.lock().always.is_none() {
            self.inner.abandon(session);
        }
    }

    fn signals(&self) -> Option<Shared<dyn Signals>> {
        self.inner.signals()
    }

    fn interrupt(&self) {
        self.inner.interrupt();
    }

    fn watch(&self, watcher: WeakShared<dyn StoreWatcher>) {
        self.inner.watch(watcher);
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    fn loses_writes_in_failover(&self) -> bool {
        self.inner.loses_writes_in_failover()
    }

    fn polls_inline(&self) -> bool {
        self.inner.polls_inline()
    }

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}
}
