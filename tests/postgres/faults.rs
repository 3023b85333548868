//! Connections that break, servers that die, futures that are dropped.

use std::time::Duration;

use leasehold::{
    LeaseManager, LostReason, StoreError,
    executor::{Executor, TokioExecutor},
    machine::{
        Acquire, Action, Applied, Batch, Beat, Body, Key, Message, Operation, Outcome, Reply, RequestId, SessionId,
        SessionStep, StoreErrorKind, StoreId,
    },
    signal::Notice,
    store::{PostgresStore, Store},
};
use tokio::{runtime::Runtime, time::timeout};

use crate::{
    outage,
    proxy::{Commit, Proxy, Way},
    server::{PATIENCE, Place, Server, connect, on_server, until},
    signals::awake,
    threads,
};

const LIMIT: Duration = Duration::from_secs(2);

fn manager(store: PostgresStore) -> LeaseManager {
    LeaseManager::builder(store, TokioExecutor::new()).build().unwrap()
}

/// Opens a session and asks for a key, by one transaction.
async fn ask(store: &PostgresStore, session: u128) -> Result<Reply, StoreError> {
    ask_for("k", store, session).await
}

async fn ask_for(key: &str, store: &PostgresStore, session: u128) -> Result<Reply, StoreError> {
    ask_within(LIMIT, key, store, session).await
}

async fn ask_within(limit: Duration, key: &str, store: &PostgresStore, session: u128) -> Result<Reply, StoreError> {
    let acquire = Operation { key: Key::new(key).unwrap(), action: Action::Acquire(Acquire::new(RequestId(1), 1)) };
    let mut batch = Batch::new(SessionId(session), vec![acquire]);
    let beat = Beat { beat: 1, lease_ms: 60_000, ..Beat::default() };
    batch.step = SessionStep::Open { beat, instance: String::new() };
    store.transact(batch, TokioExecutor::new().now(), limit).await
}

fn is_granted(reply: &Reply) -> bool {
    matches!(reply.answers[0].outcome, Outcome::Granted(_))
}

/// A place whose store speaks through a proxy, and that proxy.
fn behind_proxy(place: &Place) -> (Place, Proxy) {
    let proxy = place.proxy();
    (place.behind(proxy.port), proxy)
}

/// Whoever loses the answer to a commit cannot know, and says so; asked again, the same request learns the outcome.
#[test]
fn a_lost_commit_is_unknown_and_asking_again_tells() {
    on_server("faults_commit", |place| async move {
        drop(place.store().await);
        let (far, proxy) = behind_proxy(&place);
        for (session, commit) in [(1, Commit::LosesAnswer), (2, Commit::IsLost)] {
            let store = far.builder().connect().await.unwrap();
            proxy.let_next_commit(commit);
            let error = ask(&store, session).await.unwrap_err();
            assert_eq!((error.applied, error.retry), (Applied::Unknown, true), "{commit:?}: {error}");
            let rows = "SELECT count(*) FROM faults_commit_record";
            let written: i64 = place.client().await.query_one(rows, &[]).await.unwrap().get(0);
            assert_eq!(written == 1, commit == Commit::LosesAnswer, "{commit:?}");
            assert!(is_granted(&ask(&store, session).await.unwrap()), "{commit:?}");
            place.client().await.batch_execute("DELETE FROM faults_commit_record").await.unwrap();
        }
        assert_eq!(proxy.hits(), 2);
    });
}

