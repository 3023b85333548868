//! A store that decides what becomes of each transaction.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use leasehold::{
    LeaseManager, StoreError,
    executor::{Executor, SimExecutor},
    machine::{Batch, Now, Reply, StoreClock, StoreErrorKind},
    store::{MemoryStore, Reach, Store},
};

use super::world::{HEARTBEAT, LEASE, World};

/// What becomes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Answered,
    /// It is applied, and the answer is lost.
    Unanswered,
    Refused,
    RefusedForGood,
    Locked,
}

use Verdict::{Answered, Locked, Refused, RefusedForGood, Unanswered};

type Judge = Box<dyn FnMut(&Batch) -> Verdict + Send>;

#[derive(Clone)]
pub(crate) struct Judged {
    inner: MemoryStore,
    judge: Arc<Mutex<Judge>>,
    /// How long each transaction takes, in ms.
    takes_ms: Arc<AtomicU64>,
    clock: SimExecutor,
}

impl Judged {
    pub(crate) fn over(world: &World) -> (LeaseManager, Self) {
        let judge: Judge = Box::new(|_| Answered);
        let (judge, clock) = (Arc::new(Mutex::new(judge)), world.sim.context());
        let store = Self { inner: world.shared.clone(), judge, takes_ms: Arc::default(), clock };
        let builder = LeaseManager::builder(store.clone(), world.sim.context()).lease(LEASE).heartbeat(HEARTBEAT);
        (builder.beacon(false).linger(Duration::ZERO).build().unwrap(), store)
    }

    pub(crate) fn judge(&self, judge: impl FnMut(&Batch) -> Verdict + Send + 'static) {
        *self.judge.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(judge);
    }

    /// How long each transaction takes from now on.
    pub(crate) fn take(&self, time: Duration) {
        self.takes_ms.store(time.as_millis() as u64, Relaxed);
    }

    /// From now on the first transaction with an operation is applied without an answer, and all later ones get `then`.
    pub(crate) fn answers_no_more(&self, then: Verdict) {
        let mut is_first = true;
        self.judge(move |batch| match batch.operations.is_empty() {
            true => Answered,
            false if std::mem::take(&mut is_first) => Unanswered,
            false => then,
        });
    }
}

impl fmt::Debug for Judged {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Judged")
    }
}

#[async_trait::async_trait]
impl Store for Judged {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let takes_ms = self.takes_ms.load(Relaxed);
        if takes_ms > 0 {
            self.clock.sleep(Duration::from_millis(takes_ms)).await;
        }
        let verdict = (self.judge.lock().unwrap_or_else(PoisonError::into_inner))(&batch);
        match verdict {
            Answered => self.inner.transact(batch, now, limit).await,
            Unanswered => {
                self.inner.transact(batch, now, limit).await?;
                Err(StoreError::unknown("the answer was lost"))
            }
            Refused => Err(StoreError::transient("refused")),
            RefusedForGood => Err(StoreError::permanent(StoreErrorKind::Unavailable, "refused for good")),
            Locked => Err(StoreError::locked("locked")),
        }
    }

    async fn close(&self) {}

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}
