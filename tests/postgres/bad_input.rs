//! What users get wrong: each is one sentence that names the value and the remedy, and nothing is changed.

use std::time::Duration;

use leasehold::{
    LeaseManager, StoreError,
    executor::TokioExecutor,
    machine::{Applied, StoreErrorKind},
    store::{PostgresStore, Store, from_url},
};
use tokio::{runtime::Runtime, time::timeout};

use crate::server::{PATIENCE, Place, Server, connect, on_server};

/// The error has all of these in its sentence, and says that nothing was written.
pub(crate) fn says(error: &StoreError, words: &[&str]) {
    for word in words {
        assert!(error.message.contains(word), "{word:?} is not in: {}", error.message);
    }
    assert_eq!(error.applied, Applied::No, "{error}");
    assert!(!error.message.contains("hunter2"), "a password is told: {error}");
}

async fn refused(connecting: impl Future<Output = Result<PostgresStore, StoreError>>) -> StoreError {
    connecting.await.expect_err("this cannot be connected")
}

/// What a first request says over this store.
pub(crate) async fn first_use(store: PostgresStore) -> String {
    let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
    leases.lock("k").acquire().await.expect_err("there is no store").to_string()
}

#[test]
fn a_url_that_cannot_be_used_is_told_before_anything_is_opened() {
    Runtime::new().unwrap().block_on(async {
        for (url, words) in [
            ("nonsense", ["cannot be read", "postgres://user@host/database"]),
            ("postgres://u:hunter2@h/d?sslmode=require", ["encrypted connection", "PostgresStoreBuilder::tls"]),
            ("postgres://u:hunter2@h/d?target_session_attrs=primary", ["target_session_attrs", "=read-write"]),
            ("postgres://u:hunter2@h/d?sslmode=verify-full", ["store-postgres-tls", "PostgresStoreBuilder::tls"]),
            ("postgres://u:hunter2@h/d?colour=red", ["colour", "cannot be read"]),
            ("postgres:///d?user=u", ["is incomplete", "postgres://user:password@host/database"]),
        ] {
            let error = refused(PostgresStore::connect(url)).await;
            says(&error, &words);
            assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false), "{error}");
        }
        let error = from_url("postgres://u:hunter2@h/d?sslmode=require&prefix=jobs")
            .await
            .map(drop)
            .expect_err("it cannot encrypt");
        says(
            &error,
            &["encrypted connection", "PostgresStoreBuilder::tls", "PostgresStore::from_pool", "sslmode=disable"],
        );
    });
}

#[test]
fn a_server_that_asks_for_encryption_is_reported_as_such() {
    let Some(server) = Server::start() else { return };
    server.let_in("hostssl all all all trust");
    server.crash();
    server.restart();
    Runtime::new().unwrap().block_on(async {
        let error = refused(PostgresStore::connect(&server.url())).await;
        says(&error, &["without encryption", "PostgresStoreBuilder::tls"]);
        assert!(!error.retry, "{error}");
    });
}

#[test]
fn a_wrong_password_is_told_and_the_right_one_is_accepted() {
    let Some(server) = Server::start() else { return };
    let runtime = Runtime::new().unwrap();
    let role = "CREATE ROLE clerk LOGIN PASSWORD 'correct horse'; GRANT CREATE ON SCHEMA public TO clerk";
    runtime.block_on(async { connect(&server.url()).await.batch_execute(role).await.unwrap() });
    server.let_in("host all all all scram-sha-256");
    server.crash();
    server.restart();
    runtime.block_on(async {
        let with = |user: &str| server.url().replace("postgres@", &format!("{user}@"));
        let error = refused(PostgresStore::connect(&with("clerk:hunter2"))).await;
        says(&error, &["\"clerk\"", "password authentication failed", "correct the user or the password"]);
        assert!(!error.retry, "{error}");
        let error = refused(PostgresStore::connect(&with("clerk"))).await;
        says(&error, &["password missing", "postgres://user:password@host/database"]);
        assert!(!error.retry, "{error}");
        let store = PostgresStore::connect(&with("clerk:correct%20horse")).await.unwrap();
        store.migrate().await.unwrap();
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        drop(leases.lock("k").acquire().await.unwrap());
        leases.close().await;
    });
}

