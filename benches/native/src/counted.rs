//! A memory store that counts what is asked of it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::{
    StoreError,
    machine::{Batch, Now, Reply, SessionStep, StoreClock},
    store::{MemoryStore, Reach, Store},
};

/// Clones share the records and the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountedStore {
    inner: MemoryStore,
    transactions: Arc<AtomicUsize>,
    heartbeats: Arc<AtomicUsize>,
}

impl CountedStore {
    pub(crate) fn transactions(&self) -> usize {
        self.transactions.load(Ordering::Relaxed)
    }

    pub(crate) fn heartbeats(&self) -> usize {
        self.heartbeats.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Store for CountedStore {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        let beats = matches!(batch.step, SessionStep::Beat(_));
        self.heartbeats.fetch_add(usize::from(beats), Ordering::Relaxed);
        self.inner.transact(batch, now, limit).await
    }

    fn polls_inline(&self) -> bool {
        true
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
