//! Transactions of the user's own, checked for a lease.

use std::{fs, mem::forget, path::Path, sync::Arc, time::Duration};

use futures::future::{Either, select};
use leasehold::{
    FenceError, LeaseGuard, LeaseManager, LostReason,
    executor::TokioExecutor,
    store::{MemoryStore, SqliteStore},
};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::{runtime::Runtime, time::timeout};

use crate::{Scratch, connect, file, manager};

const LONG: Duration = Duration::from_secs(3_600);
/// As long as the tests wait for what must not happen.
const WHILE: Duration = Duration::from_millis(300);

fn notes(directory: &Path) -> Connection {
    let connection = connect(directory);
    connection.execute_batch("CREATE TABLE IF NOT EXISTS notes (text TEXT)").unwrap();
    connection
}

fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).unwrap()
}

fn write(transaction: &Transaction<'_>) {
    transaction.execute("INSERT INTO notes VALUES ('milk')", []).unwrap();
}

/// A lease that another context stole, which its holder does not know yet.
async fn overtaken(directory: &Path) -> (LeaseGuard, LeaseGuard) {
    let old =
        manager(directory).lease(LONG).signals(leasehold::signal::LocalSignals::new(&elsewhere())).build().unwrap();
    let old = old.lock("k").acquire().await.unwrap();
    let new = manager(directory).lease(LONG).build().unwrap().lock("k").steal().await.unwrap();
    (old, new)
}

fn elsewhere() -> leasehold::store::Reach {
    leasehold::store::Reach::Named("nobody hears this".into())
}

#[test]
fn a_current_lease_lets_the_transaction_commit() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let guard = manager(&scratch.0).build().unwrap().lock("k").acquire().await.unwrap();
        let mut database = notes(&scratch.0);
        for behavior in [TransactionBehavior::Deferred, TransactionBehavior::Immediate] {
            let transaction = database.transaction_with_behavior(behavior).unwrap();
            drop(guard.fence(&transaction).await.unwrap());
            write(&transaction);
            transaction.commit().unwrap();
        }
        assert_eq!(count(&database), 2);
    });
}

#[test]
fn what_an_overtaken_holder_writes_cannot_be_committed() {
    for foreign_keys in [true, false] {
        let scratch = Scratch::new();
        Runtime::new().unwrap().block_on(async {
            let (old, new) = overtaken(&scratch.0).await;
            let mut database = notes(&scratch.0);
            database.pragma_update(None, "foreign_keys", foreign_keys).unwrap();
            assert!(old.is_valid(), "it does not know yet");
            let transaction = database.transaction().unwrap();
            write(&transaction);
            let refused = old.fence(&transaction).await.expect_err("another holds the key");
            assert!(matches!(refused, FenceError::Lost { reason: LostReason::Stolen, .. }), "{refused:?}");
            transaction.commit().expect_err("what was refused is not committed");
            assert_eq!(count(&database), 0);
            assert!(!old.is_valid(), "and now it knows");

            let transaction = database.transaction().unwrap();
            let refused = old.fence(&transaction).await.expect_err("it is lost");
            assert!(matches!(refused, FenceError::Lost { reason: LostReason::Stolen, .. }), "{refused:?}");
            if foreign_keys {
                write(&transaction);
            }
            transaction.commit().expect_err("what was refused is not committed");
            assert_eq!(count(&database), 0);

            let transaction = database.transaction().unwrap();
            drop(new.fence(&transaction).await.unwrap());
            write(&transaction);
            transaction.commit().unwrap();
            assert_eq!(count(&database), 1, "the connection is as good as before");
        });
    }
}

/// Each of these kept the refusal from having effect once.
#[test]
fn nothing_of_the_users_disarms_a_refusal() {
    let tricks = [
        "CREATE TEMP TABLE leasehold_refused (id INTEGER, never INTEGER)",
        "CREATE TEMP TABLE leasehold_refused_0 (id INTEGER, never INTEGER)",
        "INSERT INTO notes VALUES ('early'); PRAGMA query_only = ON",
        "INSERT INTO notes VALUES ('early'); PRAGMA defer_foreign_keys = ON",
    ];
    for trick in tricks {
        let scratch = Scratch::new();
        Runtime::new().unwrap().block_on(async {
            let (old, _new) = overtaken(&scratch.0).await;
            let mut database = notes(&scratch.0);
            let transaction = database.transaction().unwrap();
            transaction.execute_batch(trick).unwrap();
            old.fence(&transaction).await.expect_err("another holds the key");
            transaction.commit().expect_err("what was refused is not committed");
            assert_eq!(count(&database), 0, "{trick}");
        });
    }
}

