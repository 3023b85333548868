//! Fenced writes in the user's own transactions.

use std::time::Duration;

use futures::future::join_all;
use leasehold::{
    AcquireError, FenceError, LeaseGuard, LeaseManager,
    executor::TokioExecutor,
    machine::{Applied, LostReason, StoreErrorKind},
};
use tokio::{runtime::Runtime, task::spawn_blocking, time::timeout};
use tokio_postgres::{Client, IsolationLevel, Transaction, types::ToSql};

use crate::{
    other::{Other, say, told},
    server::{PATIENCE, Place, connect, on_server, until},
};

/// As long as the tests wait for what must not happen.
const WHILE: Duration = Duration::from_millis(400);

async fn manager(place: &Place) -> LeaseManager {
    LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap()
}

/// A table for notes, and a connection to it.
async fn notes(place: &Place) -> Client {
    let user = place.client().await;
    user.batch_execute(&format!("CREATE TABLE IF NOT EXISTS {}_notes (text text)", place.prefix)).await.unwrap();
    user
}

async fn note(transaction: &Transaction<'_>, place: &Place, text: &str) -> Result<u64, tokio_postgres::Error> {
    transaction.execute(&format!("INSERT INTO {}_notes VALUES ($1)", place.prefix), &[&text]).await
}

async fn noted(place: &Place) -> Vec<String> {
    let rows = place.client().await.query(&format!("SELECT text FROM {}_notes ORDER BY 1", place.prefix), &[]).await;
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn acquire(leases: &LeaseManager) -> LeaseGuard {
    leases.lock("k").acquire().await.unwrap()
}

#[test]
fn a_current_lease_lets_its_holder_write() {
    on_server("fence_current", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        let fenced = guard.fence(&mut transaction).await.unwrap();
        note(&transaction, &place, "milk").await.unwrap();
        transaction.commit().await.unwrap();
        fenced.committed();
        assert_eq!(noted(&place).await, ["milk"]);
    });
}

/// The user ignores the answer, and commits all the same.
#[test]
fn a_stolen_lease_lets_nobody_write() {
    on_server("fence_stolen", |place| async move {
        let (mut user, leases, thief) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let stolen = thief.lock("k").steal().await.unwrap();
        let mut transaction = user.transaction().await.unwrap();
        note(&transaction, &place, "before").await.unwrap();
        let refused = guard.fence(&mut transaction).await.unwrap_err();
        assert_eq!(refused, FenceError::Lost { key: "k".into(), reason: LostReason::Stolen });
        assert!(note(&transaction, &place, "after").await.is_err());
        drop(transaction.commit().await);
        // By now the loss is known, and the store is not asked.
        let mut transaction = user.transaction().await.unwrap();
        note(&transaction, &place, "again").await.unwrap();
        assert_eq!(
            guard.fence(&mut transaction).await.unwrap_err(),
            FenceError::Lost { key: "k".into(), reason: LostReason::Stolen }
        );
        drop(transaction.commit().await);
        assert_eq!(noted(&place).await, [""; 0]);
        assert!(stolen.is_valid());
    });
}

/// A fence asked of a transaction holds although its user never looks at the answer.
#[test]
fn an_answer_that_is_dropped_leaves_nothing_to_commit() {
    on_server("fence_dropped", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let (guard, other) = (acquire(&leases).await, place.client().await);
        for polls in 0..3 {
            // While another transaction has the record locked, the check cannot pass.
            other.batch_execute("BEGIN; SELECT FROM fence_dropped_record FOR UPDATE").await.unwrap();
            let mut transaction = user.transaction().await.unwrap();
            note(&transaction, &place, "dropped").await.unwrap();
            let mut answer = Box::pin(guard.fence(&mut transaction));
            for _ in 0..polls {
                assert!(futures::poll!(answer.as_mut()).is_pending());
            }
            drop(answer);
            other.batch_execute("ROLLBACK").await.unwrap();
            assert!(note(&transaction, &place, "after").await.is_err());
            drop(transaction.commit().await);
        }
        assert_eq!(noted(&place).await, [""; 0]);
        assert!(guard.is_valid());
    });
}

