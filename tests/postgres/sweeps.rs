//! A sweep disturbs nobody: whoever holds a lease keeps it meanwhile, over a pool of one connection, too.

use std::time::{Duration, Instant};

use leasehold::{LeaseGuard, LeaseManager, executor::TokioExecutor, store::PostgresStore};
use tokio::{runtime::Builder, time::sleep};

use crate::{leases::with_longer_leases, server::Place, until::until};

/// Runs a test on one thread, where a sweep begins only once the test waits for something; in a store with many records.
fn in_crowd<F: Future<Output = ()>>(prefix: &str, test: impl FnOnce(Place) -> F) {
    let Some(place) = Place::new(prefix) else { return };
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        drop(place.store().await);
        crowd(&place).await;
        test(place).await;
    });
}

/// Writes many records that nobody uses.
async fn crowd(place: &Place) {
    let text = r#"{"format":1,"last_token":7,"revision":4,"grants":[],"queue":[],"last_exclusive":5}"#;
    let insert = format!(
        "INSERT INTO {}_record SELECT convert_to('k' || n, 'UTF8'), '{text}' FROM generate_series(100, 699) n \
         ON CONFLICT DO NOTHING",
        place.prefix
    );
    place.client().await.batch_execute(&insert).await.unwrap();
}

fn leases(store: PostgresStore, lease: Duration) -> LeaseManager {
    LeaseManager::builder(store, TokioExecutor::new()).lease(lease).build().unwrap()
}

/// Says when a guard became invalid, if it did so within a time that is much longer than its lease.
async fn stays_valid(guard: &LeaseGuard, lease: Duration) -> Result<(), String> {
    let since = Instant::now();
    while since.elapsed() < lease * 4 {
        if !guard.is_valid() {
            return Err(format!("in doubt after {:?}", since.elapsed()));
        }
        sleep(lease / 100).await;
    }
    Ok(())
}

/// Somebody began to use these records, and fences a transaction by them, after the sweep has read that nobody used them.
#[test]
fn a_sweep_that_finds_records_locked_keeps_no_heartbeat_waiting() {
    in_crowd("sweeps_locked", |place| async move {
        with_longer_leases(Duration::from_millis(1_500), async |lease| {
            crowd(&place).await;
            let (leases, mut users) = (leases(place.store().await, lease), Vec::new());
            for _ in 0..3 {
                users.push(place.client().await);
            }
            let guard = leases.lock("a").acquire().await.unwrap();
            for (user, key) in users.iter().zip(["k200", "k300", "k350"]) {
                let lock = format!(
                    "BEGIN; SELECT FROM {}_record WHERE key = convert_to('{key}', 'UTF8') FOR SHARE",
                    place.prefix
                );
                user.batch_execute(&lock).await.unwrap();
            }
            stays_valid(&guard, lease).await
        })
        .await;
    });
}

/// The first transaction finds many records, and then fails, because its user does not have the right to write yet.
#[test]
fn a_sweep_begins_although_the_first_transaction_failed() {
    in_crowd("sweeps_refused", |place| async move {
        let (admin, prefix, lease) = (place.client().await, &place.prefix, Duration::from_secs(20));
        let tables = format!("{prefix}_store, {prefix}_record, {prefix}_session");
        let rights = format!("CREATE ROLE sweeper LOGIN; GRANT SELECT, UPDATE, DELETE ON {tables} TO sweeper");
        admin.batch_execute(&rights).await.unwrap();
        let url = place.url.replace("//postgres@", "//sweeper@");
        let store = PostgresStore::builder(&url).prefix(prefix).connect().await.unwrap();
        let error = leases(store.clone(), lease).lock("a").acquire().await.unwrap_err();
        assert!(error.to_string().contains("permission denied"), "{error}");
        admin.batch_execute(&format!("GRANT INSERT ON {tables} TO sweeper")).await.unwrap();
        let guard = leases(store, lease).lock("a").acquire().await.unwrap();
        let count = format!("SELECT count(*) FROM {prefix}_record");
        let are_few = async || admin.query_one(&count, &[]).await.unwrap().get::<_, i64>(0) < 600;
        until("a sweep", are_few).await;
        guard.release().await.unwrap();
    });
}

/// As behind a firewall that forgot the connection. The next one reaches the server.
#[cfg(feature = "store-postgres-deadpool")]
#[test]
fn a_sweep_that_hears_nothing_gives_the_only_connection_of_a_pool_back() {
    use deadpool_postgres::{Manager, Pool};
    use tokio_postgres::NoTls;

    in_crowd("sweeps_nowhere", |place| async move {
        let (lease, mut late) = (Duration::from_secs(8), Vec::new());
        // On a busy machine the heartbeats may be late. With a longer lease, the sweep would be in nobody's way.
        for _ in 0..3 {
            crowd(&place).await;
            let proxy = place.proxy();
            let manager = Manager::new(place.behind(proxy.port).url.parse().unwrap(), NoTls);
            let pool = Pool::builder(manager).max_size(1).build().unwrap();
            let store = PostgresStore::builder_from_pool(pool).prefix(&place.prefix).connect().await.unwrap();
            let guard = leases(store, lease).lock("a").acquire().await.unwrap();
            proxy.strand();
            match stays_valid(&guard, lease).await {
                Ok(()) => return,
                Err(how) => late.push(how),
            }
        }
        panic!("{late:?}");
    });
}
