//! A store in an SQLite file that the processes of one machine share.

mod beside;
mod desk;
mod failure;
mod fence;
mod file;
mod identity;
mod look;
#[cfg(unix)]
mod mounted;
mod room;
mod rows;
mod schema;
mod still;
mod sweep;
mod url;
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
/// The file may be for leases only, or it may be the database of your application. In the latter case,
/// [`guard.fence(&transaction)`](crate::LeaseGuard::fence) lets a rusqlite transaction commit only if the lease is current in it.
/// Leasehold keeps its rows in the tables `leasehold_store`, `leasehold_record` and `leasehold_session`.
///
/// * **Not for a network file system.** SQLite's locks and its shared memory work on one machine only.
/// * The file is switched to [write-ahead logging](https://sqlite.org/wal.html). Each change is synced to the disk before it counts,
///   so that fencing tokens keep growing even after a power failure.
/// * A directory beside the file, `<file>-leasehold.d`, carries messages and beacons between the processes
///   ([`DirectorySignals`](crate::signal::DirectorySignals)). A holder whose process is killed is replaced within a few ms; one
///   that hangs, after a lease of silence.
/// * A process that is stopped (by SIGSTOP or a debugger) in the middle of a transaction blocks all others: SQLite allows one writer
///   at a time.
/// * Holders lose their leases if, while the file is open, it is deleted, replaced or moved, a link that leads to it is changed, or its log
///   (`<file>-wal`) or the log's index (`<file>-shm`) is deleted or replaced. They are notified within three seconds. Until then, another
///   process may hold the same keys, in the new file or through a new log, **and with a new log or index, fenced writes of both may
///   commit**. So move, replace or delete these files, their directory or a link to them only while no process has the file open.
/// * **Open the file by SQLite alone, and by one copy of SQLite.** If the process contains another copy (as Python does), build with
///   `store-sqlite-unbundled` against that copy. A process that has the file open must not also read or copy it by `std::fs::copy`,
///   `File::open` or the like: as soon as the process closes that descriptor, it loses [all of SQLite's locks on the
///   file](https://sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_). Another program may then
///   delete the log, or write in the middle of a transaction. For a copy, use `VACUUM INTO` or SQLite's backup.
///
/// A thread of its own does all blocking work, so the store needs no runtime. Clone the [`LeaseManager`](crate::LeaseManager) rather
/// than open the file again.
///
/// The feature `store-sqlite` bundles SQLite. With `store-sqlite-unbundled`, your application or its system provides it. Both work with any
/// version of rusqlite from 0.30 to 0.43. Unbundled, rusqlite 0.43 does not link with the SQLite 3.40 of Debian 12: choose an older one.
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
/// // … of all processes that use this file, only this one writes the report …
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
    /// Opens the file, or creates it. Its directory must exist.
    ///
    /// This blocks while another process writes, for 5 s at most.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be opened or written, is not a database, or holds leases in a newer format; and if the path
    /// begins with `sqlite:` or `file:`, because it is most likely a URL.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with_prefix(path, PREFIX)
    }

    /// Opens the file with other table names: `<prefix>_store`, `<prefix>_record` and `<prefix>_session`. Each prefix
    /// is a store of its own.
    ///
    /// # Errors
    /// As for [`open`](Self::open); and if the prefix is not 1 to 40 lower-case ASCII letters, digits and underscores, begins with
    /// a digit, is `sqlite`, or begins with `sqlite_`.
    pub fn open_with_prefix(path: impl AsRef<Path>, prefix: &str) -> Result<Self, StoreError> {
        Self::over(LeaseFile::open(path.as_ref(), prefix)?)
    }

    /// Opens the file only to look who holds its leases, or returns `None` if there are none under this prefix. The file must exist, and
    /// may be another program's database. This changes nothing in it, and leaves nothing beside it. It does not wait for writers, only, for
    /// up to 5 s, for a process that is closing the file.
    ///
    /// A user who may only read the file can look, too. If nobody has the file open, and a process that ended without closing it has left
    /// changes in a log beside it (`<file>-wal`) without its index (`<file>-shm`), only a user who may write to the file can read them.
    ///
    /// The store answers [`LeaseManager::status`](crate::LeaseManager::status) and [`list`](crate::LeaseManager::list). It grants no
    /// lease: its transactions fail if they would write.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be opened or read, is not a database, lacks some of its tables, or holds leases in a newer format.
    ///
    /// ```
    /// use leasehold::{LeaseManager, executor::TokioExecutor, store::SqliteStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("leasehold-look-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// # let path = directory.join("app.db");
    /// # std::fs::write(&path, "")?;
    /// match SqliteStore::open_read_only(&path, "leasehold")? {
    ///     Some(store) => {
    ///         let leases = LeaseManager::builder(store, TokioExecutor::new()).build()?;
    ///         println!("{} keys are held or waited for", leases.list("").await?.len());
    ///     }
    ///     None => println!("nobody has used leases in this database"),
    /// }
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok(()) }
    /// ```
    pub fn open_read_only(path: impl AsRef<Path>, prefix: &str) -> Result<Option<Self>, StoreError> {
        LeaseFile::open_read_only(path.as_ref(), prefix)?.map(Self::over).transpose()
    }

    fn over(file: LeaseFile) -> Result<Self, StoreError> {
        let reach = file.reach();
        Ok(Self { worker: Worker::start(file)?, reach })
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let start = worker::clock();
        // The context gives up at `limit`, too. The thread stops a tenth earlier, so that its error, which says what is in the way, arrives
        // first.
        let deadline = start.checked_add(limit - limit / 10).unwrap_or(start + FAR);
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