#[test]
fn a_manager_gets_over_lost_commits() {
    on_server("faults_manager", |place| async move {
        drop(place.store().await);
        let (far, proxy) = behind_proxy(&place);
        let leases = manager(far.builder().connect().await.unwrap());
        let mut last = None;
        for (round, commit) in
            [Commit::LosesAnswer, Commit::IsLost, Commit::LosesAnswer, Commit::IsLost].into_iter().enumerate()
        {
            proxy.let_next_commit(commit);
            let guard = timeout(PATIENCE, leases.lock("k").acquire()).await.unwrap().unwrap();
            assert!(last.replace(guard.token()) < Some(guard.token()), "tokens grow");
            assert_eq!(proxy.hits(), 2 * round + 1);
            proxy.let_next_commit(commit);
            guard.release().await.unwrap();
            until("the release meets its fate", async || proxy.hits() == 2 * round + 2).await;
            // Nothing of it is left over.
            let other = manager(place.store().await);
            let token = timeout(PATIENCE, other.lock("k").acquire()).await.unwrap().unwrap().token();
            assert!(last.replace(token) < Some(token), "tokens grow");
            other.close().await;
        }
    });
}

/// A context that stops in the middle of a transaction holds up others for the time limit, and its transaction is never applied.
#[test]
fn a_context_that_stops_inside_a_transaction_blocks_nobody_for_long() {
    on_server("faults_stall", |place| async move {
        let near = place.store().await;
        let (far, proxy) = behind_proxy(&place);
        let stopped = far.builder().connect().await.unwrap();
        proxy.let_next_commit(Commit::Stalls);
        let error = ask(&stopped, 1).await.unwrap_err();
        assert_eq!(error.applied, Applied::Unknown, "{error}");
        until("the key is granted to another", async || ask(&near, 2).await.is_ok_and(|reply| is_granted(&reply)))
            .await;
        let rows = place.client().await.query("SELECT text FROM faults_stall_session", &[]).await.unwrap();
        assert_eq!(rows.len(), 1, "what was given up was applied later");
        assert!(!is_granted(&ask(&stopped, 1).await.unwrap()));
    });
}

/// The time limit ends while the server commits. The commit succeeds later.
#[test]
fn a_commit_that_outlasts_the_time_limit_is_unknown_and_may_take_effect() {
    const HELD: i64 = 5;
    on_server("faults_slow_commit", |place| async move {
        let (store, user) = (place.store().await, place.client().await);
        let waits_at_its_commit = format!(
            "CREATE FUNCTION faults_slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock({HELD}); RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON faults_slow_commit_record DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION faults_slow_commit(); SELECT pg_advisory_lock({HELD})"
        );
        // The connection is made, and its statements are prepared. A busy server takes its time for what is left.
        ask_for("another", &store, 2).await.unwrap();
        user.batch_execute(&waits_at_its_commit).await.unwrap();
        let error = ask_within(Duration::from_secs(3), "k", &store, 1).await.unwrap_err();
        assert_eq!((error.applied, error.retry), (Applied::Unknown, true), "{error}");
        user.batch_execute(&format!("SELECT pg_advisory_unlock({HELD})")).await.unwrap();
        let rows = "SELECT FROM faults_slow_commit_record";
        until("it is committed", async || user.query(rows, &[]).await.unwrap().len() == 2).await;
    });
}

/// Nobody asked anything of it meanwhile: the next call finds another one.
#[test]
fn an_idle_connection_that_the_server_ended_is_replaced_unnoticed() {
    on_server("faults_idle", |place| async move {
        let named = Place { url: format!("{}?application_name=faults_idle", place.url), ..place.clone() };
        let (store, user) = (named.store().await, place.client().await);
        let count = async |what: &str| {
            let sql = format!("SELECT count({what}) FROM pg_stat_activity WHERE application_name = 'faults_idle'");
            user.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0)
        };
        for session in 0..20 {
            ask(&store, session).await.unwrap();
            assert_eq!(count("pg_terminate_backend(pid)").await, 1);
            // Until the connection is gone, the server may still answer.
            until("the connection is gone", async || count("*").await == 0).await;
        }
    });
}

