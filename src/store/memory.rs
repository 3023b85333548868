//! Stores in memory: one for the tasks of a process, one for a single manager.

use alloc::vec::Vec;
use core::{fmt, time::Duration};
use std::sync::{
    MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use super::{
    Durability, Reach, Store,
    url::{FromUrl, Parts, refused},
};
use crate::executor::{Mutex, Shared};
use crate::machine::{
    Batch, Key, Now, Records, Reply, SessionId, StoreClock, StoreError, StoreErrorKind, StoreId, StoreNow,
};

static OPENED: AtomicU64 = AtomicU64::new(1);

/// Records in memory. Clones share them.
///
/// Its clock is [trusted](StoreClock::Trusted): all tasks of a process read one monotonic clock.
///
/// ```
/// use leasehold::store::MemoryStore;
/// let one = MemoryStore::new();
/// let other = one.clone();    // the same records
/// # let _ = other;
/// ```
pub struct MemoryStore {
    room: Shared<Room>,
    closed: AtomicBool,
}

struct Room {
    number: u64,
    clock: StoreClock,
    records: Mutex<Records>,
    /// With more records than this, unused ones are deleted.
    most: AtomicUsize,
}

/// Contexts delete the records that they used long ago. Contexts that have ended may leave this many more.
const MANY: usize = 512;

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::with_clock(StoreClock::Trusted)
    }

    /// An empty store that judges time as another kind of store does: with [`StoreClock::Observed`] like IndexedDB.
    pub fn with_clock(clock: StoreClock) -> Self {
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let records = Mutex::new(Records::whole(StoreId(number.into())));
        let room = Room { number, clock, records, most: MANY.into() };
        Self { room: Shared::new(room), closed: AtomicBool::new(false) }
    }

    /// Fails if this handle was closed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(StoreError::permanent(StoreErrorKind::Closed, "this handle of the memory store was closed"));
        }
        Ok(())
    }

    pub(crate) fn apply(&self, batch: &Batch, now: Now) -> Result<Reply, StoreError> {
        self.check()?;
        let mut records = self.records();
        let reply = batch.apply(&mut records, StoreNow::new(self.clock(), now));
        if records.len() > self.room.most.load(Ordering::Relaxed) {
            records.forget_unused();
            // Twice as many as are in use. Otherwise each transaction would look at all of them.
            self.room.most.store(MANY.max(records.len() * 2), Ordering::Relaxed);
        }
        records.forget_changes();
        Ok(reply)
    }

    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.check()?;
        Ok(self.records().keys(prefix))
    }

    pub(crate) fn end(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// `apply` leaves no record half changed, so the records are sound even after a panic under the lock.
    fn records(&self) -> MutexGuard<'_, Records> {
        self.room.records.lock()
    }
}

impl FromUrl for MemoryStore {
    fn check_url(url: &Parts<'_>) -> Result<(), StoreError> {
        url.check_parameters(&[])?;
        if url.place.is_empty() {
            return Ok(());
        }
        Err(refused("a store in memory has no name; write memory:, and share the manager".into()))
    }

    async fn open_url(_: &Parts<'_>) -> Result<Self, StoreError> {
        Ok(Self::new())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for MemoryStore {
    /// Another handle to the same records, which is open even if this one was closed.
    fn clone(&self) -> Self {
        Self { room: self.room.clone(), closed: AtomicBool::new(false) }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MemoryStore({})", self.room.number)
    }
}

maybe_send! {
impl Store for MemoryStore {
    async fn transact(&self, batch: Batch, now: Now, _limit: Duration) -> Result<Reply, StoreError> {
        self.apply(&batch, now)
    }

    fn transact_at_once(&self, batch: &Batch, now: Now) -> Option<Result<Reply, StoreError>> {
        Some(self.apply(batch, now))
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.list(prefix)
    }

    fn durability(&self) -> Durability {
        Durability::Ephemeral
    }

    fn abandons(&self) -> bool {
        true
    }

    fn abandon(&self, session: SessionId) {
        if !self.closed.load(Ordering::Relaxed) {
            let mut records = self.records();
            records.abandon(session);
            records.forget_changes();
        }
    }

    async fn close(&self) {
        self.end();
    }

    fn polls_inline(&self) -> bool {
        true
    }

    fn clock(&self) -> StoreClock {
        self.room.clock
    }

    fn reach(&self) -> Reach {
        Reach::Process(self.room.number)
    }
}
}

/// A store for a single manager: a [`LeaseManager`](crate::LeaseManager) on it excludes its own requests only. With it, the same code runs
/// in a program of one process as with a shared store in a program of many.
///
/// ```
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::NoStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leases = LeaseManager::builder(NoStore::new(), TokioExecutor::new()).build()?;
/// let guard = leases.lock("notes").acquire().await?;
/// assert!(leases.lock("notes").try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct NoStore(MemoryStore);

impl NoStore {
    /// A store for a single manager.
    pub fn new() -> Self {
        Self::default()
    }
}

maybe_send! {
impl Store for NoStore {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.0.transact(batch, now, limit).await
    }

    fn transact_at_once(&self, batch: &Batch, now: Now) -> Option<Result<Reply, StoreError>> {
        self.0.transact_at_once(batch, now)
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.0.keys(prefix).await
    }

    async fn close(&self) {
        self.0.close().await;
    }

    fn polls_inline(&self) -> bool {
        true
    }

    fn clock(&self) -> StoreClock {
        self.0.clock()
    }

    fn durability(&self) -> Durability {
        Durability::Ephemeral
    }

    fn reach(&self) -> Reach {
        self.0.reach()
    }
}
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::String};

    use super::*;
    use crate::machine::{Acquire, Action, Beat, Operation, Outcome, RequestId, SessionStep};

    fn batch(name: &str, action: Action) -> Batch {
        Batch::new(SessionId(1), Vec::from([Operation { key: Key::new(name).unwrap(), action }]))
    }

    /// Each context leaves the records of the keys that it used last, and many contexts come and go.
    #[test]
    fn what_nobody_uses_is_forgotten_where_there_is_much_of_it() {
        let (store, now) = (MemoryStore::with_clock(StoreClock::Observed), Now::default());
        let beat = Beat { beat: 1, lease_ms: 1_000, ..Beat::default() };
        let opens = SessionStep::Open { beat, instance: String::new() };
        store.apply(&Batch { step: opens, ..Batch::new(SessionId(1), Vec::new()) }, now).unwrap();
        let mut longest = 0;
        for number in 1..=5_000 {
            let (name, request) = (format!("key {number}"), RequestId(number));
            let asked = store.apply(&batch(&name, Action::Acquire(Acquire::new(request, number))), now).unwrap();
            let Outcome::Granted(granted) = &asked.answers[0].outcome else { panic!("{asked:?}") };
            let release = Action::Release { token: granted.block.first, request };
            if number % 100 > 0 {
                store.apply(&batch(&name, release), now).unwrap();
            }
            longest = longest.max(store.records().len());
        }
        assert_eq!(longest, MANY);
        assert_eq!(store.records().keys("").len(), 50, "what is held stays");
    }
}