/// The check as docs/beyond-one-process.md has it, for programs in other languages.
fn plain_sql(place: &Place) -> String {
    let guide = include_str!("../../docs/beyond-one-process.md");
    let mut checks = guide.split("```sql\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let (sql, _) = checks.find(|(sql, _)| sql.contains("FOR SHARE")).expect("the guide has it");
    sql.replace("leasehold_record", &format!("{}_record", place.prefix))
}

#[test]
fn plain_sql_tells_a_current_lease_from_a_lost_one_and_keeps_thieves_out() {
    on_server("fence_plain", |place| async move {
        let sql = plain_sql(&place);
        let (mut user, leases, thief) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let check = async |transaction: &Transaction<'_>, guard: &LeaseGuard| {
            let token = i64::try_from(guard.token().as_u64()).unwrap();
            transaction.query(&sql, &[&"k", &token]).await.unwrap().len()
        };
        let old = acquire(&leases).await;
        let transaction = user.transaction().await.unwrap();
        assert_eq!(check(&transaction, &old).await, 1);
        note(&transaction, &place, "milk").await.unwrap();
        let mut theft = Box::pin(thief.lock("k").steal());
        let early = timeout(WHILE, theft.as_mut()).await;
        assert!(early.is_err(), "the record is locked: {early:?}");
        transaction.commit().await.unwrap();
        let new = theft.await.unwrap();
        let transaction = user.transaction().await.unwrap();
        assert_eq!((check(&transaction, &old).await, check(&transaction, &new).await), (0, 1));
        assert_eq!(noted(&place).await, ["milk"]);
    });
}

/// The check waits for a transaction that takes the lease away, and sees what that one wrote.
#[test]
fn plain_sql_refuses_a_lease_that_is_taken_away_while_the_check_waits() {
    on_server("fence_plain_waits", |place| async move {
        let sql = plain_sql(&place);
        let (mut user, leases, other) = (notes(&place).await, manager(&place).await, place.client().await);
        let guard = acquire(&leases).await;
        let token = i64::try_from(guard.token().as_u64()).unwrap();
        // As a theft writes it: the token is from another block.
        let theft = format!(
            "BEGIN; UPDATE {}_record SET text = replace(text, '{token}', '{}')",
            place.prefix,
            token + 1_000_000
        );
        other.batch_execute(&theft).await.unwrap();
        let transaction = user.transaction().await.unwrap();
        let parameters: [&(dyn ToSql + Sync); 2] = [&"k", &token];
        let mut check = Box::pin(transaction.query(&sql, &parameters));
        assert!(timeout(WHILE, check.as_mut()).await.is_err(), "the record is locked");
        other.batch_execute("COMMIT").await.unwrap();
        assert_eq!(check.await.unwrap().len(), 0);
    });
}

/// A thief is granted the lease when the fenced transaction is over, and not before.
#[test]
fn while_a_fenced_transaction_is_open_nobody_is_granted_the_lease() {
    on_server("fence_open", |place| async move {
        let (mut user, leases, thief) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        let steal = thief.lock("k").steal();
        let mut steal = std::pin::pin!(steal);
        assert!(timeout(WHILE, steal.as_mut()).await.is_err(), "the lease was granted during a fenced transaction");
        note(&transaction, &place, "in time").await.unwrap();
        transaction.commit().await.unwrap();
        let stolen = timeout(PATIENCE, steal).await.unwrap().unwrap();
        assert!(stolen.token() > guard.token());
        assert_eq!(noted(&place).await, ["in time"]);
    });
}