/// However far it got: the connection is in no transaction, and the next call works.
#[test]
fn a_call_that_is_dropped_leaves_no_transaction_open() {
    on_server("faults_dropped", |place| async move {
        let store = place.builder().prefix("faults_dropped").connect().await.unwrap();
        store.migrate().await.unwrap();
        for session in 0..40 {
            let wait = Duration::from_micros(u64::try_from(session).unwrap() * 100);
            drop(timeout(wait, ask(&store, session)).await);
        }
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE '%faults_dropped%'";
        until("no transaction is open", async || {
            place.client().await.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
        let granted = store.keys("").await.unwrap();
        assert_eq!(granted, [Key::new("k").unwrap()]);
        ask(&store, 99).await.unwrap();
    });
}

/// All connections of the stores end again and again, and two contexts take turns all the same: a count that is read and
/// written in two steps under the lease loses nothing.
#[test]
fn contexts_take_turns_while_their_connections_are_ended() {
    on_server("faults_turns", |place| async move {
        let user = place.client().await;
        user.batch_execute(
            "CREATE TABLE faults_turns_count AS SELECT 0 AS n; CREATE ROLE faults_turns LOGIN SUPERUSER",
        )
        .await
        .unwrap();
        // Only these connections are of that user.
        let own = Place { url: place.url.replace("postgres@", "faults_turns@"), ..place.clone() };
        let contexts = [manager(own.store().await), manager(own.store().await)];
        let ending = tokio::spawn(async move {
            let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'faults_turns'";
            let mut ended = 0;
            loop {
                tokio::time::sleep(Duration::from_millis(35)).await;
                ended += user.query_one(end, &[]).await.unwrap().get::<_, i64>(0);
                if ended > 60 {
                    return ended;
                }
            }
        });
        let turns = contexts.into_iter().map(|leases| take_turns(leases, &place, &ending));
        let taken: i32 = futures::future::join_all(turns).await.into_iter().sum();
        let counted: i32 =
            place.client().await.query_one("SELECT n FROM faults_turns_count", &[]).await.unwrap().get(0);
        assert_eq!(counted, taken);
        assert!(taken > 2 && ending.await.unwrap() > 60);
    });
}

async fn take_turns(leases: LeaseManager, place: &Place, ending: &tokio::task::JoinHandle<i64>) -> i32 {
    let user = place.client().await;
    let mut taken = 0;
    while !ending.is_finished() {
        let guard = match timeout(PATIENCE, leases.lock("k").acquire()).await.expect("it is granted in the end") {
            Ok(guard) => guard,
            Err(leasehold::AcquireError::Store(error)) if error.retry => continue,
            Err(error) => panic!("{error}"),
        };
        let n: i32 = user.query_one("SELECT n FROM faults_turns_count", &[]).await.unwrap().get(0);
        user.execute("UPDATE faults_turns_count SET n = $1", &[&(n + 1)]).await.unwrap();
        taken += 1;
        drop(guard.release().await);
    }
    leases.close().await;
    taken
}

/// The server dies while one context holds and another waits. Both go on when it is back.
#[test]
fn a_holder_and_a_waiter_outlive_a_crash_of_the_server() {
    let Some(server) = Server::start() else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: server.url(), prefix: "leasehold".into() };
        let (one, other) = (manager(place.store().await), manager(place.store().await));
        let guard = one.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(async move { (other.lock("k").acquire().await, other) });
        let queued = async || one.status("k").await.is_ok_and(|status| !status.queue.is_empty());
        until("the other one waits", queued).await;
        server.crash();
        assert!(one.status("k").await.is_err(), "nobody answers");
        server.restart();
        until("the server answers", async || one.status("k").await.is_ok()).await;
        assert!(guard.is_valid() && !waiting.is_finished());
        let token = guard.token();
        guard.release().await.unwrap();
        let (granted, _other) = timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(granted.unwrap().token() > token);
    });
}

#[test]
fn who_said_for_how_long_waits_for_the_server() {
    let Some(server) = Server::start() else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: server.url(), prefix: "leasehold".into() };
        let serve = |up| if up { server.restart() } else { server.crash() };
        outage::who_said_for_how_long_waits_for_the_server(manager(place.store().await), serve).await;
    });
}

