//! Transactions in which a fence means nothing, or cannot be checked: nobody writes.

use leasehold::{FenceError, LeaseManager, executor::TokioExecutor, machine::Applied};
use tokio_postgres::IsolationLevel;

use super::{acquire, holder, manager, note, noted, notes};
use crate::server::{PATIENCE, Place, connect, on_server};

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
        let (mut user, _leases, guard) = holder(&place).await;
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

#[test]
fn a_transaction_that_cannot_write_or_has_failed_is_refused() {
    on_server("fence_read_only", |place| async move {
        let (mut user, _leases, guard) = holder(&place).await;
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
        let (mut user, _leases, guard) = holder(&place).await;
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
