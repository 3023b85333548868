//! Processes count together, and are killed.

use std::path::Path;

use leasehold::LeaseGuard;
use rusqlite::TransactionBehavior;
use tokio::{runtime::Runtime, task::yield_now};

use crate::{
    Other, Scratch, connect,
    killed::{self, Count},
    manager,
};

/// The other process: counts under a fence until it is killed. Its commits do not wait, so no task can be dropped in the middle of one.
pub(crate) fn count(directory: &Path) {
    let leases = manager(directory).lease(killed::LEASE).build().unwrap();
    let writes = (0..killed::TASKS).map(|_| {
        let mut database = connect(directory);
        async move |guard: &LeaseGuard, step| {
            // Read outside of the transaction: only the lease makes that safe.
            let count: i64 = database.query_row("SELECT max(count) FROM counts", [], |row| row.get(0)).unwrap();
            yield_now().await;
            let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            let fenced = guard.fence(&transaction).await?;
            let [token, step] = [guard.token().as_u64(), step].map(|number| i64::try_from(number).unwrap());
            transaction.execute("INSERT INTO counts VALUES (?1, ?2, ?3)", [count + 1, token, step]).unwrap();
            transaction.commit().unwrap();
            fenced.committed();
            Ok(())
        }
    });
    Runtime::new().unwrap().block_on(killed::count(&leases, writes));
}

#[test]
fn a_fenced_counter_is_exact_though_processes_are_killed() {
    let scratch = Scratch::new();
    drop(manager(&scratch.0).build().unwrap());
    let database = connect(&scratch.0);
    let table = "CREATE TABLE counts (count INTEGER, token INTEGER, step INTEGER); INSERT INTO counts VALUES (0, 0, 0)";
    database.execute_batch(table).unwrap();
    let told = killed::at_random(3, || Other::start("counter", &scratch));
    let mut rows = database.prepare("SELECT count, token, step FROM counts WHERE count > 0 ORDER BY rowid").unwrap();
    let number = |row: &rusqlite::Row<'_>, column| row.get(column).map(i64::cast_unsigned);
    let rows = rows.query_map([], |row| Ok((number(row, 0)?, number(row, 1)?, number(row, 2)?))).unwrap();
    killed::judge(&told, rows.map(Result::unwrap).collect::<Vec<Count>>());
    let integrity: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
}
