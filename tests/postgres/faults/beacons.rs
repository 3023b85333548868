//! Beacons, when the connection that carries them ends.

use std::time::Duration;

use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    machine::{Body, Key, Message, SessionId, StoreId},
    signal::Notice,
    store::PostgresStore,
};

use super::on_own_server;
use tokio::runtime::Runtime;

use crate::{
    server::{Place, Server, connect, on_server},
    signals::awake,
    until::until,
};

#[test]
fn a_context_whose_connection_the_server_ends_is_told_and_hears_again() {
    on_server("faults_beacon", |place| async move {
        let named = Place { url: format!("{}?application_name=faults_beacon_named", place.url), ..place.clone() };
        let ((one, one_told), (_two, two_told)) = (awake(&place, 71).await, awake(&named, 72).await);
        let (three, three_told) = awake(&place, 73).await;
        three.watch(5, SessionId(71));
        three.watch(6, SessionId(72));
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'faults_beacon_named'";
        assert!(place.client().await.query_one(end, &[]).await.unwrap().get::<_, i64>(0) > 0);
        until("it is told", async || two_told.has(&Notice::BeaconLost(SessionId(72)))).await;
        until("the other sees it gone", async || three_told.has(&Notice::BeaconGone { watch: 6 })).await;
        assert!(!three_told.has(&Notice::BeaconGone { watch: 5 }), "a beacon that stands is not gone");
        let body = Body::Gone { holder: SessionId(71) };
        let message = Message { store: StoreId::default(), key: Key::new("k").unwrap(), body };
        until("it hears again", async || {
            one.send(&message);
            two_told.has(&Notice::Message(message.clone()))
        })
        .await;
        assert!(!one_told.has(&Notice::Message(message)), "a message does not come back to its sender");
    });
}

/// After a restart of the server no beacon stands, and those who had one live.
#[test]
fn a_restart_of_the_server_shows_nobody_dead() {
    on_own_server(async |server, place| {
        let ((_one, one_told), (other, other_told)) = (awake(place, 81).await, awake(place, 82).await);
        other.watch(7, SessionId(81));
        server.crash();
        until("both are told", async || {
            one_told.has(&Notice::BeaconLost(SessionId(81))) && other_told.has(&Notice::BeaconLost(SessionId(82)))
        })
        .await;
        server.restart();
        let listens = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'";
        let user = connect(&place.url).await;
        // Each of the two sessions holds the lock that says it listens and that of its connection, and the one that watches its `waits`
        // lock.
        until("both listen again", async || user.query_one(listens, &[]).await.unwrap().get::<_, i64>(0) == 5).await;
        let (late, late_told) = awake(place, 83).await;
        late.watch(8, SessionId(81));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!other_told.has(&Notice::BeaconGone { watch: 7 }) && !late_told.has(&Notice::BeaconGone { watch: 8 }));
    });
}

/// The role lets no connection stand idle, and the one that carries a beacon is idle most of the time.
#[test]
fn a_limit_for_idle_connections_ends_no_beacon() {
    on_server("faults_quiet", |place| async move {
        let role = "CREATE ROLE faults_quiet LOGIN SUPERUSER; ALTER ROLE faults_quiet SET idle_session_timeout = '1s'";
        let user = place.client().await;
        user.batch_execute(role).await.unwrap();
        let limited = Place { url: place.url.replace("postgres@", "faults_quiet@"), ..place.clone() };
        let idle = connect(&limited.url).await;
        let (_signals, told) = awake(&limited, 91).await;
        until("the limit has ended another one", async || idle.is_closed()).await;
        let first = connect(&limited.url).await;
        until("it has ended one that began after the beacon", async || first.is_closed()).await;
        assert!(!told.has(&Notice::BeaconLost(SessionId(91))));
    });
}

/// One of the server's processes dies: it ends all others, and starts them again without a new start of its own.
#[test]
fn a_process_of_the_server_that_dies_shows_nobody_dead() {
    on_own_server(async |_, place| {
        let user = connect(&place.url).await;
        let stands = "SELECT clock_timestamp() > pg_postmaster_start_time() + interval '11 s'";
        until("the start of the server is long ago", async || user.query_one(stands, &[]).await.unwrap().get(0)).await;
        let (_one, one_told) = awake(place, 94).await;
        let process: i32 = user.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let kill = std::process::Command::new("kill").args(["-9", &process.to_string()]).status();
        assert!(kill.unwrap().success());
        until("it is told", async || one_told.has(&Notice::BeaconLost(SessionId(94)))).await;
        until("the server answers", async || PostgresStore::connect(&place.url).await.is_ok()).await;
        let (late, late_told) = awake(place, 95).await;
        late.watch(9, SessionId(94));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!late_told.has(&Notice::BeaconGone { watch: 9 }));
    });
}