#[test]
fn calls_from_a_plain_thread() {
    let Some(server) = Server::start() else { return };
    let (runtime, place) = (Runtime::new().unwrap(), Place { url: server.url(), prefix: "threads".into() });
    let made = async || manager(place.store().await);
    let managers = runtime.block_on(async { [made().await, made().await, made().await] });
    threads::calls_from_a_plain_thread(runtime, managers);
}

#[test]
fn a_runtime_that_lacks_something_is_refused() {
    let url = "postgres://u@127.0.0.1:1/d";
    threads::a_runtime_that_lacks_something(url, async || PostgresStore::connect(url).await.map(drop));
}

#[test]
fn a_manager_is_closed_in_a_runtime_without_timers() {
    let Some(server) = Server::start() else { return };
    let (runtime, place) = (Runtime::new().unwrap(), Place { url: server.url(), prefix: "bare".into() });
    let made = async || LeaseManager::builder(place.store().await, TokioExecutor::new());
    let managers = runtime.block_on(async { [made().await, made().await] });
    threads::closing_in_a_runtime_without_timers(runtime, managers);
}

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
    let Some(server) = Server::start() else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: server.url(), prefix: "leasehold".into() };
        let ((_one, one_told), (other, other_told)) = (awake(&place, 81).await, awake(&place, 82).await);
        other.watch(7, SessionId(81));
        server.crash();
        until("both are told", async || {
            one_told.has(&Notice::BeaconLost(SessionId(81))) && other_told.has(&Notice::BeaconLost(SessionId(82)))
        })
        .await;
        server.restart();
        let listens = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'";
        let user = connect(&place.url).await;
        // Each of the two sessions holds the lock that says it listens, and the one that watches holds its `waits` lock, too.
        until("both listen again", async || user.query_one(listens, &[]).await.unwrap().get::<_, i64>(0) == 3).await;
        let (late, late_told) = awake(&place, 83).await;
        late.watch(8, SessionId(81));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!other_told.has(&Notice::BeaconGone { watch: 7 }) && !late_told.has(&Notice::BeaconGone { watch: 8 }));
    });
}

/// The role lets no connection stand idle, and the one that carries a beacon is idle most of the time.
#[test]
fn a_limit_for_idle_connections_ends_no_beacon() {
    on_server("faults_quiet", |place| async move {
        let role =
            "CREATE ROLE faults_quiet LOGIN SUPERUSER; ALTER ROLE faults_quiet SET idle_session_timeout = '100ms'";
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
    let Some(server) = Server::start() else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: server.url(), prefix: "leasehold".into() };
        let user = connect(&place.url).await;
        let stands = "SELECT clock_timestamp() > pg_postmaster_start_time() + interval '11 s'";
        until("the start of the server is long ago", async || user.query_one(stands, &[]).await.unwrap().get(0)).await;
        let (_one, one_told) = awake(&place, 94).await;
        let process: i32 = user.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let kill = std::process::Command::new("kill").args(["-9", &process.to_string()]).status();
        assert!(kill.unwrap().success());
        until("it is told", async || one_told.has(&Notice::BeaconLost(SessionId(94)))).await;
        until("the server answers", async || PostgresStore::connect(&place.url).await.is_ok()).await;
        let (late, late_told) = awake(&place, 95).await;
        late.watch(9, SessionId(94));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!late_told.has(&Notice::BeaconGone { watch: 9 }));
    });
}

/// What a trigger says at the commit stands for servers and poolers that say so themselves.
#[test]
fn a_commit_whose_completion_the_server_does_not_know_is_unknown() {
    on_server("faults_completion", |place| async move {
        let store = place.store().await;
        let trigger = "CREATE FUNCTION faults_completion() RETURNS trigger LANGUAGE plpgsql AS \
                       $$ BEGIN RAISE EXCEPTION 'who knows' USING ERRCODE = '40003'; END $$; \
                       CREATE CONSTRAINT TRIGGER late AFTER INSERT ON faults_completion_record \
                       DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faults_completion()";
        place.client().await.batch_execute(trigger).await.unwrap();
        let error = ask(&store, 1).await.unwrap_err();
        assert_eq!((error.applied, error.retry), (Applied::Unknown, true), "{error}");
    });
}

