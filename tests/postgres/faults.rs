//! Commits whose answer is lost or late, and what the other faults have in common.

mod beacons;
mod connections;
mod runtimes;
mod servers;

use std::time::Duration;

use leasehold::{
    LeaseManager, StoreError,
    executor::{Executor, TokioExecutor},
    machine::{
        Acquire, Action, Applied, Batch, Beat, Key, Operation, Outcome, Reply, RequestId, SessionId, SessionStep,
        StoreErrorKind,
    },
    store::{PostgresStore, Store},
};
use tokio::{runtime::Runtime, time::timeout};

use crate::{
    proxy::{Commit, Proxy},
    server::{PATIENCE, Place, Server, on_server},
    until::until,
};

/// For requests of which a test waits until their time limit has passed.
const LIMIT: Duration = Duration::from_secs(2);

fn manager(store: PostgresStore) -> LeaseManager {
    LeaseManager::builder(store, TokioExecutor::new()).build().unwrap()
}

/// Opens a session and asks for a key, by one transaction.
async fn ask(store: &PostgresStore, session: u128) -> Result<Reply, StoreError> {
    ask_for("k", store, session).await
}

async fn ask_for(key: &str, store: &PostgresStore, session: u128) -> Result<Reply, StoreError> {
    ask_within(PATIENCE, key, store, session).await
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

/// Runs a test on a server of its own, which the test may crash.
fn on_own_server(test: impl AsyncFnOnce(&Server, &Place)) {
    let Some(server) = Server::start() else { return };
    let place = Place { url: server.url(), prefix: "leasehold".into() };
    Runtime::new().unwrap().block_on(test(&server, &place));
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
        let mut limit = LIMIT;
        let mut error = ask_within(limit, "k", &stopped, 1).await.unwrap_err();
        // On a busy machine, the time limit may end before the commit is sent.
        while proxy.hits() == 0 && limit < PATIENCE {
            assert_eq!(error.applied, Applied::No, "{error}");
            limit *= 4;
            error = ask_within(limit, "k", &stopped, 1).await.unwrap_err();
        }
        assert_eq!(error.applied, Applied::Unknown, "{error}");
        until("the key is granted to another", async || {
            ask_within(LIMIT, "k", &near, 2).await.is_ok_and(|reply| is_granted(&reply))
        })
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
        assert!(error.message.contains("choose a shorter one"), "{error}");
        assert_eq!((error.applied, error.retry), (Applied::No, false), "{error}");
    });
}

/// Since version 17, a server can limit how long the transactions of a user or a database take. A transaction that waits for others may
/// exceed that limit. Here a trigger raises the error of such a server.
#[test]
fn a_transaction_that_exceeds_the_limit_of_the_server_may_be_tried_again() {
    on_server("faults_limit", |place| async move {
        let store = place.store().await;
        let trigger = "CREATE FUNCTION faults_limit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                           RAISE EXCEPTION 'terminating connection due to transaction timeout' USING ERRCODE = '25P04';
                       END $$;
                       CREATE TRIGGER faults_limit BEFORE INSERT ON faults_limit_session
                       FOR EACH ROW EXECUTE FUNCTION faults_limit()";
        place.client().await.batch_execute(trigger).await.unwrap();
        let error = ask(&store, 1).await.unwrap_err();
        assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Busy, Applied::No, true), "{error}");
        assert!(error.message.contains("raise the transaction_timeout"), "{error}");
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
