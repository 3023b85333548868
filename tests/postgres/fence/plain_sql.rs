//! The check of a fence by plain SQL, for programs in other languages.

use leasehold::LeaseGuard;
use tokio::time::timeout;
use tokio_postgres::{Transaction, types::ToSql};

use super::{WHILE, acquire, manager, note, noted, notes};
use crate::server::{Place, on_server};

/// The check as docs/beyond-one-process.md has it, for programs in other languages.
fn plain_sql(place: &Place) -> String {
    let guide = include_str!("../../../docs/beyond-one-process.md");
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
