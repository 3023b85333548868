//! A store whose last error is remembered: a heartbeat that fails tells nobody why.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use leasehold::{
    executor::{Shared, WeakShared},
    machine::{Batch, Key, Now, Reply, SessionId, SessionStep, StoreClock, StoreError},
    signal::Signals,
    store::{Durability, Reach, Store, StoreWatcher},
};

/// Why the last transaction of a store failed, if none has written to it since.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastError(Arc<Mutex<Option<StoreError>>>);

impl LastError {
    /// The message of the last error, if there is one.
    pub(crate) fn sentence(&self) -> Option<String> {
        self.lock().as_ref().map(|error| error.message.clone())
    }

    /// The message of the last error, or `otherwise`.
    pub(crate) fn or(&self, otherwise: &str) -> String {
        self.sentence().unwrap_or_else(|| otherwise.to_owned())
    }

    /// A full store can still be read, so only a transaction that writes the session proves that it works again.
    fn note<T>(&self, outcome: &Result<T, StoreError>, writes: bool) {
        match outcome {
            Err(error) => *self.lock() = Some(error.clone()),
            Ok(_) if writes => *self.lock() = None,
            Ok(_) => {}
        }
    }

    /// Nothing panics under the lock, so a poisoned one guards a sound value.
    fn lock(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store, and what it said last.
#[derive(Debug)]
pub(crate) struct Witness<S> {
    pub(crate) store: S,
    pub(crate) last: LastError,
}

#[async_trait]
impl<S: Store> Store for Witness<S> {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let writes = batch.step != SessionStep::Stay;
        let outcome = self.store.transact(batch, now, limit).await;
        self.last.note(&outcome, writes);
        outcome
    }

    fn transact_at_once(&self, batch: &Batch, now: Now) -> Option<Result<Reply, StoreError>> {
        self.store.transact_at_once(batch, now)
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.store.keys(prefix).await
    }

    fn abandons(&self) -> bool {
        self.store.abandons()
    }

    fn abandon(&self, session: SessionId) {
        self.store.abandon(session);
    }

    fn signals(&self) -> Option<Shared<dyn Signals>> {
        self.store.signals()
    }

    fn interrupt(&self) {
        self.store.interrupt();
    }

    fn watch(&self, watcher: WeakShared<dyn StoreWatcher>) {
        self.store.watch(watcher);
    }

    async fn close(&self) {
        self.store.close().await;
    }

    fn loses_writes_in_failover(&self) -> bool {
        self.store.loses_writes_in_failover()
    }

    fn polls_inline(&self) -> bool {
        self.store.polls_inline()
    }

    fn clock(&self) -> StoreClock {
        self.store.clock()
    }

    fn durability(&self) -> Durability {
        self.store.durability()
    }

    fn reach(&self) -> Reach {
        self.store.reach()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While the disk is full, whoever looks at the store still has an answer.
    #[test]
    fn the_last_error_stays_until_the_store_is_written_again() {
        let last = LastError::default();
        last.note::<()>(&Err(StoreError::transient("no room")), true);
        last.note(&Ok(()), false);
        assert_eq!(last.or("silent"), "no room");
        last.note(&Ok(()), true);
        assert_eq!(last.or("silent"), "silent");
    }
}
