//! A fence in a rusqlite transaction of the user's.

use std::{
    fs,
    future::{Ready, ready},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rusqlite::{Connection, ErrorCode, Transaction};

use super::{
    failure::{self, Trouble},
    file,
    rows::Rows,
    schema::Tables,
};
use crate::executor::Shared;
use crate::machine::{Records, StoreError, StoreErrorKind, StoreId};
use crate::store::{Fence, FenceError, Fenced, FencedTransaction, Reach};

type Verdict = Result<Fenced, FenceError>;

/// A transaction on a connection of yours that has opened, or attached, the file of the [`SqliteStore`](super::SqliteStore).
///
/// The lease is checked at the call; in code without `async`, [`Ready::into_inner`] gives the answer. The check takes SQLite's
/// write lock, so that nobody can be granted the lease before the transaction ends. If the transaction reads before the fence, begin it
/// with [`TransactionBehavior::Immediate`](rusqlite::TransactionBehavior::Immediate): otherwise another connection may write in between,
/// and the fence fails as busy.
///
/// Call [`committed`](Fenced::committed) after the commit. Then the manager may pass the lease to its next request without asking the
/// store. If the guard ends earlier, the store grants the next lease after the transaction.
///
/// A refused transaction cannot be committed: drop it, or roll it back. If the connection does not
/// [enforce foreign keys](https://sqlite.org/pragma.html#pragma_foreign_keys), the refused transaction is rolled back at once, because
/// nothing else would keep it from being committed. A statement that you then execute in spite of the error commits by itself. So look
/// at the answer before you write.
///
/// Two statements lift a refusal, if you execute them in spite of the error. Do not:
/// * `ROLLBACK TO` undoes all that was done since the savepoint, including a refusal or a renewal: fence outside of savepoints.
/// * `PRAGMA defer_foreign_keys = OFF` makes SQLite forget the violated constraints of the open transaction, including the one that
///   refuses the commit. SQLite also switches that setting off at the end of each transaction. Nothing in a transaction can keep it from
///   this.
///
/// ```
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::SqliteStore};
/// use rusqlite::{Connection, TransactionBehavior};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("leasehold-fence-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let path = directory.join("app.db");
/// let leases = LeaseManager::builder(SqliteStore::open(&path)?, TokioExecutor::new()).build()?;
/// let guard = leases.lock("notes").acquire().await?;
///
/// let mut database = Connection::open(&path)?;
/// database.execute_batch("CREATE TABLE notes (text TEXT)")?;
/// let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// let fenced = guard.fence_and_renew(&transaction).await?;
/// transaction.execute("INSERT INTO notes VALUES ('milk')", [])?;
/// transaction.commit()?;
/// fenced.committed();
/// # guard.release().await?;
/// # leases.close().await;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok(()) }
/// ```
impl FencedTransaction for &Transaction<'_> {
    type Passed = Fenced;
    type Answer = Ready<Verdict>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        let verdict = judge(self, &*fence);
        match verdict {
            Ok(()) => ready(Ok(Fenced::passed(fence))),
            Err(why) => {
                let stopped = stop(self, why);
                if stopped.is_ok() {
                    fence.over();
                }
                ready(Err(stopped.unwrap_or_else(|unstopped| unstopped)))
            }
        }
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        ready(Err(stop(self, why).unwrap_or_else(|unstopped| unstopped)))
    }
}

/// As for a shared reference.
impl FencedTransaction for &mut Transaction<'_> {
    type Passed = Fenced;
    type Answer = Ready<Verdict>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        (&*self).check(fence)
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        (&*self).refuse(why)
    }
}

fn judge(transaction: &Connection, fence: &dyn Fence) -> Result<(), FenceError> {
    if transaction.is_autocommit() {
        return Err(FenceError::Misuse("the transaction is over: fence it before COMMIT or ROLLBACK".into()));
    }
    let (path, tables) = tables_in(transaction, &fence.reach())?;
    let failed = |trouble| FenceError::Store(file::told(&path, trouble));
    lock(transaction, &path, &tables)?;
    let mut rows = Rows::prepare(transaction, &tables, false).map_err(|error| failed(error.into()))?;
    let (store, mut records) = load(&mut rows, fence).map_err(failed)?;
    fence.judge(store, &mut records)?;
    rows.write_changed(&mut records).map_err(failed)
}

const READ_ONLY: &str = "the connection of the transaction cannot write, so there is nothing to fence; open it for reading and writing, without \
    PRAGMA query_only, as a user who may write to the file";