/// It is short against a lease, but longer than all attempts of a request together.
#[test]
fn whoever_waits_with_a_time_limit_outlasts_a_long_fenced_transaction() {
    on_server("fence_long", |place| async move {
        let (mut user, leases, waiter) = (notes(&place).await, briefly(&place).await, briefly(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        let wait = waiter.lock("k").timeout(PATIENCE).acquire();
        let mut wait = std::pin::pin!(wait);
        let early = timeout(3 * SHORT, wait.as_mut()).await;
        assert!(early.is_err(), "it was answered during the fenced transaction: {early:?}");
        transaction.commit().await.unwrap();
        drop(guard);
        assert!(wait.await.is_ok());
    });
}

/// All these requests but the first go in one transaction at first.
#[test]
fn whoever_waits_for_a_fenced_transaction_is_granted_other_keys_meanwhile() {
    on_server("fence_other", |place| async move {
        let (mut user, leases, waiter) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        let wait = waiter.lock("k").timeout(PATIENCE).acquire();
        let others = join_all((0..10).map(|number| waiter.lock(&format!("other {number}")).acquire()));
        let (mut wait, mut others) = (std::pin::pin!(wait), std::pin::pin!(others));
        let granted = tokio::select! {
            biased;
            granted = timeout(PATIENCE, &mut others) => granted.unwrap(),
            early = &mut wait => panic!("it was answered during the fenced transaction: {early:?}"),
        };
        for other in granted {
            other.unwrap().release().await.unwrap();
        }
        let tried = timeout(WHILE, wait.as_mut()).await;
        assert!(tried.is_err(), "the fenced transaction is still open: {tried:?}");
        transaction.commit().await.unwrap();
        guard.release().await.unwrap();
        let _guard = wait.await.unwrap();
    });
}

/// Two holders who share a lease write at once, and a heartbeat does not wait for either.
#[test]
fn fences_of_a_shared_lease_do_not_wait_for_each_other() {
    on_server("fence_shared", |place| async move {
        let (mut users, mut guards) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            users.push(notes(&place).await);
            guards.push(manager(&place).await.lock("k").shared().acquire().await.unwrap());
        }
        let mut transactions = Vec::new();
        for (user, guard) in users.iter_mut().zip(&guards) {
            let mut transaction = user.transaction().await.unwrap();
            drop(timeout(PATIENCE, guard.fence(&mut transaction)).await.expect("it waits for nobody").unwrap());
            transactions.push(transaction);
        }
        for transaction in transactions {
            note(&transaction, &place, "shared").await.unwrap();
            transaction.commit().await.unwrap();
        }
        assert_eq!(noted(&place).await, ["shared", "shared"]);
    });
}

/// The heartbeat is in the row of the session once the transaction is committed, and not if it is rolled back.
#[test]
fn a_fence_that_renews_writes_a_heartbeat_with_the_transaction() {
    on_server("fence_renews", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let rows = async || -> Vec<String> {
            let rows = place.client().await.query("SELECT text FROM fence_renews_session", &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        let before = rows().await;
        for commits in [false, true] {
            let mut transaction = user.transaction().await.unwrap();
            let fenced = guard.fence_and_renew(&mut transaction).await.unwrap();
            note(&transaction, &place, "renewed").await.unwrap();
            if commits {
                transaction.commit().await.unwrap();
                fenced.committed();
            } else {
                transaction.rollback().await.unwrap();
            }
            assert_eq!(rows().await != before, commits);
        }
        assert!(guard.is_valid());
        assert_eq!(noted(&place).await, ["renewed"]);
    });
}

/// With a short lease, no heartbeat but the fences' would be in time: the store is asked for nothing else.
#[test]
fn fences_that_renew_keep_a_lease_alive() {
    on_server("fence_alive", |place| async move {
        let lease = Duration::from_secs(2);
        let builder = LeaseManager::builder(place.store().await, TokioExecutor::new());
        let leases = builder.lease(lease).build().unwrap();
        let (mut user, guard) = (notes(&place).await, acquire(&leases).await);
        let since = std::time::Instant::now();
        while since.elapsed() < lease * 3 / 2 {
            let mut transaction = user.transaction().await.unwrap();
            let fenced = guard.fence_and_renew(&mut transaction).await.unwrap();
            note(&transaction, &place, "alive").await.unwrap();
            transaction.commit().await.unwrap();
            fenced.committed();
        }
        assert!(guard.is_valid());
        assert_eq!(guard.release().await.unwrap(), leasehold::ReleaseOutcome::Released);
    });
}

#[test]
fn a_transaction_elsewhere_is_refused_with_the_remedy() {
    on_server("fence_elsewhere", |place| async move {
        let leases = manager(&place).await;
        let guard = acquire(&leases).await;
        place.client().await.batch_execute("CREATE DATABASE fence_elsewhere").await.unwrap();
        let mut user = connect(&place.url_of("fence_elsewhere")).await;
        user.batch_execute("CREATE TABLE fence_elsewhere_notes (text text)").await.unwrap();
        let mut transaction = user.transaction().await.unwrap();
        note(&transaction, &place, "elsewhere").await.unwrap();
        let refused = guard.fence(&mut transaction).await.unwrap_err();
        assert!(
            matches!(&refused, FenceError::Misuse(sentence) if sentence.contains("begin the transaction in the database"))
        );
        drop(transaction.commit().await);
        let left = user.query("SELECT FROM fence_elsewhere_notes", &[]).await.unwrap();
        assert!(left.is_empty(), "what was refused was committed");
    });
}

/// The copy has the same leases and the same id of its store, but hears of no theft.
#[test]
fn a_transaction_in_a_copy_of_the_database_is_refused() {
    on_server("fence_copy", |place| async move {
        let (leases, own) = (manager(&place).await, place.client().await);
        let guard = acquire(&leases).await;
        own.batch_execute("CREATE DATABASE fence_copy").await.unwrap();
        let copy = Place { url: place.url_of("fence_copy"), ..place.clone() };
        drop(copy.store().await);
        let mut user = notes(&copy).await;
        let store = own.query_one("SELECT text FROM fence_copy_store", &[]).await.unwrap();
        user.execute("UPDATE fence_copy_store SET text = $1", &[&store.get::<_, String>(0)]).await.unwrap();
        for (table, name) in [("record", "key"), ("session", "id")] {
            let row = own.query_one(&format!("SELECT {name}, text FROM fence_copy_{table}"), &[]).await.unwrap();
            let put = format!("INSERT INTO fence_copy_{table} VALUES ($1, $2)");
            user.execute(&put, &[&row.get::<_, Vec<u8>>(0), &row.get::<_, String>(1)]).await.unwrap();
        }
        let mut transaction = user.transaction().await.unwrap();
        note(&transaction, &copy, "copied").await.unwrap();
        let refused = guard.fence(&mut transaction).await.unwrap_err();
        assert!(
            matches!(&refused, FenceError::Misuse(sentence) if sentence.contains("begin the transaction in the database"))
        );
        drop(transaction.commit().await);
        assert_eq!(noted(&copy).await, [""; 0]);
    });
}

/// A newer program has changed the tables, and may keep leases in another way.
#[test]
fn tables_of_another_version_let_nobody_write() {
    on_server("fence_version", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        user.batch_execute("UPDATE fence_version_store SET schema = schema + 1").await.unwrap();
        let mut transaction = user.transaction().await.unwrap();
        note(&transaction, &place, "milk").await.unwrap();
        let refused = guard.fence(&mut transaction).await.unwrap_err();
        let FenceError::Store(error) = refused else { panic!("{refused}") };
        assert!(error.message.contains("update this program"), "{error}");
        drop(transaction.commit().await);
        assert_eq!(noted(&place).await, [""; 0]);
    });
}

/// Another context deletes the session's row. The fence waits until that is committed, and does not write the row anew.
#[test]
fn a_fence_that_renews_brings_no_session_back_that_is_being_ended() {
    on_server("fence_ended", |place| async move {
        let (mut user, leases, other) = (notes(&place).await, manager(&place).await, place.client().await);
        let guard = acquire(&leases).await;
        let own = other.query_one("SELECT id FROM fence_ended_session", &[]).await.unwrap();
        let id: Vec<u8> = own.get(0);
        other.batch_execute("BEGIN; DELETE FROM fence_ended_session").await.unwrap();
        let mut transaction = user.transaction().await.unwrap();
        let watch = place.client().await;
        let ends = async {
            let waits =
                "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%fence_ended_session%'";
            until("the fence waits", async || !watch.query(waits, &[]).await.unwrap().is_empty()).await;
            other.batch_execute("COMMIT").await.unwrap();
        };
        let (passed, ()) = futures::join!(guard.fence_and_renew(&mut transaction), ends);
        drop(passed);
        drop(transaction.commit().await);
        let back = watch.query("SELECT FROM fence_ended_session WHERE id = $1", &[&id]).await.unwrap();
        assert!(back.is_empty(), "the session is back");
    });
}

#[test]
fn a_transaction_that_cannot_write_or_has_failed_is_refused() {
    on_server("fence_read_only", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.build_transaction().read_only(true).start().await.unwrap();
        let refused = guard.fence(&mut transaction).await.unwrap_err();
        assert!(matches!(&refused, FenceError::Misuse(sentence) if sentence.contains("read_only(false)")), "{refused}");
        drop(transaction);
        let mut transaction = user.transaction().await.unwrap();
        assert!(transaction.batch_execute("SELECT 1 / 0").await.is_err());
        let refused = guard.fence(&mut transaction).await.unwrap_err();
        let FenceError::Store(error) = refused else { panic!("{refused}") };
        assert!(error.message.contains("had failed before") && error.applied == Applied::No, "{error}");
        drop(transaction);
        // What a user's session searches first, and how it sees others, is no matter.
        user.batch_execute("SET search_path = pg_temp; SET default_transaction_isolation = 'serializable'")
            .await
            .unwrap();
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        transaction.commit().await.unwrap();
    });
}

