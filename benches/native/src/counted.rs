//! A memory store that counts what is asked of it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use leasehold::{
    StoreError,
    machine::{Action, Batch, Now, Reply, StoreClock},
    store::{MemoryStore, Reach, Store},
};

/// Clones share the records and the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountedStore {
    inner: MemoryStore,
    transactions: Arc<AtomicUsize>,
    renewals: Arc<AtomicUsize>,
}

impl CountedStore {
    pub(crate) fn transactions(&self) -> usize {
        self.transactions.load(Ordering::Relaxed)
    }

    /// How many leases were renewed, however many transactions that took.
    pub(crate) fn renewals(&self) -> usize {
        self.renewals.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Store for CountedStore {
    async fn transact(&self, batch: Batch, now: Now) -> Result<Reply, StoreError> {
        let renewals = batch.0.iter().filter(|operation| matches!(operation.action, Action::Renew { .. })).count();
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.renewals.fetch_add(renewals, Ordering::Relaxed);
        self.inner.transact(batch, now).await
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