/// The name of a lock has no limit of its own.
#[test]
fn a_name_that_the_server_cannot_index_is_refused_for_good() {
    on_server("faults_long", |place| async move {
        let letters = (0..9_000_u32).map(|n| 0x4e00 + (n.wrapping_mul(2_654_435_761) >> 8) % 20_000);
        let name: String = "\0lock:".chars().chain(letters.filter_map(char::from_u32)).collect();
        let error = ask_for(&name, &place.store().await, 1).await.unwrap_err();
        assert!(error.message.contains("choose a shorter name"), "{error}");
        assert_eq!((error.applied, error.retry), (Applied::No, false), "{error}");
    });
}

/// As after a failover to a standby that lacks the latest writes. The session is old enough to be there.
#[test]
fn a_holder_whose_grant_alone_is_lost_is_told_when_its_connections_are_new() {
    on_server("faults_lost_grant", |place| async move {
        let named = Place { url: format!("{}?application_name=faults_lost_grant", place.url), ..place.clone() };
        let leases = LeaseManager::builder(named.store().await, TokioExecutor::new()).lease(Duration::from_secs(3_600));
        let leases = leases.build().unwrap();
        let kept = leases.lock("kept").acquire().await.unwrap();
        let lost = leases.lock("lost").acquire().await.unwrap();
        let user = place.client().await;
        let deleted = user.execute("DELETE FROM faults_lost_grant_record WHERE key = 'lost'", &[]).await.unwrap();
        assert!(deleted == 1 && lost.is_valid(), "nothing has told it");
        let listens = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) \
                       WHERE locktype = 'advisory' AND application_name = 'faults_lost_grant'";
        until("it listens", async || user.query_one(listens, &[]).await.unwrap().get::<_, i64>(0) > 0).await;
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'faults_lost_grant'";
        user.query_one(end, &[]).await.unwrap();
        assert_eq!(timeout(PATIENCE, lost.lost()).await.unwrap(), LostReason::StoreCleared);
        assert!(kept.is_valid() && kept.verify().await.unwrap());
    });
}

/// A store over the primary and another server, which is started anew.
async fn beside(primary: &Server, other: &Server) -> PostgresStore {
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres", primary.port, other.port);
    Place { url, prefix: "leasehold".into() }.store().await
}

/// Meanwhile the standby answers, and takes no writes.
#[test]
fn a_context_goes_on_by_the_primary_when_that_is_back() {
    let (Some(primary), Some(standby)) = (Server::start(), Server::start()) else { return };
    standby.crash();
    standby.make_standby();
    standby.restart();
    Runtime::new().unwrap().block_on(async {
        let store = beside(&primary, &standby).await;
        ask(&store, 1).await.unwrap();
        primary.crash();
        let error = ask(&store, 1).await.unwrap_err();
        assert!(error.message.contains("cannot be written to"), "{error}");
        primary.restart();
        assert!(is_granted(&ask(&store, 1).await.unwrap()));
    });
}

/// Of what happened after the standby lost the primary, it knows nothing.
#[test]
fn a_look_is_not_answered_by_a_standby() {
    let (Some(primary), Some(standby)) = (Server::start(), Server::start()) else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: primary.url(), prefix: "leasehold".into() };
        place.store().await.close().await;
        primary.crash();
        standby.crash();
        standby.copy(&primary);
        standby.make_standby();
        standby.restart();
        primary.restart();
        let holder = manager(place.store().await);
        let guard = holder.lock("k").acquire().await.unwrap();
        let onlooker = manager(beside(&primary, &standby).await);
        assert_eq!(onlooker.status("k").await.unwrap().holders.len(), 1);
        primary.crash();
        let told = onlooker.status("k").await;
        let listed = onlooker.list("").await;
        primary.restart();
        for told in [told.map(|_| ()), listed.map(|_| ())] {
            assert!(told.as_ref().is_err_and(|error| error.to_string().contains("cannot be written to")), "{told:?}");
        }
        assert_eq!(onlooker.status("k").await.unwrap().holders.len(), 1);
        assert_eq!(onlooker.list("").await.unwrap().len(), 1);
        assert!(guard.verify().await.unwrap(), "it was held all the time");
    });
}