/// A snapshot that was taken before the theft shows the old record. It must not pass.
#[test]
fn an_old_snapshot_shows_no_lease_that_is_gone() {
    on_server("fence_snapshot", |place| async move {
        let (mut user, thief) = (notes(&place).await, manager(&place).await);
        // The holder hears nothing of the theft before its next heartbeat: the record alone tells it.
        let deaf = place.builder().without_signals().connect().await.unwrap();
        let leases = LeaseManager::builder(deaf, TokioExecutor::new()).lease(PATIENCE * 60).build().unwrap();
        for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
            let guard = acquire(&leases).await;
            let mut transaction = user.build_transaction().isolation_level(level).start().await.unwrap();
            note(&transaction, &place, "old").await.unwrap();
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

/// The lease is newer than the snapshot, which therefore does not show it. The lease is not lost.
#[test]
fn a_snapshot_that_is_older_than_the_lease_is_no_loss() {
    on_server("fence_older", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        for (key, level) in [("a", IsolationLevel::RepeatableRead), ("b", IsolationLevel::Serializable)] {
            let mut transaction = user.build_transaction().isolation_level(level).start().await.unwrap();
            note(&transaction, &place, "old").await.unwrap();
            let guard = leases.lock(key).acquire().await.unwrap();
            let refused = guard.fence(&mut transaction).await.unwrap_err();
            let FenceError::Store(error) = refused else { panic!("{level:?}: {refused}") };
            assert!(error.message.contains("begin another one") && error.retry, "{error}");
            assert_eq!(error.applied, Applied::No);
            drop(transaction.commit().await);
            assert!(guard.is_valid());
            let mut transaction = user.build_transaction().isolation_level(level).start().await.unwrap();
            drop(guard.fence(&mut transaction).await.unwrap());
            note(&transaction, &place, "new").await.unwrap();
            transaction.commit().await.unwrap();
        }
        assert_eq!(noted(&place).await, ["new"; 2]);
    });
}

/// A script of statements may have a COMMIT of its own. What the user executes then is in no transaction, so nothing would keep the lease.
#[test]
fn a_transaction_that_is_over_is_refused() {
    on_server("fence_over", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        for end in ["COMMIT", "ROLLBACK", "BEGIN; SELECT 1; COMMIT"] {
            let mut transaction = user.transaction().await.unwrap();
            transaction.batch_execute(end).await.unwrap();
            let refused = guard.fence(&mut transaction).await.unwrap_err();
            assert!(matches!(&refused, FenceError::Misuse(why) if why.contains("is over")), "{end}: {refused}");
            drop(transaction.rollback().await);
        }
        assert!(guard.is_valid());
    });
}

/// The texts of the store cannot be read in the encoding that the user chose: that is an error, and nobody writes.
#[test]
fn a_session_that_reads_text_in_another_encoding_is_refused() {
    on_server("fence_encoding", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        user.batch_execute("SET client_encoding = 'LATIN1'").await.unwrap();
        for info in ["\u{e9}", "\u{1f98a}"] {
            let guard = leases.lock("k").info(info).acquire().await.unwrap();
            let mut transaction = user.transaction().await.unwrap();
            note(&transaction, &place, "milk").await.unwrap();
            let refused = guard.fence(&mut transaction).await.unwrap_err();
            assert!(matches!(refused, FenceError::Store(_)), "{refused}");
            drop(transaction.commit().await);
            guard.release().await.unwrap();
        }
        assert_eq!(noted(&place).await, [""; 0]);
    });
}

