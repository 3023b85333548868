//! Fenced writes in the user's own transactions of sqlx.

use std::time::Duration;

use futures::poll;
use leasehold::{
    FenceError, LeaseGuard, LeaseManager,
    executor::TokioExecutor,
    machine::{Applied, LostReason},
    store::PostgresStore,
};
use sqlx::{Acquire, AssertSqlSafe, Executor, PgPool, Postgres, Transaction};
use tokio::time::timeout;

use crate::{
    pools::{Pool, store},
    server::{PATIENCE, Place, on_server},
};

/// As long as the tests wait for what must not happen.
const WHILE: Duration = Duration::from_millis(400);

async fn manager(place: &Place) -> LeaseManager {
    LeaseManager::builder(store::<PgPool>(place).await, TokioExecutor::new()).build().unwrap()
}

/// A table for notes, and a pool for it.
async fn notes(place: &Place) -> PgPool {
    let pool = PgPool::open(&place.url, 2).await;
    let table = format!("CREATE TABLE IF NOT EXISTS {}_notes (text text)", place.prefix);
    pool.execute(AssertSqlSafe(table)).await.unwrap();
    pool
}

async fn note(transaction: &mut Transaction<'_, Postgres>, place: &Place, text: &str) -> Result<(), sqlx::Error> {
    let statement = format!("INSERT INTO {}_notes VALUES ($1)", place.prefix);
    sqlx::query(AssertSqlSafe(statement)).bind(text).execute(&mut **transaction).await.map(drop)
}