/// Only what the documentation of a fence names may lift a refusal. These statements are alike, but lift none.
#[test]
fn a_refusal_outlasts_what_is_done_after_it() {
    for deed in [
        "SAVEPOINT s; RELEASE s",
        "SAVEPOINT s; ROLLBACK TO s",
        "PRAGMA foreign_keys = OFF",
        "PRAGMA defer_foreign_keys = ON",
    ] {
        let scratch = Scratch::new();
        Runtime::new().unwrap().block_on(async {
            let (old, _new) = overtaken(&scratch.0).await;
            let mut database = notes(&scratch.0);
            let transaction = database.transaction().unwrap();
            write(&transaction);
            old.fence(&transaction).await.expect_err("another holds the key");
            transaction.execute_batch(deed).unwrap();
            write(&transaction);
            transaction.commit().expect_err("what was refused is not committed");
            assert_eq!(count(&database), 0, "{deed}");
        });
    }
}

/// The file of the leases has a longer name than another one that begins alike.
#[test]
fn the_right_one_of_several_files_is_found() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let guard = manager(&scratch.0).build().unwrap().lock("k").acquire().await.unwrap();
        let leases = file(&scratch.0);
        let alike = leases.with_file_name("leases.db-app");
        let store = SqliteStore::open_with_prefix(&alike, "x").unwrap();
        drop(store);
        let mut database = Connection::open(alike).unwrap();
        database.execute("ATTACH ?1 AS leases", [leases.to_str().unwrap()]).unwrap();
        let transaction = database.transaction().unwrap();
        drop(guard.fence(&transaction).await.unwrap());
    });
}

#[test]
fn a_released_guard_fences_nothing() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).build().unwrap();
        let guard = leases.lock("k").share_in_process().acquire().await.unwrap();
        let twin = leases.lock("k").share_in_process().acquire().await.unwrap();
        twin.release().await.unwrap();
        let mut database = notes(&scratch.0);
        let transaction = database.transaction().unwrap();
        drop(guard.fence(&transaction).await.unwrap());
        drop(transaction);
        leases.close().await;
        let transaction = database.transaction().unwrap();
        guard.fence(&transaction).await.expect_err("its manager was closed");
        transaction.commit().expect_err("what was refused is not committed");
    });
}

/// Until the fenced transaction ends, nobody is granted the key: not even a thief.
#[test]
fn nobody_is_granted_the_key_while_a_fenced_transaction_is_open() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let guard = manager(&scratch.0).build().unwrap().lock("k").acquire().await.unwrap();
        let thief = manager(&scratch.0).build().unwrap();
        let mut database = notes(&scratch.0);
        let transaction = database.transaction().unwrap();
        drop(guard.fence(&transaction).await.unwrap());
        write(&transaction);
        let mut theft = tokio::spawn(async move { thief.lock("k").steal().await.unwrap() });
        let early = timeout(Duration::from_millis(200), &mut theft).await;
        assert!(early.is_err(), "a thief was granted the key before the fenced write was committed");
        transaction.commit().unwrap();
        assert!(theft.await.unwrap().token() > guard.token());
        assert_eq!(count(&database), 1);
    });
}

/// The next guard may read before it begins a transaction of its own.
#[test]
fn a_transaction_that_outlives_its_guard_is_over_before_the_next_guard_has_the_lease() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).lease(LONG).build().unwrap();
        let mut database = notes(&scratch.0);
        for is_told in [false, true] {
            let guard = leases.lock("k").acquire().await.unwrap();
            let mut next = Box::pin(leases.lock("k").acquire().into_future());
            assert!(timeout(WHILE, next.as_mut()).await.is_err(), "the lease is taken");
            // A refused transaction is over.
            database.pragma_update(None, "query_only", true).unwrap();
            let unfit = database.transaction().unwrap();
            assert!(matches!(guard.fence(&unfit).await, Err(FenceError::Misuse(_))));
            drop(unfit);
            database.pragma_update(None, "query_only", false).unwrap();
            let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            let fenced = guard.fence(&transaction).await.unwrap();
            let before = leases.stats().transactions;
            if is_told {
                transaction.commit().unwrap();
                fenced.committed();
                drop(guard);
            } else {
                drop(guard);
                assert!(timeout(WHILE, next.as_mut()).await.is_err(), "granted during a fenced transaction");
                transaction.commit().unwrap();
            }
            let next = next.await.unwrap();
            assert_eq!(leases.stats().transactions == before, is_told, "the store grants the next lease if it must");
            next.release().await.unwrap();
        }
    });
}

