//! A store in an SQLite file, which the processes of one machine share.

mod desk;
mod failure;
mod fence;
mod file;
mod rows;
mod schema;
mod sweep;
mod worker;

use std::{path::Path, time::Duration};

use async_trait::async_trait;

use super::{Reach, Store, StoreWatcher};
use crate::executor::WeakShared;
use crate::machine::{Batch, Key, Now, Reply, StoreError, StoreNow};

use file::LeaseFile;
use worker::{Job, Worker};

/// Leases in an SQLite file: for the processes of one machine, without a server.
///
/// The file may be one of its own, or the database of your application: then
/// [`guard.fence(&transaction)`](crate::LeaseGuard::fence) lets a rusqlite transaction commit only if the lease is current in it.
/// Leasehold keeps its rows in the tables `leasehold_store`, `leasehold_record` and `leasehold_session`.
///
/// * **Not for a network file system.** SQLite's locks and its shared memory work on one machine only.
/// * The file is set to [write-ahead logging](https://sqlite.org/wal.html). Each change is synced to the disk before it counts, so
///   that fencing tokens grow even over a power cut.
/// * A directory beside the file, `<file>-leasehold.d`, carries wake-ups and signs of life between the processes
///   ([`DirectorySignals`](crate::signal::DirectorySignals)). A process that is killed is replaced within a few ms; one that
///   hangs, after a lease of silence.
/// * Whoever is stopped (SIGSTOP, a debugger) in the middle of a transaction blocks all others: SQLite has one writer at a time.
/// * If the file is deleted or replaced while it is open, its holders lose their leases, and are told within a second. Do so only
///   while nobody has it open: until they are told, somebody else may hold the same keys in the new file.
///
/// Its one thread does all that blocks, so it needs no runtime. Clone a [`LeaseManager`](crate::LeaseManager) rather than open the file again.
///
/// The feature `store-sqlite` compiles SQLite along. `store-sqlite-unbundled` leaves that to your application or its system, in any
/// version of rusqlite from 0.30 to 0.41.
///
/// ```
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::SqliteStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("leasehold-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let path = directory.join("leases.db");
/// let leases = LeaseManager::builder(SqliteStore::open(&path)?, TokioExecutor::new()).build()?;
/// let guard = leases.lock("nightly report").acquire().await?;
/// // … of all processes on this file, this one writes the report …
/// guard.release().await?;
/// # leases.close().await;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SqliteStore {
    worker: Worker,
    reach: Reach,
}

/// As long as anybody waits for a transaction.
const FAR: Duration = Duration::from_secs(86_400);
/// What the names of the tables begin with, unless somebody chooses.
const PREFIX: &str = "leasehold";

impl SqliteStore {
    /// Opens the file, or makes it. Its directory must exist.
    ///
    /// It blocks while another process writes, for 5 s at most.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be opened and written, is no database, or holds leases of a newer format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with_prefix(path, PREFIX)
    }

    /// Opens the file with tables of other names: `<prefix>_store`, `<prefix>_record` and `<prefix>_session`. Each prefix
    /// is a store of its own.
    ///
    /// # Errors
    /// As for [`open`](Self::open); and if the prefix is not 1 to 40 lower-case letters, digits and underscores of ASCII, begins with
    /// a digit, or is `sqlite`.
    pub fn open_with_prefix(path: impl AsRef<Path>, prefix: &str) -> Result<Self, StoreError> {
        let file = LeaseFile::open(path.as_ref(), prefix)?;
        let reach = file.reach();
        Ok(Self { worker: Worker::start(file)?, reach })
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let start = worker::clock();
        let deadline = start.checked_add(limit).unwrap_or(start + FAR);
        let now = StoreNow::new(self.clock(), now);
        self.worker.ask(|answer| Job::Transact { batch, now, deadline, answer }).await
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let prefix = prefix.to_owned();
        self.worker.ask(|answer| Job::Keys { prefix, answer }).await
    }

    fn watch(&self, watcher: WeakShared<dyn StoreWatcher>) {
        self.worker.watch(watcher);
    }

    async fn close(&self) {
        self.worker.close().await;
    }

    fn polls_inline(&self) -> bool {
        true
    }

    fn reach(&self) -> Reach {
        self.reach.clone()
    }
}
