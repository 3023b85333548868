//! Somebody's fenced transaction keeps records locked for longer than others' leases.

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, StoreError,
    executor::{Executor, TokioExecutor},
    machine::{
        Acquire, Action, Batch, Beat, Key, Operation, Outcome, Reply, RequestId, SessionId, SessionStep,
        StoreErrorKind, Way,
    },
    store::{PostgresStore, Store},
};
use tokio::{
    runtime::Runtime,
    task::JoinSet,
    time::{sleep, timeout},
};

use tokio_postgres::error::SqlState;

use crate::{
    leases::with_longer_leases,
    proxy::Way as Direction,
    server::{Place, Server, on_server},
    until::until,
};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1_500);

fn manager(store: PostgresStore, lease: Duration) -> LeaseManager {
    LeaseManager::builder(store, TokioExecutor::new()).lease(lease).build().unwrap()
}

/// While the records stay locked, somebody who waits for the key of a valid guard is not granted it. A holder that did not beat would be
/// replaced within that time. Returns when the guard became invalid, if it did.
async fn stays_valid(place: &Place, guard: &LeaseGuard, key: &str, lease: Duration) -> Result<(), String> {
    let rival = manager(place.store().await, LONG);
    let mut taking = pin!(rival.lock(key).acquire());
    let since = Instant::now();
    while since.elapsed() < lease * 10 / 3 {
        let is_taken = futures::poll!(taking.as_mut()).is_ready();
        assert!(!is_taken || !guard.is_valid(), "taken from its holder after {:?}", since.elapsed());
        if !guard.is_valid() {
            return Err(format!("in doubt after {:?}", since.elapsed()));
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Asks again and again, as a request without a time limit is refused after a lease.
async fn want(leases: LeaseManager, key: String) {
    while leases.lock(&key).acquire().await.is_err() {}
}

fn wanting(wants: impl Future<Output = ()> + Send + 'static) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(wants);
    tasks
}

/// The waiter asks while the record is locked, or looks at it with each heartbeat.
#[test]
fn who_waits_for_a_key_inside_of_a_fence_keeps_what_it_holds() {
    on_server("locked_waits", |place| async move {
        for queues_first in [false, true] {
            with_longer_leases(SHORT, async |lease| keeps_what_it_holds(&place, queues_first, lease).await).await;
        }
    });
}

async fn keeps_what_it_holds(place: &Place, queues_first: bool, lease: Duration) -> Result<(), String> {
    let [fenced, own] = [format!("fenced {queues_first} {lease:?}"), format!("own {queues_first} {lease:?}")];
    let (other, leases) = (manager(place.store().await, LONG), manager(place.store().await, lease));
    let mut user = place.client().await;
    let (fences, guard) = (other.lock(&fenced).acquire().await.unwrap(), leases.lock(&own).acquire().await.unwrap());
    let mut transaction = user.transaction().await.unwrap();
    let mut waiting = JoinSet::new();
    if queues_first {
        waiting = wanting(want(leases.clone(), fenced.clone()));
        let queued = async || other.status(&fenced).await.is_ok_and(|status| !status.queue.is_empty());
        until("it waits", queued).await;
    }
    drop(fences.fence(&mut transaction).await.unwrap());
    if !queues_first {
        waiting = wanting(want(leases.clone(), fenced));
    }
    let kept = stays_valid(place, &guard, &own, lease).await;
    waiting.abort_all();
    kept
}

/// A look takes no lock: it neither waits for a fence nor keeps others waiting.
#[test]
fn what_is_held_is_listed_although_a_fence_keeps_it_locked() {
    on_server("locked_look", |place| async move {
        let (other, leases) = (manager(place.store().await, LONG), manager(place.store().await, LONG));
        let guards = ["fenced", "free"].map(|key| other.lock(key).acquire());
        let [fenced, free] = &try_join_all(guards).await.unwrap()[..] else { panic!("two were asked for") };
        let mut user = place.client().await;
        let mut transaction = user.transaction().await.unwrap();
        drop(fenced.fence(&mut transaction).await.unwrap());
        let listed = leases.list("").await.unwrap();
        let tokens = listed.iter().map(|status| status.holders[0].token).collect::<Vec<_>>();
        assert_eq!(tokens, [fenced.token(), free.token()]);
        let status = leases.status("fenced").await.unwrap();
        assert_eq!(status.holders[0].token, fenced.token());
    });
}

/// More contexts wait for locked records than the pool that they share has connections.
#[test]
fn contexts_that_wait_leave_a_heartbeat_of_the_same_pool_its_connection() {
    on_server("locked_pool", |place| async move {
        with_longer_leases(SHORT, async |lease| {
            let (other, shared) = (manager(place.store().await, LONG), place.store().await);
            let keys: Vec<_> = (0..6).map(|number| format!("fenced {number} {lease:?}")).collect();
            let (mut user, mut fenced) = (place.client().await, Vec::new());
            let mut transaction = user.transaction().await.unwrap();
            for key in &keys {
                let guard = other.lock(key).acquire().await.unwrap();
                drop(guard.fence(&mut transaction).await.unwrap());
                fenced.push(guard);
            }
            let (leases, own) = (manager(shared.clone(), lease), format!("own {lease:?}"));
            let guard = leases.lock(&own).acquire().await.unwrap();
            let mut waiting = JoinSet::new();
            for key in keys {
                waiting.spawn(want(manager(shared.clone(), LONG), key));
            }
            let kept = stays_valid(&place, &guard, &own, lease).await;
            waiting.abort_all();
            kept
        })
        .await;
    });
}

/// Two readers fence one transaction after another, and one of them is always open.
#[test]
fn fences_that_overlap_without_a_pause_keep_nobody_from_the_key() {
    on_server("locked_overlap", |place| async move {
        let (mut readers, mut users) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            readers.push(manager(place.store().await, LONG).lock("k").shared().acquire().await.unwrap());
            users.push(place.client().await);
        }
        let named = Place { url: format!("{}?application_name=locked_overlap", place.url), ..place.clone() };
        // A transaction waits for the record for a tenth of the store time-out. That has to be long enough on a busy machine.
        let late =
            LeaseManager::builder(named.store().await, TokioExecutor::new()).lease(LONG * 10).store_timeout(LONG);
        let late = late.build().unwrap();
        let mut asking = pin!(late.lock("k").shared().acquire());
        let [first, second] = &mut users[..] else { panic!("there are two") };
        let mut open = first.transaction().await.unwrap();
        drop(readers[0].fence(&mut open).await.unwrap());
        assert!(futures::poll!(asking.as_mut()).is_pending());
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'locked_overlap'";
        until("it waits for the record", async || {
            place.client().await.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) > 0
        })
        .await;
        let mut next = second.transaction().await.unwrap();
        let mut fencing = Box::pin(readers[1].fence(&mut next));
        let overlaps = timeout(Duration::from_millis(400), fencing.as_mut()).await;
        assert!(overlaps.is_err(), "a fence overtook who waits for the key");
        open.commit().await.unwrap();
        assert!(asking.await.unwrap().is_valid());
        drop(fencing.await.unwrap());
    });
}

/// The holder's connections are silent for longer than its lease. Its heartbeat arrives when another context is about to end its session.
#[test]
fn a_heartbeat_that_comes_just_before_its_session_is_ended_saves_it() {
    on_server("locked_late_beat", |place| async move {
        let (watch, mut user) = (place.client().await, place.client().await);
        let proxy = place.proxy();
        let slow = manager(place.behind(proxy.port).store().await, SHORT);
        let guard = slow.lock("k").acquire().await.unwrap();
        proxy.fall_silent();
        let late = user.transaction().await.unwrap();
        let beats =
            format!("UPDATE {}_session SET text = regexp_replace(text, 'beat\":\\d+', 'beat\":99')", place.prefix);
        assert_eq!(late.execute(&beats, &[]).await.unwrap(), 1, "there is one session");
        let named = Place { url: format!("{}?application_name=locked_late_beat", place.url), ..place.clone() };
        let rival = manager(named.store().await, LONG);
        let waiting = wanting(want(rival.clone(), "k".into()));
        let count = async |state: &str| {
            let sql = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'locked_late_beat' AND {state}"
            );
            watch.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0)
        };
        until("the session is being ended", async || count("wait_event_type = 'Lock'").await > 0).await;
        late.commit().await.unwrap();
        until("the other context is done", async || count("state <> 'idle'").await == 0).await;
        let sql = format!("SELECT count(*) FROM {}_session WHERE text LIKE '%beat\":99%'", place.prefix);
        assert_eq!(watch.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0), 1, "the session is still there");
        assert_eq!(rival.status("k").await.unwrap().holders.len(), 1, "and holds the key");
        drop((waiting, guard));
    });
}