#[test]
fn a_prefix_that_is_no_plain_name_is_refused() {
    Runtime::new().unwrap().block_on(async {
        for prefix in ["", "9", "Leases", "a b", "a;DROP TABLE notes", "a\"", &"a".repeat(51)] {
            let error = refused(PostgresStore::builder("host=h user=u").prefix(prefix).connect()).await;
            says(&error, &[&format!("{prefix:?}"), "lower-case letters"]);
        }
    });
}

#[test]
fn a_store_cannot_be_connected_without_a_runtime() {
    let error = futures::executor::block_on(PostgresStore::connect("host=h user=u")).unwrap_err();
    says(&error, &["no tokio runtime", "call this inside one"]);
}

#[test]
fn a_server_that_is_not_there_is_named_with_the_remedy() {
    Runtime::new().unwrap().block_on(async {
        let port = crate::port::free_port();
        let closed = "check the host and the port in the URL";
        let unknown = "the host name was not found; check it in the URL";
        for (place, named, remedy) in [
            (format!("127.0.0.1:{port}"), format!("127.0.0.1:{port}"), closed),
            (format!("127.0.0.1:{port},[::1]:{port}"), format!("127.0.0.1:{port}, ::1:{port}"), closed),
            (format!("%2Fno%2Fsuch:{port}"), format!("/no/such/.s.PGSQL.{port}"), closed),
            ("no-such-host.invalid".into(), "no-such-host.invalid:5432".into(), unknown),
        ] {
            let error = refused(PostgresStore::connect(&format!("postgres://u:hunter2@{place}/d"))).await;
            says(&error, &[&format!("no server answers at {named}: "), remedy]);
            assert!(error.retry, "a server may come back: {error}");
        }
    });
}

#[test]
fn an_unknown_database_is_named() {
    on_server("bad_database", |place| async move {
        let error = refused(PostgresStore::connect(&place.url_of("nowhere"))).await;
        says(&error, &["\"nowhere\"", "create the database"]);
        assert!(!error.retry, "{error}");
    });
}

#[test]
fn a_wrong_user_is_named() {
    on_server("bad_user", |place| async move {
        let error = refused(PostgresStore::connect(&place.url.replace("postgres@", "nobody:hunter2@"))).await;
        says(&error, &["\"nobody\"", "correct the user or the password"]);
        assert!(!error.retry, "{error}");
        let error = refused(PostgresStore::connect(&place.url.replace("postgres@", ""))).await;
        says(&error, &["does not let the user of this process in"]);
    });
}

#[test]
fn a_user_who_may_only_read_sees_what_is_held_and_is_told_what_to_grant() {
    on_server("bad_reader", |place| async move {
        let owner = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        let guard = owner.lock("held").acquire().await.unwrap();
        let user = place.client().await;
        let roles = "CREATE ROLE bad_reader LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO bad_reader";
        user.batch_execute(roles).await.unwrap();
        let reader = Place { url: place.url.replace("postgres@", "bad_reader@"), ..place.clone() };
        let looks = LeaseManager::builder(reader.store().await, TokioExecutor::new()).build().unwrap();
        let listed = looks.list("").await.unwrap();
        assert_eq!((listed.len(), listed[0].holders[0].token), (1, guard.token()));
        assert_eq!(looks.status("held").await.unwrap().holders[0].token, guard.token());
        // Whoever may not create tables may ask for them where they stand.
        let said = first_use(reader.store().await).await;
        assert!(said.contains("permission denied") && said.contains("GRANT SELECT, INSERT, UPDATE, DELETE"), "{said}");
        let nowhere = Place { prefix: "bad_reader_new".into(), ..reader };
        let error = nowhere.builder().connect().await.unwrap().migrate().await.unwrap_err();
        says(&error, &["may not create the tables", "GRANT USAGE, CREATE ON SCHEMA \"public\""]);
    });
}

