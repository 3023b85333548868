//! Tables that are missing, made at once, of another program, of another version, or temporary.

use futures::future::try_join_all;
use leasehold::{LeaseManager, executor::TokioExecutor, store::from_url};

use crate::bad_input::{first_use, says};
use crate::server::on_server;

const PROGRAMS: usize = 8;
const ROUNDS: usize = 40;

#[test]
fn without_tables_the_first_request_names_the_remedy() {
    on_server("bad_tables", |place| async move {
        let said = first_use(place.builder().connect().await.unwrap()).await;
        assert!(said.contains("no table bad_tables_record") && said.contains("PostgresStore::migrate()"), "{said}");
    });
}

#[test]
fn tables_of_another_program_are_left_as_they_are() {
    on_server("bad_alien", |place| async move {
        let user = place.client().await;
        let alien = "CREATE TABLE bad_alien_record (id integer PRIMARY KEY, name text); INSERT INTO bad_alien_record VALUES (1, 'mine')";
        user.batch_execute(alien).await.unwrap();
        let store = place.builder().connect().await.unwrap();
        let error = store.migrate().await.unwrap_err();
        says(&error, &["\"bad_alien\"", "not leasehold's", "choose another prefix"]);
        assert!(!error.retry, "{error}");
        let rows = user.query_one("SELECT count(*), min(name) FROM bad_alien_record", &[]).await.unwrap();
        assert_eq!((rows.get::<_, i64>(0), rows.get::<_, String>(1)), (1, "mine".into()));
        let made = user.query_one("SELECT to_regclass('bad_alien_store') IS NULL", &[]).await.unwrap();
        assert!(made.get::<_, bool>(0), "the tables are made all or none");
    });
}

#[test]
fn tables_of_a_newer_version_are_left_as_they_are() {
    on_server("bad_newer", |place| async move {
        let store = place.store().await;
        let user = place.client().await;
        user.batch_execute("UPDATE bad_newer_store SET schema = 2").await.unwrap();
        let error = store.migrate().await.unwrap_err();
        says(&error, &["\"bad_newer\"", "version 2", "update this program"]);
        let said = first_use(store).await;
        assert!(said.contains("version 2") && said.contains("update this program"), "{said}");
        let left = user.query_one("SELECT schema, text IS NULL FROM bad_newer_store", &[]).await.unwrap();
        assert_eq!((left.get::<_, i32>(0), left.get::<_, bool>(1)), (2, true));
    });
}

/// If only the record's table is gone, the holder goes on, because its heartbeats find its session.
#[test]
fn a_table_that_somebody_dropped_is_not_made_anew_beside_the_others() {
    on_server("bad_partial", |place| async move {
        let leases = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let user = place.client().await;
        user.batch_execute("CREATE SCHEMA empty").await.unwrap();
        for table in ["record", "session", "store"] {
            user.batch_execute(&format!("ALTER TABLE {}_{table} RENAME TO elsewhere", place.prefix)).await.unwrap();
            let error = place.builder().connect().await.unwrap().migrate().await.unwrap_err();
            says(
                &error,
                &[&format!("{}_{table}", place.prefix), "nobody knows who holds which lease", "drop the others"],
            );
            let path = format!("{}?prefix={}&options=-csearch_path%3Dempty,public", place.url, place.prefix);
            let error = from_url(&path).await.map(drop).expect_err("a schema before that of the others has no tables");
            says(&error, &["nobody knows who holds which lease"]);
            let told = leases.lock("other").acquire().await.unwrap_err().to_string();
            let named = format!("no table {}_{table} in", place.prefix);
            assert!(told.contains(&named) && told.contains("give it its name back"), "{told}");
            user.batch_execute(&format!("ALTER TABLE elsewhere RENAME TO {}_{table}", place.prefix)).await.unwrap();
        }
        assert!(guard.verify().await.unwrap(), "nothing was changed");
        drop(guard);
        leases.close().await;
        let all = ["store", "record", "session"].map(|kind| format!("DROP TABLE {}_{kind};", place.prefix)).concat();
        user.batch_execute(&all).await.unwrap();
        drop(place.store().await);
    });
}

/// Each may find that some of the tables are there, and others not yet.
#[test]
fn programs_that_start_together_make_the_tables_together() {
    on_server("bad_together", |place| async move {
        for round in 0..ROUNDS {
            let prefix = format!("together{round}");
            let stores = (0..PROGRAMS).map(|_| place.builder().prefix(&prefix).connect());
            let stores = try_join_all(stores).await.unwrap();
            try_join_all(stores.iter().map(|store| store.migrate())).await.unwrap();
        }
    });
}

/// Each connection has temporary tables of its own: two programs would hold one lease.
#[test]
fn a_schema_of_temporary_tables_is_refused() {
    on_server("bad_temporary", |place| async move {
        for path in ["pg_temp", "pg_temp,public", "%20pg_temp%20,%20public"] {
            let url = format!("{}?options=-csearch_path%3D{}", place.url, path.replace("%20", "%5C%20"));
            let error = from_url(&url).await.map(drop).expect_err("these tables would be temporary");
            says(&error, &["pg_temp", "temporary", "options=-csearch_path"]);
        }
        // Temporary tables of other programs are nothing to us as long as the search path does not name them first.
        let url = format!("{}?options=-csearch_path%3Dpublic,pg_temp&prefix={}", place.url, place.prefix);
        drop(from_url(&url).await.unwrap());
    });
}

#[test]
fn many_programs_make_the_tables_at_once() {
    on_server("bad_crowd", |place| async move {
        let migrations = (0..8).map(|_| async { place.builder().connect().await.unwrap().migrate().await });
        for migrated in futures::future::join_all(migrations).await {
            migrated.unwrap();
        }
    });
}