/// Runs one transaction of a session, about this key.
async fn ask(
    store: &PostgresStore,
    session: u128,
    step: SessionStep,
    key: &str,
    action: Action,
) -> Result<Reply, StoreError> {
    ask_within(Duration::from_secs(10), store, session, step, key, action).await
}

async fn ask_within(
    limit: Duration,
    store: &PostgresStore,
    session: u128,
    step: SessionStep,
    key: &str,
    action: Action,
) -> Result<Reply, StoreError> {
    let operations = vec![Operation { key: Key::new(key).unwrap(), action }];
    let batch = Batch { step, ..Batch::new(SessionId(session), operations) };
    store.transact(batch, TokioExecutor::new().now(), limit).await
}

/// A new session takes a key.
async fn open(store: &PostgresStore, session: u128, key: &str) {
    let beat = Beat { beat: 1, lease_ms: 60_000, ..Beat::default() };
    let step = SessionStep::Open { beat, instance: String::new() };
    let reply = ask(store, session, step, key, Action::Acquire(Acquire::new(RequestId(1), 1))).await.unwrap();
    assert!(matches!(reply.answers[0].outcome, Outcome::Granted(_)), "{reply:?}");
}

async fn steal(store: &PostgresStore, session: u128, key: &str) -> Reply {
    let theft = Acquire { way: Way::Steal, ..Acquire::new(RequestId(2), 2) };
    ask(store, session, SessionStep::Stay, key, Action::Acquire(theft)).await.expect("nobody is in its way for long")
}