#[test]
fn a_user_who_may_not_even_read_is_told_to_be_granted_select_for_a_look() {
    on_server("bad_blind", |place| async move {
        drop(place.store().await);
        place.client().await.batch_execute("CREATE ROLE bad_blind LOGIN").await.unwrap();
        let blind = Place { url: place.url.replace("postgres@", "bad_blind@"), ..place.clone() };
        let store = blind.builder().connect().await.unwrap();
        says(&store.migrate().await.unwrap_err(), &["permission denied", "GRANT SELECT ON"]);
        let looks = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        for error in [looks.list("").await.map(drop).unwrap_err(), looks.status("k").await.map(drop).unwrap_err()] {
            let said = error.to_string();
            assert!(said.contains("GRANT SELECT ON") && said.contains("if it is to take leases"), "{said}");
        }
    });
}

#[test]
fn a_user_from_whom_policies_hide_rows_is_told_so() {
    on_server("bad_hidden", |place| async move {
        drop(place.store().await);
        let owner = place.client().await;
        let grants = "CREATE ROLE bad_hidden LOGIN; GRANT CREATE ON SCHEMA public TO bad_hidden; \
                      GRANT SELECT, INSERT, UPDATE, DELETE ON bad_hidden_store, bad_hidden_record, bad_hidden_session TO bad_hidden; \
                      ALTER TABLE bad_hidden_record ENABLE ROW LEVEL SECURITY";
        owner.batch_execute(grants).await.unwrap();
        let words = ["row-level security", "DISABLE ROW LEVEL SECURITY", "\"public\".bad_hidden_record", "BYPASSRLS"];
        let user = Place { url: place.url.replace("postgres@", "bad_hidden@"), ..place.clone() };
        let connected = async || user.builder().connect().await.unwrap();
        let said = first_use(connected().await).await;
        assert!(words.iter().all(|word| said.contains(word)) && !said.contains("GRANT"), "{said}");
        let looks = LeaseManager::builder(connected().await, TokioExecutor::new()).build().unwrap();
        for error in [looks.status("k").await.map(drop).unwrap_err(), looks.list("").await.map(drop).unwrap_err()] {
            let said = error.to_string();
            assert!(words.iter().all(|word| said.contains(word)) && !said.contains("GRANT"), "{said}");
        }
        let error = connected().await.migrate().await.unwrap_err();
        says(&error, &words);
        // Now the user does not even see that there is a store.
        owner.batch_execute("ALTER TABLE bad_hidden_store ENABLE ROW LEVEL SECURITY").await.unwrap();
        let error = user.builder().connect().await.unwrap().migrate().await.unwrap_err();
        says(&error, &words);
        assert!(!error.message.contains("GRANT"), "{error}");
        owner.batch_execute("REVOKE CREATE ON SCHEMA public FROM bad_hidden, PUBLIC").await.unwrap();
        let error = user.builder().connect().await.unwrap().migrate().await.unwrap_err();
        says(&error, &words);
        assert!(!error.message.contains("GRANT"), "{error}");
    });
}

