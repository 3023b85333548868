//! Triggers, rules and views of the database that keep rows from being written or read. PostgreSQL often reports no error.

use std::time::Duration;

use futures::future::join_all;
use leasehold::{LeaseManager, executor::TokioExecutor};
use tokio::time::sleep;

use crate::server::{Place, on_server};

async fn manager(place: &Place) -> LeaseManager {
    LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap()
}

/// Makes a trigger that skips each row before one of these commands.
async fn skip(place: &Place, table: &str, commands: &str) {
    let trigger = format!(
        "CREATE FUNCTION {table}_skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER skip BEFORE {commands} ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_skip()"
    );
    place.client().await.batch_execute(&trigger).await.unwrap();
}

#[test]
fn a_lease_whose_record_is_not_written_is_not_granted() {
    for (prefix, table, commands) in [
        ("swallowed_insert", "record", "INSERT"),
        ("swallowed_update", "record", "UPDATE"),
        ("swallowed_session", "session", "INSERT"),
    ] {
        on_server(prefix, |place| async move {
            let first = manager(&place).await;
            if commands == "UPDATE" {
                first.lock("k").acquire().await.unwrap().release().await.unwrap();
            }
            skip(&place, &format!("{prefix}_{table}"), commands).await;
            for leases in [manager(&place).await, manager(&place).await] {
                let said = leases.lock("k").try_acquire().await.unwrap_err().to_string();
                let words = ["did not write", &format!("\"public\".{prefix}_record"), "triggers"];
                assert!(words.iter().all(|word| said.contains(word)), "{said}");
            }
        });
    }
}

/// Where a view hides the session of a holder, its lease was granted a second time.
#[test]
fn a_view_in_place_of_a_table_is_refused() {
    on_server("swallowed_view", |place| async move {
        let first = manager(&place).await;
        let guard = first.lock("k").acquire().await.unwrap();
        let view = "ALTER TABLE swallowed_view_session RENAME TO swallowed_view_all; \
            CREATE VIEW swallowed_view_session AS SELECT * FROM swallowed_view_all WHERE false";
        place.client().await.batch_execute(view).await.unwrap();
        let store = place.builder().connect().await.unwrap();
        let migrated = store.migrate().await.unwrap_err().to_string();
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        let asked = leases.lock("k").try_acquire().await.unwrap_err().to_string();
        for said in [migrated, asked] {
            assert!(said.contains("is a view") && said.contains("swallowed_view"), "{said}");
        }
        drop(guard);
    });
}

#[test]
fn rules_and_constraints_on_the_tables_are_named() {
    for (prefix, change, words) in [
        ("swallowed_rule", "CREATE RULE r AS ON UPDATE TO swallowed_rule_record DO INSTEAD NOTHING", "DROP RULE"),
        ("swallowed_store", "CREATE RULE r AS ON UPDATE TO swallowed_store_store DO INSTEAD NOTHING", "DROP RULE"),
        ("swallowed_check", "ALTER TABLE swallowed_check_record ADD more text CHECK (more IS NOT NULL)", "constraint"),
    ] {
        on_server(prefix, |place| async move {
            let leases = manager(&place).await;
            place.client().await.batch_execute(change).await.unwrap();
            let said = leases.lock("k").timeout(Duration::from_secs(60)).acquire().await.unwrap_err().to_string();
            assert!(said.contains(words) && said.contains(prefix), "{said}");
        });
    }
}

/// A trigger that skips an update which leaves its row as it was. The store must never write such an update.
#[test]
fn no_row_is_written_as_it_was() {
    on_server("swallowed_same", |place| async move {
        let leases = [place.builder().with_beacons(), place.builder()].map(async |builder| {
            let store = builder.connect().await.unwrap();
            store.migrate().await.unwrap();
            LeaseManager::builder(store, TokioExecutor::new()).lease(Duration::from_secs(3)).build().unwrap()
        });
        let leases = join_all(leases).await;
        for table in ["store", "record", "session"] {
            let trigger = format!(
                "CREATE TRIGGER same BEFORE UPDATE ON swallowed_same_{table} FOR EACH ROW \
                 EXECUTE FUNCTION suppress_redundant_updates_trigger()"
            );
            place.client().await.batch_execute(&trigger).await.unwrap();
        }
        let turns = leases.iter().map(async |leases| {
            for turn in 0..4 {
                let (k, other) =
                    (leases.lock("k").acquire().await.unwrap(), leases.lock("other").acquire().await.unwrap());
                k.verify().await.unwrap();
                if turn == 0 {
                    // Heartbeats, and requests that wait for this one.
                    sleep(Duration::from_secs(2)).await;
                }
                other.downgrade().await.unwrap();
                other.release().await.unwrap();
                k.release().await.unwrap();
            }
        });
        join_all(turns).await;
    });
}

/// A fence that renews in the user's transaction must not rely on a heartbeat that was not written.
#[test]
fn a_fence_whose_heartbeat_is_not_written_refuses_the_transaction() {
    on_server("swallowed_fence", |place| async move {
        let guard = manager(&place).await.lock("k").acquire().await.unwrap();
        skip(&place, "swallowed_fence_session", "UPDATE").await;
        let mut client = place.client().await;
        let mut transaction = client.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.expect("it writes nothing"));
        let said = guard.fence_and_renew(&mut transaction).await.unwrap_err().to_string();
        assert!(said.contains("did not write"), "{said}");
        transaction.batch_execute("SELECT").await.expect_err("it can only be rolled back");
    });
}