/// The rights that the documentation names for the user of a fenced transaction.
#[test]
fn few_rights_are_enough_to_fence() {
    on_server("fence_rights", |place| async move {
        let (user, leases) = (notes(&place).await, manager(&place).await);
        let grants = "CREATE ROLE fence_rights LOGIN; GRANT INSERT ON fence_rights_notes TO fence_rights; \
                      GRANT SELECT, UPDATE ON fence_rights_record, fence_rights_session TO fence_rights; \
                      GRANT INSERT ON fence_rights_session TO fence_rights; GRANT SELECT ON fence_rights_store TO fence_rights";
        user.batch_execute(grants).await.unwrap();
        let guard = acquire(&leases).await;
        let mut few = connect(&place.url.replace("postgres@", "fence_rights@")).await;
        for renews in [false, true] {
            let mut transaction = few.transaction().await.unwrap();
            let fenced = if renews { guard.fence_and_renew(&mut transaction) } else { guard.fence(&mut transaction) };
            let fenced = fenced.await.unwrap();
            note(&transaction, &place, "few").await.unwrap();
            transaction.commit().await.unwrap();
            fenced.committed();
        }
        assert_eq!(noted(&place).await, ["few", "few"]);
    });
}

const SHORT: Duration = Duration::from_secs(1);

