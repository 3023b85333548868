//! Two processes count under one lease, and are killed again and again.

use std::{
    thread,
    time::{Duration, Instant},
};

use leasehold::{LeaseManager, executor::TokioExecutor};
use tokio::runtime::Runtime;
use tokio_postgres::IsolationLevel;

use crate::{
    other::{Other, kills_more, say},
    server::{Place, on_server},
};

const LEASE: Duration = Duration::from_secs(1);

fn builder(place: &Place, beacons: bool) -> leasehold::store::PostgresStoreBuilder {
    if beacons { place.builder().with_beacons() } else { place.builder() }
}

/// The other process: reads the count and writes the next, in a fenced transaction, until it is killed.
pub(crate) fn count(url: &str, prefix: &str) {
    let place = Place { url: url.into(), prefix: prefix.into() };
    Runtime::new().unwrap().block_on(async {
        let store = builder(&place, prefix.ends_with("beacons")).connect().await.unwrap();
        let leases = LeaseManager::builder(store, TokioExecutor::new()).lease(LEASE).build().unwrap();
        let mut user = place.client().await;
        loop {
            let Ok(guard) = leases.lock("count").acquire().await else { continue };
            let token = i64::try_from(guard.token().as_u64()).unwrap();
            let mut transaction = user.transaction().await.unwrap();
            if guard.fence(&mut transaction).await.is_err() {
                continue;
            }
            let count = format!("SELECT n FROM {prefix}_count");
            let n: i64 = transaction.query_one(&count, &[]).await.unwrap().get(0);
            transaction.execute(&format!("UPDATE {prefix}_count SET n = $1"), &[&(n + 1)]).await.unwrap();
            let log = format!("INSERT INTO {prefix}_log (n, token) VALUES ($1, $2)");
            transaction.execute(&log, &[&(n + 1), &token]).await.unwrap();
            transaction.commit().await.unwrap();
            say(&token.to_string());
            drop(guard.release().await);
        }
    });
}

/// Kills one of the two at moments that differ from time to time, and starts another in its place.
fn kill_and_start(place: &Place) -> (usize, usize) {
    let mut others = [Other::start("counter", place), Other::start("counter", place)];
    let (since, mut killed, mut said) = (Instant::now(), 0, 0);
    while kills_more(since, || killed > 2) {
        let other = &mut others[killed % 2];
        // It has counted, and is anywhere in a later turn.
        other.hear();
        let moment = u64::from(since.elapsed().subsec_nanos()) % 40_000;
        thread::sleep(Duration::from_micros(moment));
        other.kill();
        while other.try_hear().is_some() {
            said += 1;
        }
        *other = Other::start("counter", place);
        (killed, said) = (killed + 1, said + 1);
    }
    for other in &mut others {
        other.kill();
        while other.try_hear().is_some() {
            said += 1;
        }
    }
    (killed, said)
}

fn nothing_is_lost(prefix: &str) {
    on_server(prefix, |place| async move {
        drop(place.store().await);
        let mut user = place.client().await;
        let tables = format!(
            "CREATE TABLE {prefix}_count (n bigint); INSERT INTO {prefix}_count VALUES (0); \
             CREATE TABLE {prefix}_log (at bigserial, n bigint, token bigint)"
        );
        user.batch_execute(&tables).await.unwrap();
        let (killed, said) = tokio::task::block_in_place(|| kill_and_start(&place));
        // In one snapshot: the server may still commit for a process that was killed a moment ago.
        let reading = user.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await.unwrap();
        let log = reading.query(&format!("SELECT n, token FROM {prefix}_log ORDER BY n, at"), &[]).await.unwrap();
        let count: i64 = reading.query_one(&format!("SELECT n FROM {prefix}_count"), &[]).await.unwrap().get(0);
        println!("{prefix}: {count} turns, {killed} kills");
        assert_eq!(usize::try_from(count).unwrap(), log.len(), "each turn is counted once");
        for (number, row) in log.iter().enumerate() {
            assert_eq!(
                row.get::<_, i64>(0),
                i64::try_from(number).unwrap() + 1,
                "each turn finds what the one before it left"
            );
        }
        for pair in log.windows(2) {
            assert!(pair[0].get::<_, i64>(1) < pair[1].get::<_, i64>(1), "tokens grow");
        }
        assert!(said <= log.len(), "what was said was committed");
        assert!(killed > 2 && said >= killed, "{killed} kills, {said} turns");
    });
}

/// Without beacons a killed holder is replaced after its silence.
#[test]
fn processes_that_are_killed_lose_no_count() {
    nothing_is_lost("counter_plain");
}

/// With beacons it is replaced at once.
#[test]
fn processes_that_are_killed_lose_no_count_with_beacons() {
    nothing_is_lost("counter_beacons");
}