async fn end(store: &PostgresStore, session: u128, key: &str, target: u128) -> Reply {
    let end = Action::End { target: SessionId(target), beat: 1 };
    ask(store, session, SessionStep::Stay, key, end).await.expect("nobody is in its way for long")
}

/// Each has locked its own row when it comes to write the other's.
#[test]
fn two_sessions_that_write_each_others_rows_do_not_wait_in_a_circle() {
    on_server("locked_circle", |place| async move {
        let (one, two) = (place.store().await, place.store().await);
        for pair in 0..40 {
            let (a, b) = (2 * pair + 1, 2 * pair + 2);
            let [first, second] = [a, b].map(|number| format!("k{number}"));
            futures::join!(open(&one, a, &first), open(&two, b, &second));
            let replies = futures::join!(steal(&one, a, &second), steal(&two, b, &first));
            for reply in [replies.0, replies.1] {
                assert!(matches!(reply.answers[0].outcome, Outcome::Granted(_)), "{reply:?}");
            }
            futures::join!(end(&one, a, &first, b), end(&two, b, &second, a));
        }
        let client = place.client().await;
        let left = format!("SELECT count(*) FROM {}_session", place.prefix);
        assert_eq!(client.query_one(&left, &[]).await.unwrap().get::<_, i64>(0), 0, "each ended the other");
    });
}

/// The session's row changes again within the time that a transaction takes.
#[test]
fn a_session_that_is_never_quiet_can_be_stolen_from() {
    on_server("locked_busy", |place| async move {
        let (store, client) = (place.store().await, place.client().await);
        open(&store, 1, "k0").await;
        open(&store, 2, "own").await;
        for number in 1..10 {
            let more = Acquire::new(RequestId(number), number);
            ask(&store, 1, SessionStep::Stay, &format!("k{number}"), Action::Acquire(more)).await.unwrap();
        }
        let beats = format!(
            "UPDATE {}_session SET text = regexp_replace(text, 'beat\":\\d+', 'beat\":' || nextval('locked_busy_beats')) \
             WHERE id = decode('00000000000000000000000000000001', 'hex')",
            place.prefix
        );
        client
            .batch_execute("SET synchronous_commit = off; CREATE SEQUENCE locked_busy_beats START 100")
            .await
            .unwrap();
        let beating = tokio::spawn(async move { while client.execute(&beats, &[]).await.unwrap() == 1 {} });
        let proxy = place.proxy();
        let store = place.behind(proxy.port).builder().connect().await.unwrap();
        proxy.delay(Direction::ToServer, Duration::from_millis(5));
        for number in 0..10 {
            let reply = steal(&store, 2, &format!("k{number}")).await;
            assert!(matches!(reply.answers[0].outcome, Outcome::Granted(_)), "{reply:?}");
        }
        assert!(!beating.is_finished(), "it was never quiet");
        beating.abort();
    });
}