/// No heartbeat goes out in this hour: what is renewed, the fence renews.
#[test]
fn a_renewal_counts_once_its_transaction_is_committed() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).lease(LONG).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut database = notes(&scratch.0);
        let sql = "SELECT state FROM leasehold_session";
        let beat = |database: &Connection| database.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
        let first = beat(&database);
        for commits in [false, true] {
            // Far enough from the last renewal that a slow commit does not matter.
            while guard.remaining() > LONG - LONG / 10 - Duration::from_millis(500) {
                tokio::task::yield_now().await;
            }
            let before = guard.remaining();
            let transaction = database.transaction().unwrap();
            let fenced = guard.fence_and_renew(&transaction).await.unwrap();
            if commits {
                transaction.commit().unwrap();
                fenced.committed();
                assert_ne!(beat(&database), first, "the heartbeat was committed along");
                assert!(guard.remaining() > before, "and it counts: {:?} after {before:?}", guard.remaining());
            } else {
                drop((fenced, transaction));
                assert_eq!(beat(&database), first, "what was rolled back renews nothing");
                assert!(guard.remaining() <= before);
            }
        }
        assert!(guard.verify().await.unwrap());
    });
}

/// Nobody reports the commits. Each handle is dropped or forgotten, whatever became of its transaction. The manager is not closed.
#[test]
fn handles_without_a_report_keep_nothing() {
    let scratch = Scratch::new();
    let store = Arc::new(SqliteStore::open(file(&scratch.0)).unwrap());
    let (runtime, kept) = (Runtime::new().unwrap(), Arc::downgrade(&store));
    runtime.block_on(async {
        let leases = LeaseManager::builder(store, TokioExecutor::new()).lease(LONG).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut database = notes(&scratch.0);
        for commits in [true, false].repeat(20) {
            let transaction = database.transaction().unwrap();
            let dropped = guard.fence_and_renew(&transaction).await.unwrap();
            let forgotten = guard.fence_and_renew(&transaction).await.unwrap();
            if commits {
                transaction.commit().unwrap();
            }
            drop(dropped);
            forget(forgotten);
        }
        assert!(guard.verify().await.unwrap());
        guard.release().await.unwrap();
    });
    drop(runtime);
    assert!(kept.upgrade().is_none(), "a fence keeps its manager and its store");
}

#[test]
fn a_transaction_elsewhere_is_refused() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    Runtime::new().unwrap().block_on(async {
        let guard = manager(&scratch.0).build().unwrap().lock("k").acquire().await.unwrap();
        let mut database = notes(&other.0);
        let transaction = database.transaction().unwrap();
        write(&transaction);
        let refused = guard.fence(&transaction).await.expect_err("the lease is kept in another file");
        let files =
            [&scratch.0, &other.0].map(|folder| folder.canonicalize().unwrap().join("leases.db").display().to_string());
        let names_both = |why: &str| files.iter().all(|file| why.contains(file));
        assert!(matches!(&refused, FenceError::Misuse(why) if names_both(why) && why.contains("attach")), "{refused}");
        transaction.commit().expect_err("what was refused is not committed");

        // Attached, it can be found.
        let leases = scratch.0.join("leases.db");
        database.execute("ATTACH ?1 AS \"the \"\"leases\"\"\"", [leases.to_str().unwrap()]).unwrap();
        let transaction = database.transaction().unwrap();
        drop(guard.fence(&transaction).await.unwrap());
        write(&transaction);
        transaction.commit().unwrap();
        assert_eq!(count(&database), 1);
    });
}

#[test]
fn a_lease_that_no_file_keeps_is_refused_as_such() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut database = notes(&scratch.0);
        let transaction = database.transaction().unwrap();
        let refused = guard.fence(&transaction).await.expect_err("the lease is kept in memory");
        assert!(matches!(&refused, FenceError::Misuse(why) if why.contains("not kept in SQLite")), "{refused}");
    });
}

