//! Fences that carry a heartbeat.

use std::time::Duration;

use leasehold::{LeaseManager, executor::TokioExecutor, store::PostgresStore};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use super::{acquire, holder, manager, note, noted, notes};
use crate::{
    leases::with_longer_leases,
    server::{PATIENCE, Place, on_server},
    until::until,
};

/// Longer than any test waits.
const WHOLE: Duration = Duration::from_secs(300);

/// The heartbeat is in the row of the session once the transaction is committed, and not if it is rolled back.
#[test]
fn a_fence_that_renews_writes_a_heartbeat_with_the_transaction() {
    on_server("fence_renews", |place| async move {
        let (mut user, _leases, guard) = holder(&place).await;
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
        with_longer_leases(Duration::from_secs(2), async |lease| {
            let builder = LeaseManager::builder(place.store().await, TokioExecutor::new());
            let leases = builder.lease(lease).build().unwrap();
            let (mut user, guard) = (notes(&place).await, acquire(&leases).await);
            let since = std::time::Instant::now();
            while since.elapsed() < lease * 3 / 2 {
                let mut transaction = user.transaction().await.unwrap();
                let fenced = guard.fence_and_renew(&mut transaction).await.map_err(|late| late.to_string())?;
                note(&transaction, &place, "alive").await.unwrap();
                transaction.commit().await.unwrap();
                fenced.committed();
            }
            if !guard.is_valid() {
                return Err(format!("{guard:?}"));
            }
            assert_eq!(guard.release().await.unwrap(), leasehold::ReleaseOutcome::Released);
            Ok(())
        })
        .await;
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

/// Such a transaction keeps the session's row locked, so nobody can delete it before the commit. By then the manager is closed, and its
/// runtime has ended.
#[test]
fn a_manager_closed_during_fence_and_renew_frees_its_keys_at_the_commit() {
    on_server("fence_closes", |place| async move {
        keeps_nothing_after_the_commit(&place, async |leases| leases.close().await).await;
    });
}

/// The same for a manager that is suspended. Its process sleeps when the row is free at last.
#[test]
fn a_manager_suspended_during_fence_and_renew_frees_its_keys_at_the_commit() {
    on_server("fence_suspends", |place| async move {
        let watch = place.client().await;
        keeps_nothing_after_the_commit(&place, async |leases| {
            leases.suspend();
            let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%DELETE FROM%fence_suspends_session%' \
                         AND query LIKE '%lock_timeout = 0%'";
            until("the server deletes", async || !watch.query(waits, &[]).await.unwrap().is_empty()).await;
        })
        .await;
    });
}

/// A manager stops during such a transaction, and its runtime ends. Then the transaction is committed, after a server that looks whether
/// its clients are still there has had time to look.
async fn keeps_nothing_after_the_commit(place: &Place, stop: impl AsyncFnOnce(&LeaseManager)) {
    let other = manager(place).await;
    let mut user = notes(place).await;
    let mut transaction = user.transaction().await.unwrap();
    let runtime = Runtime::new().unwrap();
    let watched = format!("{}?options=-c%20client_connection_check_interval%3D20", place.url);
    let store = PostgresStore::builder(&watched).prefix(&place.prefix);
    let store = runtime.spawn(async move { store.connect().await.unwrap() }).await.unwrap();
    let builder = LeaseManager::builder(store, TokioExecutor::new());
    let leases = builder.lease(WHOLE).store_timeout(Duration::from_millis(500)).build().unwrap();
    let guard = acquire(&leases).await;
    let fenced = guard.fence_and_renew(&mut transaction).await.unwrap();
    stop(&leases).await;
    runtime.shutdown_background();
    sleep(Duration::from_millis(200)).await;
    transaction.commit().await.unwrap();
    fenced.committed();
    let _guard = timeout(PATIENCE, acquire(&other)).await.expect("the lease goes with the commit");
}