/// A transaction waits for the lock of another program for a tenth of its time limit, and then says that the key is locked. Otherwise the
/// server would cancel its statement, and the error would not name the lock.
#[test]
fn a_transaction_says_that_its_key_is_locked_before_its_statement_is_cancelled() {
    on_server("locked_limit", |place| async move {
        let (store, user) = (place.store().await, place.client().await);
        open(&store, 1, "another").await;
        for number in 2..7 {
            let acquire = Action::Acquire(Acquire::new(RequestId(number), number));
            let reply = ask(&store, 1, SessionStep::Stay, "k", acquire).await.unwrap();
            let Outcome::Granted(granted) = &reply.answers[0].outcome else { panic!("{reply:?}") };
            let release = Action::Release { token: granted.block.first, request: RequestId(number) };
            ask(&store, 1, SessionStep::Stay, "k", release).await.unwrap();
        }
        user.batch_execute("BEGIN; SELECT FROM locked_limit_record FOR UPDATE").await.unwrap();
        // The first one is decided by what the store remembers, and the second one is not.
        for _ in 0..2 {
            let (limit, acquire) = (Duration::from_secs(3), Action::Acquire(Acquire::new(RequestId(9), 9)));
            let refused = ask_within(limit, &store, 1, SessionStep::Stay, "k", acquire).await.unwrap_err();
            assert_eq!(refused.kind, StoreErrorKind::Locked, "{refused}");
        }
    });
}

/// Another program keeps a record or a whole table locked for longer than all attempts of a request take together.
#[test]
fn requests_with_a_time_limit_outlast_a_lock_of_another_program() {
    const LIMIT: Duration = Duration::from_millis(300);
    on_server("locked_outlast", |place| async move {
        let open = async || {
            let builder = LeaseManager::builder(place.store().await, TokioExecutor::new());
            builder.lease(SHORT).store_timeout(LIMIT).build().unwrap()
        };
        open().await.lock("k").acquire().await.unwrap().release().await.unwrap();
        let user = place.client().await;
        for lock in ["SELECT text FROM locked_outlast_record FOR UPDATE", "LOCK TABLE locked_outlast_record"] {
            let mut waits = JoinSet::new();
            let managers = [open().await, open().await, open().await, open().await];
            user.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
            for leases in managers {
                waits.spawn(async move {
                    let guard = leases.lock("k").timeout(LONG).acquire().await?;
                    let _ = guard.release().await;
                    leases.close().await;
                    Ok::<_, AcquireError>(())
                });
            }
            let early = timeout(3 * SHORT, waits.join_next()).await;
            assert!(early.is_err(), "it was answered in spite of {lock}: {early:?}");
            user.batch_execute("COMMIT").await.unwrap();
            for answer in waits.join_all().await {
                assert!(answer.is_ok(), "{lock}: {answer:?}");
            }
        }
    });
}

/// A transaction takes a lock for each of its keys, and the table of locks is the whole server's.
#[test]
fn more_keys_at_once_than_the_server_has_locks_are_granted_and_given_back() {
    let few = "-c max_locks_per_transaction=10 -c max_connections=8 -c max_wal_senders=0 -c max_worker_processes=0";
    let Some(server) = Server::start_with(few) else { return };
    let place = Place { url: server.url(), prefix: "locked_few".into() };
    Runtime::new().unwrap().block_on(async {
        let locks = "SELECT count(pg_advisory_xact_lock(n)) FROM generate_series(1, 1024) n";
        let user = place.client().await;
        let refused = user.query_one(locks, &[]).await.unwrap_err();
        assert_eq!(refused.code().map(SqlState::code), Some("53200"), "{refused}");
        // The server gives the locks back after it has told of the error, and before it answers again.
        user.batch_execute("SELECT 1").await.unwrap();
        let leases = manager(place.store().await, LONG);
        let keys: Vec<_> = (0..2_000).map(|number| format!("user/{number}")).collect();
        let guards = try_join_all(keys.iter().map(|key| leases.lock(key).acquire())).await.unwrap();
        drop(guards);
        let next = manager(place.store().await, LONG);
        let granted = try_join_all(keys.iter().map(|key| next.lock(key).timeout(LONG).acquire())).await.unwrap();
        assert!(granted.iter().all(LeaseGuard::is_valid));
    });
}