/// The file of the leases, and their tables under the names by which the transaction reaches them.
fn tables_in(transaction: &Connection, reach: &Reach) -> Result<(PathBuf, Tables), FenceError> {
    let found = || {
        let Reach::Machine(directory) = reach else { return None };
        let mut attached = transaction.prepare("PRAGMA database_list").ok()?;
        let mut list = attached.query([]).ok()?;
        while let Ok(Some(database)) = list.next() {
            let (name, file): (String, String) = (database.get(1).ok()?, database.get(2).unwrap_or_default());
            let Some((path, is_there)) = place_of(Path::new(&file)) else { continue };
            if let Some(prefix) = file::prefix_of(directory, &path) {
                let tables = Tables::new(&name, prefix);
                return Some(if is_there { Ok((path, tables)) } else { Err(gone(&file)) });
            }
        }
        None
    };
    let elsewhere = || {
        let Reach::Machine(directory) = reach else {
            return FenceError::Misuse(
                "the lease is not kept in SQLite; fence a transaction of the store that keeps it".into(),
            );
        };
        let opened = transaction.path().filter(|path| !path.is_empty()).unwrap_or("memory");
        FenceError::Misuse(format!(
            "the lease is kept in {}, and the transaction is in {opened}: open the file of the SqliteStore, or attach it",
            file::kept_by(directory).unwrap_or(directory)
        ))
    };
    found().unwrap_or_else(|| Err(elsewhere()))
}

/// The path of a file, with all links resolved, and whether the file is there.
fn place_of(file: &Path) -> Option<(PathBuf, bool)> {
    if let Ok(path) = fs::canonicalize(file) {
        return Some((path, true));
    }
    let folder = fs::canonicalize(file.parent()?).ok()?;
    Some((folder.join(file.file_name()?), false))
}

/// The error of a file that was deleted or moved: others who open its path make another file there.
fn gone(file: &str) -> FenceError {
    FenceError::Store(StoreError::permanent(
        StoreErrorKind::Closed,
        format!("{file}: while it was open, the file was deleted or moved; open it again"),
    ))
}

/// Takes the write lock, and writes nothing.
fn lock(transaction: &Connection, path: &Path, tables: &Tables) -> Result<(), FenceError> {
    let locked = transaction.execute(&format!("UPDATE {} SET version = version WHERE 0", tables.store), []);
    let Err(error) = locked else { return Ok(()) };
    if failure::is_busy(&error) {
        let sentence = "another connection writes; begin the transaction with TransactionBehavior::Immediate, and set a busy_timeout";
        return Err(FenceError::Store(StoreError::transient(format!("{sentence} (SQLite: {error})"))));
    }
    if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) {
        return Err(FenceError::Misuse(READ_ONLY.into()));
    }
    Err(FenceError::Store(file::told(path, error.into())))
}

/// What the fence is judged by. A store whose row cannot be read is none that a lease was granted in.
fn load(rows: &mut Rows<'_>, fence: &dyn Fence) -> Result<(Option<StoreId>, Records), Trouble> {
    let (ticket, mut records) = (fence.ticket(), Records::new());
    let store = rows.known_store(&mut records)?;
    for key in ticket.batch.keys() {
        rows.load_record(&mut records, key)?;
    }
    if ticket.renews() || !ticket.finds_its_grant(&records) {
        rows.load_session(&mut records, ticket.batch.session)?;
    }
    Ok((store, records))
}

/// Refuses a transaction: returns why, or an error that also says why the transaction could not be stopped.
fn stop(transaction: &Connection, why: FenceError) -> Result<FenceError, FenceError> {
    match spoil(transaction) {
        Ok(()) => Ok(why),
        Err(error) => Err(FenceError::Misuse(format!("{why}, and its transaction could not be stopped: {error}"))),
    }
}

/// Makes a commit impossible: by a foreign key that leads nowhere, and that SQLite checks at the commit. Where that cannot be had,
/// nothing is left to commit.
fn spoil(transaction: &Connection) -> rusqlite::Result<()> {
    static SPOILED: AtomicU64 = AtomicU64::new(0);
    if transaction.is_autocommit() {
        return Ok(());
    }
    // Of its own, whatever the user has there.
    let table = format!("leasehold_refused_{}", SPOILED.fetch_add(1, Ordering::Relaxed));
    let spoiled =
        transaction.query_row("PRAGMA foreign_keys", [], |row| row.get(0)).is_ok_and(|enforced: bool| enforced)
            && transaction
                .execute_batch(&format!(
                    "CREATE TEMP TABLE {table}
                     (id INTEGER PRIMARY KEY, never INTEGER REFERENCES {table} (id) DEFERRABLE INITIALLY DEFERRED);
                 INSERT INTO temp.{table} VALUES (1, 2)",
                ))
                .is_ok();
    if spoiled { Ok(()) } else { transaction.execute_batch("ROLLBACK") }
}
