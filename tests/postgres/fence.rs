//! Fenced writes in the user's own transactions.

mod open;
mod plain_sql;
mod refused;
mod renewing;

use std::time::Duration;

use leasehold::{FenceError, LeaseGuard, LeaseManager, executor::TokioExecutor, machine::LostReason};
use tokio::{runtime::Runtime, task::spawn_blocking, time::timeout};
use tokio_postgres::{Client, Transaction};

use crate::{
    other::{Other, say, told},
    server::{PATIENCE, Place, connect, on_server},
};

/// As long as the tests wait for what must not happen.
const WHILE: Duration = Duration::from_millis(400);

const SHORT: Duration = Duration::from_secs(1);

async fn manager(place: &Place) -> LeaseManager {
    LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap()
}

async fn briefly(place: &Place) -> LeaseManager {
    LeaseManager::builder(place.store().await, TokioExecutor::new()).lease(SHORT).build().unwrap()
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

/// A connection with a table for notes, and a lease of a manager beside it.
async fn holder(place: &Place) -> (Client, LeaseManager, LeaseGuard) {
    let (user, leases) = (notes(place).await, manager(place).await);
    let guard = acquire(&leases).await;
    (user, leases, guard)
}

#[test]
fn a_current_lease_lets_its_holder_write() {
    on_server("fence_current", |place| async move {
        let (mut user, _leases, guard) = holder(&place).await;
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