/// A lease that outlasts all waits of these tests.
const LONG: Duration = Duration::from_secs(60);

/// A context with a beacon and a long lease.
async fn with_beacon(place: &Place) -> LeaseManager {
    let store = place.builder().with_beacons().connect().await.unwrap();
    store.migrate().await.unwrap();
    LeaseManager::builder(store, TokioExecutor::new()).lease(LONG).build().unwrap()
}

/// Whether the row of the only session says that a beacon stands.
async fn is_noted(place: &Place) -> bool {
    let rows = format!("SELECT text FROM {}_session", place.prefix);
    let rows = place.client().await.query(&rows, &[]).await.unwrap_or_default();
    rows.iter().any(|row| row.get::<_, &str>(0).contains("\"beacon\":1"))
}

/// A replica takes over, and the holder still reaches the old primary.
#[test]
fn a_beacon_that_another_server_had_shows_nobody_dead() {
    let (Some(primary), Some(replica)) = (Server::start(), Server::start()) else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: primary.url(), prefix: "leasehold".into() };
        let holder = with_beacon(&place).await;
        let guard = holder.lock("k").acquire().await.unwrap();
        until("its row says so", async || is_noted(&place).await).await;
        replica.crash();
        let frozen = primary.freeze();
        replica.copy(&primary);
        drop(frozen);
        replica.restart();
        let heir = with_beacon(&Place { url: replica.url(), ..place }).await;
        // A connection counts as old after 10 s.
        let early = tokio::time::timeout(Duration::from_secs(15), heir.lock("k").acquire()).await;
        assert!(early.is_err() && guard.is_valid(), "the holder still considers its lease valid: {early:?}");
    });
}

/// A replica takes over from a primary that hangs. The holder goes on over the replica, and its beacon stays where it was.
#[test]
fn a_beacon_that_hangs_with_its_server_shows_nobody_dead() {
    let (Some(primary), Some(replica)) = (Server::start(), Server::start()) else { return };
    Runtime::new().unwrap().block_on(async {
        let url = format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
            primary.port, replica.port
        );
        replica.crash();
        let holder = with_beacon(&Place { url, prefix: "leasehold".into() }).await;
        let guard = holder.lock("k").acquire().await.unwrap();
        let place = Place { url: primary.url(), prefix: "leasehold".into() };
        until("its row says so", async || is_noted(&place).await).await;
        let _frozen = primary.freeze();
        replica.copy(&primary);
        replica.restart();
        let heir = with_beacon(&Place { url: replica.url(), ..place }).await;
        let early = tokio::time::timeout(LONG / 3, heir.lock("k").acquire()).await;
        assert!(early.is_err() && guard.is_valid(), "the holder's heartbeats arrive: {early:?}");
    });
}

/// A holder that died before the waiter came is replaced long before its lease runs out.
#[test]
fn a_beacon_that_this_server_had_shows_a_death_to_whoever_comes_later() {
    on_server("faults_beacon_late", |place| async move {
        let there = place.clone();
        let dies = std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            runtime.block_on(async {
                let holder = with_beacon(&there).await;
                std::mem::forget(holder.lock("k").acquire().await.unwrap());
                until("its row says so", async || is_noted(&there).await).await;
            });
            // Its connections end with it, and nobody says goodbye.
            runtime.shutdown_background();
        });
        dies.join().unwrap();
        let heir = with_beacon(&place).await;
        let granted = tokio::time::timeout(LONG / 2, heir.lock("k").acquire()).await;
        assert!(granted.is_ok(), "its connection is older than 10 s");
    });
}

/// The same tables, for a user who may not read the statistics.
async fn limited(place: &Place) -> Place {
    let rights = "CREATE ROLE app LOGIN; REVOKE SELECT ON pg_stat_archiver FROM PUBLIC; \
                  GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_store, leasehold_record, leasehold_session TO app";
    place.client().await.batch_execute(rights).await.unwrap();
    Place { url: place.url.replace("postgres@", "app@"), ..place.clone() }
}