/// An error that stays would cost the leases, and end whoever waits.
#[test]
fn a_second_host_that_refuses_the_user_does_not_say_that_the_first_one_is_gone_for_good() {
    let (Some(primary), Some(other)) = (Server::start(), Server::start()) else { return };
    other.crash();
    other.ask_for_encryption();
    other.restart();
    Runtime::new().unwrap().block_on(async {
        let store = beside(&primary, &other).await;
        primary.crash();
        let error = ask(&store, 1).await.unwrap_err();
        assert!(error.retry && error.message.contains("28000"), "{error}");
        primary.restart();
        assert!(is_granted(&ask(&store, 1).await.unwrap()));
    });
}

/// As behind a firewall that forgot them. Those that are opened anew reach the server.
#[test]
fn a_holder_outlives_connections_that_lead_nowhere() {
    on_server("faults_nowhere", |place| async move {
        let (far, proxy) = behind_proxy(&place);
        let (store, lease) = (far.store().await, Duration::from_secs(8));
        let leases = LeaseManager::builder(store.clone(), TokioExecutor::new()).lease(lease).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        // For a moment the store has much to do.
        proxy.delay(Way::ToServer, Duration::from_millis(100));
        let others = ["a", "b", "c", "d"].into_iter().zip(1..);
        futures::future::join_all(others.map(|(key, session)| ask_for(key, &store, session))).await;
        proxy.delay(Way::ToServer, Duration::ZERO);
        proxy.strand();
        for _ in 0..200 {
            tokio::time::sleep(lease / 100).await;
            assert!(guard.is_valid(), "the store was reached all the time");
        }
    });
}

/// Somebody may make room before the lease has run out.
#[test]
fn a_holder_outlives_a_disk_that_is_full_for_a_while() {
    on_server("faults_full", |place| async move {
        let store = place.store().await;
        let user = place.client().await;
        ask(&store, 1).await.unwrap();
        user.batch_execute(
            "CREATE FUNCTION faults_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
             END $$;
             CREATE TRIGGER faults_full BEFORE INSERT OR UPDATE ON faults_full_session FOR EACH ROW EXECUTE FUNCTION faults_full()",
        )
        .await
        .unwrap();
        let error = ask(&store, 2).await.unwrap_err();
        assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Quota, Applied::No, true), "{error}");
        user.batch_execute("DROP TRIGGER faults_full ON faults_full_session").await.unwrap();
        ask(&store, 2).await.unwrap();
    });
}

/// Some requests wait for the server, and the others for the connections that these have.
#[test]
fn a_server_that_stopped_answering_is_not_taken_for_a_fence() {
    on_server("faults_frozen", |place| async move {
        drop(place.store().await);
        let (far, proxy) = behind_proxy(&place);
        let store = far.builder().connect().await.unwrap();
        ask(&store, 1).await.unwrap();
        proxy.fall_silent();
        let keys = ["a", "b", "c", "d", "e"];
        let asked =
            futures::future::join_all(keys.into_iter().zip(2..).map(|(key, session)| ask_for(key, &store, session)));
        let said: Vec<_> = asked.await.into_iter().map(|asked| asked.unwrap_err().to_string()).collect();
        let starved: Vec<_> = said.iter().filter(|said| said.contains("became free")).collect();
        assert!(!starved.is_empty(), "{said:?}");
        let has_both = |said: &&String| said.contains("the server does not answer") && said.contains("fenced");
        assert!(starved.iter().all(has_both), "{said:?}");
    });
}
