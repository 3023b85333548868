//! Connections on which the usual statements are prepared, and what may come between.

use std::time::Duration;

use leasehold::{
    StoreError,
    executor::{Executor, TokioExecutor},
    machine::{Acquire, Action, Batch, Beat, Key, Operation, Reply, RequestId, SessionId, SessionStep},
    store::{PostgresStore, Store},
};

use crate::server::{Place, on_server};
use crate::until::until;

/// The store prepares before this many transactions have run on a connection.
const ENOUGH: u128 = 5;

async fn ask(store: &PostgresStore, session: u128, limit: Duration) -> Result<Reply, StoreError> {
    let action = Action::Acquire(Acquire::new(RequestId(1), 1));
    let mut batch = Batch::new(SessionId(session), vec![Operation { key: Key::new("k").unwrap(), action }]);
    let beat = Beat { beat: 1, lease_ms: 60_000, ..Beat::default() };
    batch.step = SessionStep::Open { beat, instance: String::new() };
    store.transact(batch, TokioExecutor::new().now(), limit).await
}

const LIMIT: Duration = Duration::from_secs(5);

/// The tables are made by somebody else, after a few tries.
#[test]
fn whoever_asks_before_the_tables_stand_is_told_so_each_time() {
    on_server("prepared_early", |place| async move {
        let store = place.builder().connect().await.unwrap();
        for session in 0..ENOUGH {
            let error = ask(&store, session, LIMIT).await.unwrap_err();
            assert!(!error.retry && error.to_string().contains("migrate()"), "{session}: {error}");
        }
        drop(place.store().await);
        for session in 0..ENOUGH {
            ask(&store, session, LIMIT).await.unwrap();
        }
    });
}

#[test]
fn columns_that_become_another_type_of_text_cost_nothing() {
    on_server("prepared_altered", |place| async move {
        let store = place.store().await;
        for session in 0..ENOUGH {
            ask(&store, session, LIMIT).await.unwrap();
        }
        for table in ["record", "session"] {
            let alter = format!("ALTER TABLE prepared_altered_{table} ALTER COLUMN text TYPE varchar");
            place.client().await.batch_execute(&alter).await.unwrap();
        }
        for session in ENOUGH..2 * ENOUGH {
            ask(&store, session, LIMIT).await.unwrap();
        }
    });
}

/// Tables that are dropped and made anew are other ones under the same names.
#[test]
fn tables_that_are_made_anew_are_used() {
    on_server("prepared_anew", |place| async move {
        let store = place.store().await;
        for session in 0..ENOUGH {
            ask(&store, session, LIMIT).await.unwrap();
        }
        let drop = "DROP TABLE prepared_anew_store, prepared_anew_record, prepared_anew_session";
        place.client().await.batch_execute(drop).await.unwrap();
        assert!(!ask(&store, 1, LIMIT).await.unwrap_err().retry);
        store.migrate().await.unwrap();
        ask(&store, 1, LIMIT).await.unwrap();
    });
}

/// Somebody keeps a table locked for long. The server must not go on waiting for it on behalf of those who gave up.
#[test]
fn a_table_that_stays_locked_gathers_no_processes_of_the_server() {
    on_server("prepared_locked", |place| async move {
        drop(place.store().await);
        let named = Place { url: format!("{}?application_name=prepared_locked", place.url), ..place.clone() };
        let store = named.builder().connect().await.unwrap();
        for session in 0..2 {
            ask(&store, session, LIMIT).await.unwrap();
        }
        let (mut locker, user) = (place.client().await, place.client().await);
        let transaction = locker.transaction().await.unwrap();
        transaction.batch_execute("LOCK TABLE prepared_locked_record").await.unwrap();
        for session in 0..2 * ENOUGH {
            let error = ask(&store, session, Duration::from_millis(200)).await.unwrap_err();
            assert!(error.retry, "{session}: {error}");
        }
        let waits = "SELECT count(*) FROM pg_stat_activity \
            WHERE application_name = 'prepared_locked' AND wait_event_type = 'Lock'";
        let nobody = async || user.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0;
        until("the server gave up, too", nobody).await;
        drop(transaction);
    });
}

/// The table is locked when it is time to prepare. Some of the statements are prepared by then, and the others are not.
#[test]
fn a_connection_that_could_not_prepare_tries_again_later() {
    on_server("prepared_later", |place| async move {
        drop(place.store().await);
        let named = Place { url: format!("{}?application_name=prepared_later", place.url), ..place.clone() };
        let store = named.builder().connect().await.unwrap();
        for session in 0..2 {
            ask(&store, session, LIMIT).await.unwrap();
        }
        let (mut locker, user) = (place.client().await, place.client().await);
        let transaction = locker.transaction().await.unwrap();
        transaction.batch_execute("LOCK TABLE prepared_later_record").await.unwrap();
        // Long enough that the answer of the server is in time on a busy machine: else the connection is given up.
        ask(&store, 2, Duration::from_secs(2)).await.unwrap_err();
        drop(transaction);
        let connections = "SELECT pid, query LIKE '%EXECUTE leasehold_%' FROM pg_stat_activity \
            WHERE application_name = 'prepared_later'";
        let seen = async || {
            let row = user.query_one(connections, &[]).await.expect("it has one connection");
            (row.get::<_, i32>(0), row.get::<_, Option<bool>>(1) == Some(true))
        };
        let (first, _) = seen().await;
        for session in 3..40 {
            ask(&store, session, LIMIT).await.unwrap();
        }
        assert_eq!(seen().await, (first, true), "the same connection runs prepared statements now");
    });
}

/// The server says of each run how it found the row. Where it planned anew, it knew the key.
#[test]
fn a_small_table_is_searched_by_the_plan_for_a_large_one() {
    on_server("prepared_planned", |place| async move {
        let (user, setup) = (place.client().await, place.store().await);
        ask(&setup, 0, LIMIT).await.unwrap();
        for table in ["record", "session"] {
            user.batch_execute(&format!("VACUUM ANALYZE prepared_planned_{table}")).await.unwrap();
        }
        let options = ["session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0"];
        let options = options.map(|option| format!("-c%20{}", option.replace('=', "%3D"))).join("%20");
        let told = Place { url: format!("{}?options={options}", place.url), ..place.clone() };
        let store = told.builder().connect().await.unwrap();
        for session in 0..10 {
            if session == 6 {
                // It plans anew what it had planned for a table.
                user.batch_execute("ALTER TABLE prepared_planned_record SET (fillfactor = 51)").await.unwrap();
            }
            ask(&store, session, LIMIT).await.unwrap();
        }
        let log = "SELECT pg_read_file(current_setting('data_directory') || '/../log')";
        let log: String = user.query_one(log, &[]).await.unwrap().get(0);
        let lines: Vec<_> = log.lines().collect();
        let plan = "Index Scan using prepared_planned_record_pkey on prepared_planned_record ";
        let by_name = lines.windows(2).filter(|pair| pair[0].contains(plan) && pair[1].contains("(key = $1)"));
        assert_eq!(by_name.count(), 8, "all but those before it was worth preparing");
    });
}