/// A session without a row has ended. So whoever does not see the row of a holder would take over its lease.
#[test]
fn a_user_who_sees_only_its_own_sessions_is_granted_nothing_that_others_hold() {
    on_server("bad_tenant", |place| async move {
        let leases = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let role = "CREATE ROLE bad_tenant LOGIN; \
                    GRANT SELECT, INSERT, UPDATE, DELETE ON bad_tenant_store, bad_tenant_record, bad_tenant_session TO bad_tenant; \
                    ALTER TABLE bad_tenant_session ENABLE ROW LEVEL SECURITY; \
                    CREATE POLICY own ON bad_tenant_session USING (text LIKE '%\"tenant\"%')";
        place.client().await.batch_execute(role).await.unwrap();
        let user = Place { url: place.url.replace("postgres@", "bad_tenant@"), ..place.clone() };
        let store = user.builder().connect().await.unwrap();
        let tenant = LeaseManager::builder(store, TokioExecutor::new()).instance("tenant").build().unwrap();
        let said = tenant.lock("k").try_acquire().await.unwrap_err().to_string();
        assert!(said.contains("DISABLE ROW LEVEL SECURITY"), "{said}");
        assert!(guard.verify().await.unwrap());
    });
}

/// The same if the policies come when the user has taken leases already.
#[test]
fn a_user_from_whom_later_policies_hide_a_holder_is_not_granted_its_lease() {
    on_server("bad_later", |place| async move {
        let leases = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let owner = place.client().await;
        let role = "CREATE ROLE bad_later LOGIN; \
                    GRANT SELECT, INSERT, UPDATE, DELETE ON bad_later_store, bad_later_record, bad_later_session TO bad_later";
        owner.batch_execute(role).await.unwrap();
        let user = Place { url: place.url.replace("postgres@", "bad_later@"), ..place.clone() };
        let store = user.builder().connect().await.unwrap();
        let tenant = LeaseManager::builder(store, TokioExecutor::new()).instance("tenant").build().unwrap();
        let own = tenant.lock("own").acquire().await.unwrap();
        let policy = "ALTER TABLE bad_later_session ENABLE ROW LEVEL SECURITY; \
                      CREATE POLICY own ON bad_later_session USING (text LIKE '%\"tenant\"%')";
        owner.batch_execute(policy).await.unwrap();
        let said = tenant.lock("k").try_acquire().await.unwrap_err().to_string();
        assert!(said.contains("DISABLE ROW LEVEL SECURITY"), "{said}");
        assert!(guard.verify().await.unwrap() && own.verify().await.unwrap());
    });
}

/// The server hides a row from `SELECT ... FOR UPDATE`, and from DELETE, by the policies of UPDATE and DELETE.
#[test]
fn a_user_who_sees_all_sessions_but_may_not_change_them_all_is_refused() {
    on_server("bad_half", |place| async move {
        let leases = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let owner = place.client().await;
        let role = "CREATE ROLE bad_half LOGIN; \
                    GRANT SELECT, INSERT, UPDATE, DELETE ON bad_half_store, bad_half_record, bad_half_session TO bad_half; \
                    ALTER TABLE bad_half_session ENABLE ROW LEVEL SECURITY; \
                    CREATE POLICY sees ON bad_half_session FOR SELECT USING (true); \
                    CREATE POLICY makes ON bad_half_session FOR INSERT WITH CHECK (true)";
        owner.batch_execute(role).await.unwrap();
        let user = Place { url: place.url.replace("postgres@", "bad_half@"), ..place.clone() };
        let of_user = async || {
            LeaseManager::builder(user.builder().connect().await.unwrap(), TokioExecutor::new()).build().unwrap()
        };
        for (command, last) in [("UPDATE", "DELETE"), ("DELETE", "UPDATE")] {
            let policies = format!("CREATE POLICY changes ON bad_half_session FOR {command} USING (true)");
            owner.batch_execute(&policies).await.unwrap();
            let user = of_user().await;
            let said = user.lock("k").try_acquire().await.unwrap_err().to_string();
            assert!(said.contains("DISABLE ROW LEVEL SECURITY"), "without a policy for {last}: {said}");
            assert_eq!(user.status("k").await.unwrap().holders[0].token, guard.token(), "it may look");
            owner.batch_execute("DROP POLICY changes ON bad_half_session").await.unwrap();
        }
        for command in ["UPDATE", "DELETE"] {
            let policy = format!("CREATE POLICY may_{command} ON bad_half_session FOR {command} USING (true)");
            owner.batch_execute(&policy).await.unwrap();
        }
        let user = of_user().await;
        assert!(user.lock("k").try_acquire().await.unwrap().is_none(), "it is held");
        user.lock("another").acquire().await.unwrap().release().await.unwrap();
    });
}