async fn noted(place: &Place) -> Vec<String> {
    let rows = place.client().await.query(&format!("SELECT text FROM {}_notes ORDER BY 1", place.prefix), &[]).await;
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn acquire(leases: &LeaseManager) -> LeaseGuard {
    leases.lock("k").acquire().await.unwrap()
}

/// The user's next transaction must find nothing of the fence's in its connection.
async fn leaves_nothing(pool: &PgPool) {
    assert_eq!(pool.ask("SELECT count(*) FROM pg_cursors").await, ["0"]);
}

#[test]
fn a_current_lease_lets_its_holder_write() {
    on_server("sqlx_fence_current", |place| async move {
        let (pool, leases) = (notes(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        for renews in [false, true] {
            let mut transaction = pool.begin().await.unwrap();
            let fence = if renews { guard.fence_and_renew(&mut transaction) } else { guard.fence(&mut transaction) };
            let fenced = fence.await.unwrap();
            note(&mut transaction, &place, "milk").await.unwrap();
            transaction.commit().await.unwrap();
            fenced.committed();
        }
        assert_eq!(noted(&place).await, ["milk", "milk"]);
        leaves_nothing(&pool).await;
    });
}

/// The user ignores the answer, and commits all the same.
#[test]
fn a_stolen_lease_lets_nobody_write() {
    on_server("sqlx_fence_stolen", |place| async move {
        let (pool, leases, thief) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let stolen = thief.lock("k").steal().await.unwrap();
        let mut transaction = pool.begin().await.unwrap();
        note(&mut transaction, &place, "before").await.unwrap();
        assert_eq!(
            guard.fence(&mut transaction).await.unwrap_err(),
            FenceError::Lost { key: "k".into(), reason: LostReason::Stolen }
        );
        assert!(note(&mut transaction, &place, "after").await.is_err());
        drop(transaction.commit().await);
        // By now the loss is known, and the store is not asked.
        let mut transaction = pool.begin().await.unwrap();
        note(&mut transaction, &place, "again").await.unwrap();
        assert_eq!(
            guard.fence(&mut transaction).await.unwrap_err(),
            FenceError::Lost { key: "k".into(), reason: LostReason::Stolen }
        );
        drop(transaction.commit().await);
        assert_eq!(noted(&place).await, [""; 0]);
        assert!(stolen.is_valid());
        leaves_nothing(&pool).await;
    });
}

/// A fence asked of a transaction holds although its user never looks at the answer, whether it had been sent or not.
#[test]
fn an_answer_that_is_dropped_leaves_nothing_to_commit() {
    on_server("sqlx_fence_dropped", |place| async move {
        let (pool, leases) = (notes(&place).await, manager(&place).await);
        let (guard, other) = (acquire(&leases).await, place.client().await);
        for polls in 0..3 {
            for writes_after in [false, true] {
                // While another transaction has the record locked, the check cannot pass.
                other.batch_execute("BEGIN; SELECT FROM sqlx_fence_dropped_record FOR UPDATE").await.unwrap();
                let mut transaction = pool.begin().await.unwrap();
                note(&mut transaction, &place, "dropped").await.unwrap();
                let mut answer = Box::pin(guard.fence_and_renew(&mut transaction));
                for _ in 0..polls {
                    assert!(poll!(answer.as_mut()).is_pending());
                }
                drop(answer);
                other.batch_execute("ROLLBACK").await.unwrap();
                if writes_after {
                    drop(note(&mut transaction, &place, "after").await);
                }
                drop(transaction.commit().await);
            }
        }
        assert_eq!(noted(&place).await, [""; 0]);
        assert!(guard.is_valid());
        leaves_nothing(&pool).await;
    });
}

/// At whatever moment its answer is dropped: what is committed was checked, and a stolen lease lets nobody write.
#[test]
fn an_answer_that_is_dropped_in_time_lets_no_loser_write() {
    on_server("sqlx_fence_moments", |place| async move {
        let (pool, leases, thief) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let _stolen = thief.lock("k").steal().await.unwrap();
        // The store knows of the theft, and the guard may not yet.
        for moment in 0..60 {
            let mut transaction = pool.begin().await.unwrap();
            note(&mut transaction, &place, "late").await.unwrap();
            drop(timeout(Duration::from_micros(moment * 50), guard.fence_and_renew(&mut transaction)).await);
            drop(note(&mut transaction, &place, "after").await);
            drop(transaction.commit().await);
        }
        assert_eq!(noted(&place).await, [""; 0]);
        leaves_nothing(&pool).await;
    });
}

/// A thief is granted the lease when the fenced transaction is over, and not before.
#[test]
fn while_a_fenced_transaction_is_open_nobody_is_granted_the_lease() {
    on_server("sqlx_fence_open", |place| async move {
        let (pool, leases, thief) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = pool.begin().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        let mut steal = std::pin::pin!(async { thief.lock("k").steal().await });
        assert!(timeout(WHILE, steal.as_mut()).await.is_err(), "the lease was granted during a fenced transaction");
        note(&mut transaction, &place, "in time").await.unwrap();
        transaction.commit().await.unwrap();
        let stolen = timeout(PATIENCE, steal).await.unwrap().unwrap();
        assert!(stolen.token() > guard.token());
        assert_eq!(noted(&place).await, ["in time"]);
    });
}

/// The heartbeat is in the row of the session once the transaction is committed, and not if it is rolled back.
/// The server goes on with the commit, which takes longer than the next guard needs.
#[test]
fn a_task_that_is_dropped_during_its_commit_is_read_by_the_next_guard() {
    on_server("sqlx_fence_aborted", |place| async move {
        let (pool, leases) = (notes(&place).await, manager(&place).await);
        let name = &place.prefix;
        let slow = format!(
            "CREATE FUNCTION {name}_slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END'; \
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {name}_notes DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION {name}_slow()"
        );
        pool.execute(AssertSqlSafe(slow)).await.unwrap();
        let guard = acquire(&leases).await;
        let mut next = Box::pin(leases.lock("k").acquire().into_future());
        assert!(poll!(&mut next).is_pending());
        let work = async {
            let mut transaction = pool.begin().await.unwrap();
            let _fenced = guard.fence(&mut transaction).await.unwrap();
            note(&mut transaction, &place, "milk").await.unwrap();
            transaction.commit().await
        };
        assert!(timeout(WHILE, work).await.is_err(), "the commit takes longer");
        drop(guard);
        let guard = timeout(PATIENCE, next).await.unwrap().unwrap();
        let mut transaction = pool.begin().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        let seen = format!("SELECT text FROM {name}_notes");
        let seen: Vec<String> = sqlx::query_scalar(AssertSqlSafe(seen)).fetch_all(&mut *transaction).await.unwrap();
        assert_eq!(seen, ["milk"], "what the guard before has committed");
    });
}

#[test]
fn a_fence_that_renews_writes_a_heartbeat_with_the_transaction() {
    on_server("sqlx_fence_renews", |place| async move {
        let (pool, leases) = (notes(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let row = "SELECT text FROM sqlx_fence_renews_session";
        let before = pool.ask(row).await;
        for commits in [false, true] {
            let mut transaction = pool.begin().await.unwrap();
            let fenced = guard.fence_and_renew(&mut transaction).await.unwrap();
            if commits {
                transaction.commit().await.unwrap();
                fenced.committed();
            } else {
                transaction.rollback().await.unwrap();
            }
            assert_eq!(pool.ask(row).await != before, commits);
        }
        assert!(guard.is_valid());
    });
}

#[test]
fn a_transaction_elsewhere_is_refused_with_the_remedy() {
    on_server("sqlx_fence_elsewhere", |place| async move {
        let leases = manager(&place).await;
        let guard = acquire(&leases).await;
        place.client().await.batch_execute("CREATE DATABASE sqlx_fence_elsewhere").await.unwrap();
        let elsewhere = Place { url: place.url_of("sqlx_fence_elsewhere"), ..place.clone() };
        let pool = notes(&elsewhere).await;
        let mut transaction = pool.begin().await.unwrap();
        note(&mut transaction, &elsewhere, "elsewhere").await.unwrap();
        let refused = guard.fence(&mut transaction).await.unwrap_err();
        assert!(
            matches!(&refused, FenceError::Misuse(sentence) if sentence.contains("begin the transaction in the database")),
            "{refused}"
        );
        drop(transaction.commit().await);
        assert_eq!(noted(&elsewhere).await, [""; 0]);
    });
}

#[test]
fn a_transaction_that_cannot_write_or_has_failed_is_refused() {
    on_server("sqlx_fence_read_only", |place| async move {
        let (pool, leases) = (notes(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = pool.begin_with("BEGIN READ ONLY").await.unwrap();
        let refused = guard.fence(&mut transaction).await.unwrap_err();
        assert!(matches!(&refused, FenceError::Misuse(sentence) if sentence.contains("on the primary")), "{refused}");
        drop(transaction);
        let mut transaction = pool.begin().await.unwrap();
        assert!(transaction.execute("SELECT 1 / 0").await.is_err());
        let refused = guard.fence(&mut transaction).await.unwrap_err();
        let FenceError::Store(error) = refused else { panic!("{refused}") };
        assert!(error.message.contains("had failed before") && error.applied == Applied::No, "{error}");
        drop(transaction);
        // What a user's session searches first, and how it sees others, is no matter.
        let mut user = pool.acquire().await.unwrap();
        user.execute("SET search_path = pg_temp; SET default_transaction_isolation = 'serializable'").await.unwrap();
        let mut transaction = user.begin().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        transaction.commit().await.unwrap();
    });
}

/// A snapshot that was taken before the theft shows the old record. It must not pass.
#[test]
fn an_old_snapshot_shows_no_lease_that_is_gone() {
    on_server("sqlx_fence_snapshot", |place| async move {
        let (pool, thief) = (notes(&place).await, manager(&place).await);
        // The holder hears nothing of the theft before its next heartbeat: the record alone tells it.
        let deaf = PostgresStore::builder_from_pool(pool.clone()).prefix(&place.prefix).without_signals();
        let leases = LeaseManager::builder(deaf.connect().await.unwrap(), TokioExecutor::new());
        let leases = leases.lease(PATIENCE * 60).build().unwrap();
        for begin in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"] {
            let guard = acquire(&leases).await;
            let mut transaction = pool.begin_with(begin).await.unwrap();
            note(&mut transaction, &place, "old").await.unwrap();
            let stolen = thief.lock("k").steal().await.unwrap();
            let refused = guard.fence(&mut transaction).await.unwrap_err();
            assert!(
                matches!(&refused, FenceError::Store(error) if error.message.contains("begin another one")),
                "{refused}"
            );
            drop(transaction.commit().await);
            stolen.release().await.unwrap();
        }
        assert_eq!(noted(&place).await, [""; 0]);
    });
}

/// A script of statements may have a COMMIT of its own. What the user executes then is in no transaction, so nothing would keep the lease.
#[test]
fn a_transaction_that_is_over_is_refused() {
    on_server("sqlx_fence_over", |place| async move {
        let (pool, leases) = (notes(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        for end in ["COMMIT", "ROLLBACK"] {
            let mut transaction = pool.begin().await.unwrap();
            transaction.execute(end).await.unwrap();
            let refused = guard.fence(&mut transaction).await.unwrap_err();
            assert!(matches!(&refused, FenceError::Misuse(why) if why.contains("is over")), "{end}: {refused}");
            drop(transaction.rollback().await);
        }
        assert!(guard.is_valid());
    });
}

/// Two leases in one transaction, one after the other.
#[test]
fn a_transaction_is_fenced_by_several_leases() {
    on_server("sqlx_fence_several", |place| async move {
        let (pool, leases, thief) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let guards = [leases.lock("a").acquire().await.unwrap(), leases.lock("b").acquire().await.unwrap()];
        for stolen in [false, true] {
            let taken = if stolen { Some(thief.lock("b").steal().await.unwrap()) } else { None };
            let mut transaction = pool.begin().await.unwrap();
            drop(guards[0].fence(&mut transaction).await.unwrap());
            assert_eq!(guards[1].fence(&mut transaction).await.is_err(), taken.is_some());
            drop(note(&mut transaction, &place, "both").await);
            drop(transaction.commit().await);
        }
        assert_eq!(noted(&place).await, ["both"]);
    });
}

/// The rollback to the savepoint is over before the fence begins.
#[test]
fn an_answer_that_is_dropped_after_a_savepoint_leaves_nothing_to_commit() {
    on_server("sqlx_fence_savepoint", |place| async move {
        let (pool, leases) = (notes(&place).await, manager(&place).await);
        let (guard, other) = (acquire(&leases).await, place.client().await);
        for polls in 0..3 {
            // While another transaction has the record locked, the check cannot pass.
            other.batch_execute("BEGIN; SELECT FROM sqlx_fence_savepoint_record FOR UPDATE").await.unwrap();
            let mut transaction = pool.begin().await.unwrap();
            note(&mut transaction, &place, "dropped").await.unwrap();
            transaction.begin().await.unwrap().rollback().await.unwrap();
            let mut answer = Box::pin(guard.fence(&mut transaction));
            for _ in 0..polls {
                assert!(poll!(answer.as_mut()).is_pending());
            }
            drop(answer);
            other.batch_execute("ROLLBACK").await.unwrap();
            drop(transaction.commit().await);
        }
        assert_eq!(noted(&place).await, [""; 0]);
    });
}

/// The delete that waits in the server for this transaction needs no connection of the pool any more.
#[test]
fn a_manager_that_closed_during_a_fence_that_renews_keeps_no_connection_of_the_pool() {
    on_server("sqlx_fence_closes", |place| async move {
        let pool = PgPool::open(&place.url, 2).await;
        let store = PostgresStore::builder_from_pool(pool.clone()).prefix(&place.prefix).connect().await.unwrap();
        store.migrate().await.unwrap();
        let builder = LeaseManager::builder(store, TokioExecutor::new());
        let leases = builder.store_timeout(Duration::from_millis(500)).build().unwrap();
        let guard = acquire(&leases).await;
        let mut transaction = pool.begin().await.unwrap();
        let fenced = guard.fence_and_renew(&mut transaction).await.unwrap();
        leases.close().await;
        let second = timeout(Duration::from_secs(5), pool.acquire()).await.expect("the pool has a second connection");
        drop(second.unwrap());
        transaction.commit().await.unwrap();
        fenced.committed();
    });
}
