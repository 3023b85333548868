//! Beacons, when the connection that carries them ends.

use std::time::Duration;

use leasehold::{
    machine::{Body, Key, Message, SessionId, StoreId},
    signal::Notice,
    store::PostgresStore,
};

use super::on_own_server;
use crate::{
    server::{Place, connect, on_server},
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