async fn briefly(place: &Place) -> LeaseManager {
    LeaseManager::builder(place.store().await, TokioExecutor::new()).lease(SHORT).build().unwrap()
}

/// The other process: holds the lease, opens a transaction with a write in it, and fences it when it is told to.
pub(crate) fn write(url: &str, prefix: &str) {
    let place = Place { url: url.into(), prefix: prefix.into() };
    Runtime::new().unwrap().block_on(async {
        let (mut user, leases) = (notes(&place).await, briefly(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        note(&transaction, &place, "late").await.unwrap();
        say("held");
        spawn_blocking(|| told().next()).await.unwrap();
        match guard.fence(&mut transaction).await {
            Ok(_) => say("passed"),
            Err(refused) => say(&format!("{refused:?}")),
        }
        drop(transaction.commit().await);
        say("over");
    });
}

/// A real process stands still for longer than its lease. It goes on where it was, and writes nothing.
#[test]
fn a_holder_that_was_stopped_past_its_lease_cannot_write() {
    on_server("fence_stopped", |place| async move {
        let leases = briefly(&place).await;
        let mut other = Other::start("writer", &place);
        assert_eq!(other.hear(), "held");
        other.stop();
        let guard = timeout(PATIENCE, leases.lock("k").acquire()).await.unwrap().unwrap();
        other.go_on();
        let said = other.ask("fence");
        assert!(said.starts_with("Lost"), "{said}");
        assert_eq!(other.hear(), "over");
        assert!(guard.is_valid());
        assert_eq!(noted(&place).await, [""; 0]);
    });
}

/// It stands still inside a fenced transaction: the lease is granted to nobody until the server ends that connection.
#[test]
fn a_lease_is_not_granted_while_its_holder_stands_still_inside_a_fence() {
    on_server("fence_still", |place| async move {
        let (mut user, leases) = (notes(&place).await, briefly(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        note(&transaction, &place, "still").await.unwrap();
        leases.close().await;
        let next = briefly(&place).await;
        let early = next.lock("k").timeout(SHORT * 2).acquire().await;
        // On a busy machine, what the server says of the lock may come too late.
        let is_kept_out = |error: &AcquireError| match error {
            AcquireError::Store(error) => matches!(error.kind, StoreErrorKind::Busy | StoreErrorKind::Locked),
            error => matches!(error, AcquireError::Timeout { .. }),
        };
        assert!(early.as_ref().is_err_and(is_kept_out), "{early:?}");
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%fence_still_notes%'";
        until("the connection is ended", async || {
            place.client().await.query_one(kill, &[]).await.unwrap().get::<_, i64>(0) > 0
        })
        .await;
        assert!(timeout(PATIENCE, next.lock("k").acquire()).await.unwrap().unwrap().is_valid());
        assert!(transaction.commit().await.is_err());
        assert_eq!(noted(&place).await, [""; 0]);
    });
}