/// Policies that let the user see and write every row are in the way of nothing.
#[test]
fn policies_that_hide_nothing_do_not_keep_the_row_from_being_made() {
    on_server("bad_shown", |place| async move {
        drop(place.store().await);
        let policies = ["store", "record", "session"].map(|kind| {
            format!(
                "GRANT SELECT, INSERT, UPDATE, DELETE ON bad_shown_{kind} TO bad_shown; DELETE FROM bad_shown_{kind}; \
                 ALTER TABLE bad_shown_{kind} ENABLE ROW LEVEL SECURITY; CREATE POLICY all_rows ON bad_shown_{kind} USING (true);"
            )
        });
        let role = "CREATE ROLE bad_shown LOGIN; GRANT CREATE ON SCHEMA public TO bad_shown;";
        place.client().await.batch_execute(&format!("{role}{}", policies.concat())).await.unwrap();
        let user = Place { url: place.url.replace("postgres@", "bad_shown@"), ..place.clone() };
        let leases = LeaseManager::builder(user.store().await, TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        assert_eq!(leases.list("").await.unwrap()[0].holders[0].token, guard.token());
        assert_eq!(leases.status("k").await.unwrap().holders[0].token, guard.token());
        guard.release().await.unwrap();
        leases.close().await;
    });
}

/// In its transactions the store limits each statement itself. Elsewhere the limit of the user holds.
#[test]
fn a_limit_for_statements_is_named_only_where_it_holds() {
    on_server("bad_hasty", |place| async move {
        drop(place.store().await);
        let mut user = place.client().await;
        let role = "CREATE ROLE bad_hasty LOGIN; ALTER ROLE bad_hasty SET statement_timeout = '500ms'; \
                    GRANT SELECT ON bad_hasty_store, bad_hasty_record, bad_hasty_session TO bad_hasty";
        user.batch_execute(role).await.unwrap();
        let hasty = Place { url: place.url.replace("postgres@", "bad_hasty@"), ..place.clone() };
        let store = hasty.builder().connect().await.unwrap();
        let looks = LeaseManager::builder(hasty.builder().connect().await.unwrap(), TokioExecutor::new());
        let looks = looks.lease(Duration::from_secs(24)).build().unwrap();
        // Its connection is open by now, so that on a slow machine, too, the server's limit passes before the manager's.
        looks.status("k").await.unwrap();
        let transaction = user.transaction().await.unwrap();
        transaction.batch_execute("LOCK TABLE bad_hasty_record").await.unwrap();
        let error = store.keys("").await.unwrap_err();
        says(&error, &["statement timeout", "raise the statement_timeout that the user"]);
        let error = looks.status("k").await.unwrap_err().to_string();
        assert!(error.contains("by store_timeout or by a longer lease"), "{error}");
    });
}

/// A user with the rights that the message names, and no more.
#[test]
fn the_rights_that_are_named_are_enough() {
    on_server("bad_granted", |place| async move {
        drop(place.store().await);
        let grants = "CREATE ROLE bad_granted LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON bad_granted_store, \
                      bad_granted_record, bad_granted_session TO bad_granted; \
                      ALTER ROLE bad_granted SET default_transaction_read_only = on; \
                      ALTER ROLE bad_granted SET default_transaction_isolation = 'serializable'";
        place.client().await.batch_execute(grants).await.unwrap();
        let granted = Place { url: place.url.replace("postgres@", "bad_granted@"), ..place.clone() };
        let leases = LeaseManager::builder(granted.store().await, TokioExecutor::new()).build().unwrap();
        drop(leases.lock("k").acquire().await.unwrap());
        leases.close().await;
    });
}

/// Some providers let nobody ask for the cluster's identifier: then the server's address names the store.
#[test]
fn a_user_who_may_not_ask_which_cluster_it_is_can_fence_all_the_same() {
    on_server("bad_cluster", |place| async move {
        for make in ["CREATE DATABASE bad_cluster", "CREATE ROLE bad_cluster LOGIN"] {
            place.client().await.batch_execute(make).await.unwrap();
        }
        let admin = Place { url: place.url_of("bad_cluster"), ..place.clone() };
        let revoke =
            "REVOKE EXECUTE ON FUNCTION pg_control_system FROM PUBLIC; GRANT CREATE ON SCHEMA public TO bad_cluster";
        admin.client().await.batch_execute(revoke).await.unwrap();
        let user = Place { url: admin.url.replace("postgres@", "bad_cluster@"), ..place };
        let stores = [user.store().await, user.store().await];
        assert_eq!(stores[0].reach(), stores[1].reach());
        let [store, _] = stores;
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut client = user.client().await;
        let mut transaction = client.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        transaction.commit().await.unwrap();
    });
}

/// A server that follows another one can be read, and no more.
#[test]
fn a_standby_is_told_as_such() {
    let Some(server) = Server::start() else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: server.url(), prefix: "leasehold".into() };
        drop(place.store().await);
        server.crash();
        server.make_standby();
        server.restart();
        let leases = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        let refused = leases.lock("k").timeout(Duration::from_secs(1)).acquire().await.unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("cannot be written to") && said.contains("target_session_attrs=read-write"), "{said}");
        let writable = format!("{}?target_session_attrs=read-write", place.url);
        let error = PostgresStore::connect(&writable).await.unwrap_err();
        says(&error, &["can be written to", "name the primary"]);
    });
}

