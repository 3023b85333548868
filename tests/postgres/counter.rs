//! Two processes count under one lease, and are killed again and again.

use futures::future::join_all;
use leasehold::{FenceError, LeaseGuard, LeaseManager, executor::TokioExecutor};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, IsolationLevel};

use crate::{
    killed,
    other::Other,
    server::{Place, on_server},
};

fn builder(place: &Place, beacons: bool) -> leasehold::store::PostgresStoreBuilder {
    if beacons { place.builder().with_beacons() } else { place.builder() }
}

/// The other process: reads the count and writes the next, in a fenced transaction, until it is killed.
pub(crate) fn count(url: &str, prefix: &str) {
    let place = Place { url: url.into(), prefix: prefix.into() };
    Runtime::new().unwrap().block_on(async {
        let store = builder(&place, prefix.ends_with("beacons")).connect().await.unwrap();
        let leases = LeaseManager::builder(store, TokioExecutor::new()).lease(killed::LEASE).build().unwrap();
        let users = join_all((0..killed::TASKS).map(|_| place.client())).await;
        let write = async |user: &mut Client, guard: &LeaseGuard, step| {
            let mut transaction = user.transaction().await.unwrap();
            let fenced = guard.fence(&mut transaction).await?;
            let count = format!("SELECT n FROM {prefix}_count");
            let n: i64 = transaction.query_one(&count, &[]).await.unwrap().get(0);
            transaction.execute(&format!("UPDATE {prefix}_count SET n = $1"), &[&(n + 1)]).await.unwrap();
            let log = format!("INSERT INTO {prefix}_log (n, token, step) VALUES ($1, $2, $3)");
            let [token, step] = [guard.token().as_u64(), step].map(u64::cast_signed);
            transaction.execute(&log, &[&(n + 1), &token, &step]).await.unwrap();
            transaction.commit().await.unwrap();
            fenced.committed();
            Ok::<_, FenceError>(())
        };
        let writes =
            users.into_iter().map(|mut user| async move |guard: &LeaseGuard, step| write(&mut user, guard, step).await);
        killed::count(&leases, writes).await;
    });
}

/// Some commits take long in the server: if their task was dropped meanwhile, another one of its manager writes before they are over,
/// unless the manager asks the server for the next lease.
fn nothing_is_lost(prefix: &str) {
    on_server(prefix, |place| async move {
        drop(place.store().await);
        let mut user = place.client().await;
        let tables = format!(
            "CREATE TABLE {prefix}_count (n bigint); INSERT INTO {prefix}_count VALUES (0); \
             CREATE TABLE {prefix}_log (at bigserial, n bigint, token bigint, step bigint); \
             CREATE FUNCTION {prefix}_late() RETURNS trigger LANGUAGE plpgsql AS \
                 $$BEGIN IF random() < 0.5 THEN PERFORM pg_sleep(0.05); END IF; RETURN NULL; END$$; \
             CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {prefix}_log DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION {prefix}_late()"
        );
        user.batch_execute(&tables).await.unwrap();
        let told = tokio::task::block_in_place(|| killed::at_random(2, || Other::start("counter", &place)));
        // In one snapshot: the server may still commit for a process that was killed a moment ago.
        let reading = user.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await.unwrap();
        let log = format!("SELECT n, token, step FROM {prefix}_log ORDER BY n, at");
        let log = reading.query(&log, &[]).await.unwrap();
        let count: i64 = reading.query_one(&format!("SELECT n FROM {prefix}_count"), &[]).await.unwrap().get(0);
        assert_eq!(usize::try_from(count).unwrap(), log.len(), "each turn is counted once");
        let counts = log.iter().map(|row| [0, 1, 2].map(|column| row.get::<_, i64>(column).cast_unsigned()));
        killed::judge(&told, counts.map(|[n, token, step]| (n, token, step)));
    });
}

/// Without beacons a killed holder is replaced after its silence.
#[test]
fn a_fenced_counter_is_exact_though_processes_are_killed() {
    nothing_is_lost("counter_plain");
}

/// With beacons it is replaced at once.
#[test]
fn a_fenced_counter_with_beacons_is_exact_though_processes_are_killed() {
    nothing_is_lost("counter_beacons");
}