/// Then nobody can tell the runs of the server apart. A waiter that has seen the beacon still knows.
#[test]
fn a_user_who_may_not_read_the_statistics_has_a_beacon_nevertheless() {
    on_own_server(async |_, place| {
        drop(with_beacon(place).await);
        let limited = limited(place).await;
        let store = limited.builder().with_beacons().connect().await.unwrap();
        let heir = LeaseManager::builder(store, TokioExecutor::new()).lease(LONG).build().unwrap();
        let (waits, dies) = (std::sync::mpsc::channel::<()>(), limited.clone());
        let holder = std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            runtime.block_on(async {
                let store = dies.builder().with_beacons().connect().await.unwrap();
                let holder = LeaseManager::builder(store, TokioExecutor::new()).lease(LONG).build().unwrap();
                std::mem::forget(holder.lock("k").acquire().await.unwrap());
                until("its row says so", async || is_noted(&dies).await).await;
                waits.1.recv().unwrap();
            });
            runtime.shutdown_background();
        });
        until("its row says so", async || is_noted(place).await).await;
        let asking = tokio::spawn(async move { heir.lock("k").acquire().await.map(|guard| (guard, heir)) });
        // Each of the two has three locks. The waiter takes one more in the round that looks at the beacon. A transaction may have others for
        // a moment.
        let user = place.client().await;
        let mut seen = 0;
        until("the waiter has seen it", async || {
            let locks = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'";
            seen = if user.query(locks, &[]).await.unwrap().len() >= 7 { seen + 1 } else { 0 };
            seen > 20
        })
        .await;
        waits.0.send(()).unwrap();
        holder.join().unwrap();
        let granted = tokio::time::timeout(LONG / 4, asking).await;
        assert!(granted.is_ok_and(|told| told.unwrap().is_ok()), "the death is seen");
    });
}

/// The waiter looks twenty times a second, and each refusal would be a line in the server's log.
#[test]
fn a_user_who_may_not_read_the_statistics_is_not_refused_again_and_again() {
    on_own_server(async |_, place| {
        drop(with_beacon(place).await);
        let (limited, user) = (limited(place).await, place.client().await);
        let refused = async || {
            let counts = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
            user.query_one(counts, &[]).await.unwrap().get::<_, i64>(0)
        };
        let before = refused().await;
        let (late, told) = awake(&limited, 96).await;
        late.watch(9, SessionId(97));
        let is_old = "SELECT EXISTS (SELECT FROM pg_stat_activity \
                      WHERE usename = 'app' AND backend_start < now() - interval '14 s')";
        until("it has looked for 4 s", async || user.query_one(is_old, &[]).await.unwrap().get(0)).await;
        let refused = refused().await - before;
        assert!((1..=5).contains(&refused), "{refused} times");
        assert!(!told.has(&Notice::BeaconGone { watch: 9 }), "nobody knows where that beacon stood");
    });
}

/// Where the rows say that beacons stand, in their order.
async fn runs(place: &Place) -> Vec<String> {
    let rows =
        format!("SELECT DISTINCT beacon_on FROM {}_session WHERE beacon_on <> '' ORDER BY beacon_on", place.prefix);
    place.client().await.query(&rows, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// After that the server has none of its earlier beacons, although it did not restart.
#[test]
fn a_process_of_the_server_that_dies_ends_a_run() {
    on_own_server(async |_, place| {
        let before = with_beacon(place).await;
        std::mem::forget(before.lock("k").acquire().await.unwrap());
        until("its row says so", async || is_noted(place).await).await;
        let run = runs(place).await;
        assert_eq!(run.len(), 1, "{run:?}");
        let (user, dies) = (place.client().await, place.client().await);
        let process: i32 = dies.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let kill = std::process::Command::new("kill").args(["-9", &process.to_string()]).status();
        assert!(kill.unwrap().success());
        until("it ends all connections", async || user.is_closed()).await;
        until("the server answers", async || PostgresStore::connect(&place.url).await.is_ok()).await;
        let after = with_beacon(place).await;
        std::mem::forget(after.lock("another").acquire().await.unwrap());
        until("another run is noted", async || runs(place).await.iter().any(|noted| *noted != run[0])).await;
    });
}