#[test]
fn a_database_in_another_encoding_is_refused() {
    on_server("bad_encoding", |place| async move {
        let make = "CREATE DATABASE bad_encoding ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
        place.client().await.batch_execute(make).await.unwrap();
        let error = refused(PostgresStore::connect(&place.url_of("bad_encoding"))).await;
        says(&error, &["LATIN1", "UTF8"]);
    });
}

#[test]
fn a_store_whose_runtime_ended_says_so() {
    let Some(place) = Place::new("bad_runtime") else { return };
    let ended = Runtime::new().unwrap();
    let store = ended.block_on(place.store());
    ended.shutdown_timeout(Duration::from_secs(10));
    let living = Runtime::new().unwrap();
    let error = living.block_on(store.keys("")).unwrap_err();
    assert!(error.message.contains("has ended") && error.message.contains("connect another one"), "{error}");
    assert_eq!((error.applied, error.retry), (Applied::No, false));
    let leases = living.block_on(async { LeaseManager::builder(store, TokioExecutor::new()).build().unwrap() });
    // It does not wait for a store that never answers again.
    let asking = async { timeout(PATIENCE, leases.lock("k").timeout(10 * PATIENCE).acquire()).await };
    let asked = living.block_on(asking);
    let error = asked.expect("it is refused before its time limit").unwrap_err().to_string();
    assert!(error.contains("connect another one"), "{error}");
}

#[test]
fn a_server_without_a_connection_left_is_told_with_the_remedy() {
    on_server("bad_full", |place| async move {
        place.client().await.batch_execute("CREATE ROLE bad_full LOGIN CONNECTION LIMIT 0").await.unwrap();
        let error = refused(PostgresStore::connect(&place.url.replace("postgres@", "bad_full:hunter2@"))).await;
        says(&error, &["SQLSTATE 53300", "\"bad_full\"", "max_connections", "let fewer programs connect"]);
        assert!(error.retry, "{error}");
    });
}