#[test]
fn a_transaction_that_is_over_is_refused() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let guard = manager(&scratch.0).build().unwrap().lock("k").acquire().await.unwrap();
        let mut database = notes(&scratch.0);
        let transaction = database.transaction().unwrap();
        transaction.execute_batch("COMMIT").unwrap();
        let refused = guard.fence(&transaction).await.expect_err("there is nothing left to fence");
        assert!(matches!(&refused, FenceError::Misuse(why) if why.contains("over")), "{refused}");
    });
}

/// The file and its folder are writable, so the remedy is not to change their rights.
#[test]
fn a_connection_that_cannot_write_is_refused_with_the_remedy() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let guard = manager(&scratch.0).build().unwrap().lock("k").acquire().await.unwrap();
        let only_reads = Connection::open_with_flags(file(&scratch.0), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let only_asks = notes(&scratch.0);
        only_asks.execute_batch("PRAGMA query_only = ON").unwrap();
        for mut database in [only_reads, only_asks] {
            let transaction = database.transaction().unwrap();
            let refused = guard.fence(&transaction).await.expect_err("it cannot write");
            assert!(matches!(&refused, FenceError::Misuse(why) if why.contains("query_only")), "{refused}");
        }
        assert!(guard.is_valid());
    });
}

/// The user did open the file of the store, so this is no misuse.
#[test]
fn a_file_that_was_moved_while_it_was_open_is_told_as_such() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let guard = manager(&scratch.0).build().unwrap().lock("k").acquire().await.unwrap();
        let mut database = notes(&scratch.0);
        let transaction = database.transaction().unwrap();
        fs::rename(file(&scratch.0), scratch.0.join("elsewhere.db")).unwrap();
        let refused = guard.fence(&transaction).await.expect_err("others may open another file by now");
        let FenceError::Store(error) = &refused else { panic!("{refused}") };
        assert!(error.message.contains("deleted or moved") && !error.retry, "{error}");
    });
}

/// A backup or a user's own transaction may keep the file locked for longer than all attempts of a request take together.
#[test]
fn a_request_with_a_time_limit_outlasts_a_connection_that_keeps_the_file_locked() {
    const SHORT: Duration = Duration::from_secs(2);
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).lease(4 * SHORT).store_timeout(SHORT).build().unwrap();
        let user = connect(&scratch.0);
        user.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut wait = std::pin::pin!(leases.lock("k").timeout(LONG).acquire());
        // The store answers a tenth before its time limit. On a busy machine the answer may come too late, and does not say why.
        let unlimited = async {
            for _ in 0..3 {
                let error = leases.lock("another").acquire().await.expect_err("somebody else writes").to_string();
                if !error.contains("did not answer within") {
                    return error;
                }
            }
            panic!("the store never answers in time");
        };
        // It is told after three attempts.
        let error = match select(wait.as_mut(), std::pin::pin!(unlimited)).await {
            Either::Left((early, _)) => panic!("it was answered while the file was locked: {early:?}"),
            Either::Right((error, _)) => error,
        };
        assert!(error.contains("another connection held the write lock"), "{error}");
        user.execute_batch("ROLLBACK").unwrap();
        assert!(wait.await.unwrap().is_valid());
    });
}

/// A transaction that read before somebody else wrote cannot take the write lock any more.
#[test]
fn a_transaction_that_read_too_early_is_told_the_remedy() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&scratch.0).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut database = notes(&scratch.0);
        let transaction = database.transaction().unwrap();
        assert_eq!(count(&transaction), 0);
        drop(leases.lock("other").acquire().await.unwrap());
        let refused = guard.fence(&transaction).await.expect_err("its snapshot is old");
        assert!(refused.to_string().contains("TransactionBehavior::Immediate"), "{refused}");
        assert!(guard.is_valid(), "the lease is not lost by that");
    });
}

/// The check as docs/beyond-one-process.md has it, for programs in other languages.
#[test]
fn plain_sql_tells_a_current_lease_from_a_lost_one() {
    let guide = include_str!("../../docs/beyond-one-process.md");
    let (_, rest) = guide.split_once("```sql\n").expect("the guide has it");
    let (sql, _) = rest.split_once("```").expect("it ends");
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let (old, new) = overtaken(&scratch.0).await;
        let database = connect(&scratch.0);
        for (guard, passes) in [(&old, false), (&new, true)] {
            let mut check = database.prepare(sql).unwrap();
            let token = i64::try_from(guard.token().as_u64()).unwrap();
            let found = check.exists(rusqlite::named_params! {":key": "k", ":token": token}).unwrap();
            assert_eq!(found, passes);
        }
    });
}
