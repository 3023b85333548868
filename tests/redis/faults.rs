//! Answers that are lost, servers that die: what is reported, and what stands afterwards.

use std::{
    pin::pin,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    FenceError, LeaseGuard, LostReason,
    machine::{Applied, Outcome, StoreErrorKind},
    store::{RedisScript, RedisStore, Store},
};
use redis::{RedisResult, Value};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    BUSY, LONG_LEASE, SHORT_LEASE, client_of, context,
    inputs::{ask, look, now},
    open, outage,
    proxy::{Commit, Proxy},
    proxy_before,
    server::Server,
    shared, still, threads,
};

/// Much shorter than a server is waited for.
const LIMIT: Duration = Duration::from_millis(200);

pub(crate) async fn through_a_proxy(server: &Server, prefix: &str) -> (Proxy, RedisStore) {
    let proxy = proxy_before(server.port());
    let store = open(&client_of(&proxy), prefix).await;
    // The server knows the script, and this process the rows.
    store.transact(ask(1), now(), BUSY).await.unwrap();
    (proxy, store)
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_has_an_unknown_outcome_and_is_sent_once() {
    let Some(server) = shared() else { return };
    let (proxy, store) = through_a_proxy(server, "lost answers").await;
    let rows = || server.ask::<i64>(&["HLEN", "{lost answers}:rows"]);
    let before = rows();
    proxy.let_next_commit(Commit::LosesAnswer);
    let error = store.transact(ask(2), now(), BUSY).await.expect_err("its answer was lost");
    assert_eq!((error.applied, error.retry, proxy.hits()), (Applied::Unknown, true, 1), "{error}");
    assert_eq!(rows(), before + 1, "the session was written");
    proxy.let_next_commit(Commit::IsLost);
    let error = store.transact(ask(3), now(), BUSY).await.expect_err("it never arrived");
    assert_eq!((error.applied, error.retry, proxy.hits()), (Applied::Unknown, true, 2), "{error}");
    assert_eq!(rows(), before + 1, "nobody sent it again");
    store.transact(ask(3), now(), BUSY).await.expect("the connection is opened anew");
}

#[tokio::test]
async fn a_look_whose_answer_is_lost_wrote_nothing() {
    let Some(server) = shared() else { return };
    let (proxy, store) = through_a_proxy(server, "lost looks").await;
    for plan in [Commit::LosesAnswer, Commit::IsLost] {
        proxy.let_next_commit(plan);
        let error = store.transact(look(2), now(), BUSY).await.expect_err("the connection broke");
        assert_eq!((error.applied, error.retry), (Applied::No, true), "{error}");
    }
    assert_eq!(proxy.hits(), 2);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_in_time() {
    let Some(server) = shared() else { return };
    let (proxy, store) = through_a_proxy(server, "silent").await;
    for (batch, applied) in [(look(2), Applied::No), (ask(2), Applied::Unknown)] {
        proxy.let_next_commit(Commit::IsKept);
        let mut limit = LIMIT;
        let error = loop {
            let began = Instant::now();
            let error = store.transact(batch.clone(), now(), limit).await.expect_err("nothing is answered");
            assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
            assert!(error.message.contains(&format!("within {} ms", limit.as_millis())), "{error}");
            // On a busy machine, the time limit may end before the script is sent.
            if error.applied == applied || limit > BUSY {
                break error;
            }
            limit *= 4;
        };
        assert_eq!((error.applied, error.retry), (applied, true), "{error}");
        proxy.let_next_commit(Commit::Passes);
    }
    store.transact(look(2), now(), BUSY).await.expect("the connection is opened anew");
}

#[tokio::test]
async fn a_transaction_that_is_dropped_leaves_the_connection_to_the_next_one() {
    let Some(server) = shared() else { return };
    let (proxy, store) = through_a_proxy(server, "dropped").await;
    proxy.let_next_commit(Commit::IsKept);
    let dropped = timeout(LIMIT, store.transact(ask(2), now(), BUSY)).await;
    assert!(dropped.is_err(), "{dropped:?}");
    proxy.let_next_commit(Commit::Passes);
    let reply = store.transact(look(3), now(), BUSY).await.unwrap();
    assert!(matches!(reply.answers[0].outcome, Outcome::Status { .. }), "it is answered what it asked: {reply:?}");
}

#[tokio::test]
async fn a_script_whose_answer_is_lost_has_an_unknown_outcome_and_runs_once() {
    let Some(server) = shared() else { return };
    let proxy = proxy_before(server.port());
    let (store, leases) = context(&client_of(&proxy), "once").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let count = || store.script("return redis.call('INCR', KEYS[1])").key("once: n");
    guard.fence(count()).await.unwrap().unwrap();
    for (plan, counted) in [(Commit::LosesAnswer, 2), (Commit::IsLost, 2)] {
        proxy.let_next_commit(plan);
        let error = match guard.fence(count()).await {
            Err(FenceError::Store(error)) => error,
            other => panic!("{plan:?}: {other:?}"),
        };
        assert_eq!(error.applied, Applied::Unknown, "{error}");
        assert_eq!(server.ask::<i64>(&["GET", "once: n"]), counted, "{plan:?}");
    }
    guard.fence(count()).await.unwrap().unwrap();
    assert_eq!(server.ask::<i64>(&["GET", "once: n"]), 3);
}

/// In a server of its own, of which all connections are cut.
#[tokio::test]
async fn a_connection_that_was_cut_while_nobody_used_it_is_opened_anew() {
    let Some(server) = Server::start(&[]) else { return };
    let store = open(&server.client(), "idle").await;
    let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    // After this long, the store looks before it writes.
    tokio::time::sleep(2 * SHORT_LEASE + LIMIT).await;
    store.transact(ask(1), now(), BUSY).await.unwrap();
}

/// The manager asks again, and learns what became of it.
#[tokio::test]
async fn an_acquire_and_a_release_survive_lost_questions_and_lost_answers() {
    let Some(server) = shared() else { return };
    let proxy = proxy_before(server.port());
    let (_, leases) = context(&client_of(&proxy), "resolved").await;
    let leases = leases.lease(LONG_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    for (times, plan) in [(1, Commit::LosesAnswer), (2, Commit::IsLost)].into_iter().cycle().take(6) {
        let hits = proxy.hits();
        proxy.let_next_commit(plan);
        let guard = timeout(BUSY, leases.lock("k").acquire()).await.unwrap().unwrap();
        assert!(guard.is_valid());
        let status = leases.status("k").await.unwrap();
        assert_eq!((status.holders.len(), status.queue.len()), (1, 0), "{plan:?} {times}");
        proxy.let_next_commit(plan);
        timeout(BUSY, guard.release()).await.unwrap().unwrap();
        assert_eq!(proxy.hits(), hits + 2);
        let (_, others) = context(&server.client(), "resolved").await;
        let other = others.build().unwrap().lock("k").try_acquire().await.unwrap();
        assert!(other.expect("nothing is left behind").token() > guard.token());
    }
}

/// Sends a script, which is kept back on its way until the proxy lets it pass.
async fn under_way(
    proxy: &Proxy,
    guard: Arc<LeaseGuard>,
    script: RedisScript,
) -> JoinHandle<Result<RedisResult<Value>, FenceError>> {
    proxy.let_next_commit(Commit::IsKept);
    let late = tokio::spawn(async move { guard.fence(script).await });
    while proxy.hits() == 0 {
        tokio::task::yield_now().await;
    }
    late
}

/// A script is kept back on its way, until another context has the lease.
#[tokio::test]
async fn a_script_that_was_under_way_for_long_writes_nothing() {
    let Some(server) = shared() else { return };
    let proxy = proxy_before(server.port());
    let (store, leases) = context(&client_of(&proxy), "late").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = Arc::new(leases.lock("k").acquire().await.unwrap());
    let count = |store: &RedisStore| store.script("return redis.call('INCR', KEYS[1])").key("late: n");
    guard.fence(count(&store)).await.unwrap().unwrap();

    let late = under_way(&proxy, guard, count(&store)).await;
    let (others_store, others) = context(&server.client(), "late").await;
    let stolen = others.build().unwrap().lock("k").steal().await.unwrap();
    stolen.fence(count(&others_store)).await.unwrap().unwrap();
    proxy.let_next_commit(Commit::Passes);
    let refused = late.await.unwrap();
    assert!(matches!(refused, Err(FenceError::Lost { reason: LostReason::Stolen, .. })), "{refused:?}");
    assert_eq!(server.ask::<i64>(&["GET", "late: n"]), 2, "the late script wrote nothing");
}

/// The task of its guard is dropped meanwhile, and the same manager's next guard has the lease.
#[tokio::test]
async fn a_script_that_was_under_way_when_its_guard_ended_writes_nothing() {
    let Some(server) = shared() else { return };
    let proxy = proxy_before(server.port());
    let (store, leases) = context(&server.client(), "gone").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let slow = open(&client_of(&proxy), "gone").await;
    let count = |store: &RedisStore| store.script("return redis.call('INCR', KEYS[1])").key("gone: n");
    let guard = leases.lock("k").acquire().await.unwrap();
    guard.fence(count(&slow)).await.unwrap().unwrap();

    let late = under_way(&proxy, guard.into(), count(&slow)).await;
    let mut next = pin!(leases.lock("k").acquire().into_future());
    assert!(timeout(LIMIT, next.as_mut()).await.is_err(), "the lease is taken");
    late.abort();
    let next = timeout(BUSY, next).await.unwrap().unwrap();
    next.fence(count(&store)).await.unwrap().unwrap();
    proxy.let_next_commit(Commit::Passes);
    // By the connection of the late script, and after it.
    next.fence(count(&slow)).await.unwrap().unwrap();
    assert_eq!(server.ask::<i64>(&["GET", "gone: n"]), 3, "the late script wrote nothing");
}

/// It was judged while its guard had the key alone.
#[tokio::test]
async fn a_script_that_was_under_way_when_its_guard_was_downgraded_writes_nothing() {
    let Some(server) = shared() else { return };
    let proxy = proxy_before(server.port());
    let (_store, leases) = context(&server.client(), "down").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let slow = open(&client_of(&proxy), "down").await;
    let count = || slow.script("return redis.call('INCR', KEYS[1])").key("down: n");
    let guard = Arc::new(leases.lock("k").acquire().await.unwrap());
    guard.fence(count()).await.unwrap().unwrap();

    under_way(&proxy, Arc::clone(&guard), count()).await.abort();
    timeout(BUSY, guard.downgrade()).await.unwrap().unwrap();
    let reader = timeout(BUSY, leases.lock("k").shared().acquire()).await.unwrap().unwrap();
    proxy.let_next_commit(Commit::Passes);
    // By the connection of the late script, and after it.
    reader.fence(slow.script("return 1")).await.unwrap().unwrap();
    assert_eq!(server.ask::<i64>(&["GET", "down: n"]), 1, "the late script wrote nothing");
    guard.fence(count()).await.unwrap().unwrap();
    assert_eq!(server.ask::<i64>(&["GET", "down: n"]), 2, "a later one writes, because its guard still shares the key");
}

/// A script that was answered is over, whatever came of it.
#[tokio::test]
async fn a_lease_is_passed_on_without_the_server_once_its_script_is_answered() {
    let Some(server) = shared() else { return };
    let (store, leases) = context(&server.client(), "answered").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    for text in ["return 1", "return redis.call('INCR')", "return ("] {
        let guard = leases.lock("k").acquire().await.unwrap();
        drop(guard.fence(store.script(text)).await);
        let mut next = pin!(leases.lock("k").acquire().into_future());
        assert!(timeout(LIMIT, next.as_mut()).await.is_err(), "the lease is taken");
        let before = leases.stats().transactions;
        drop(guard);
        let next = timeout(BUSY, next).await.unwrap().unwrap();
        assert_eq!(leases.stats().transactions, before, "{text}");
        next.release().await.unwrap();
    }
}

/// A server that is full runs no script that may write.
#[tokio::test]
async fn a_lease_is_passed_on_without_the_server_once_its_script_was_refused() {
    let Some(server) = Server::start(&[]) else { return };
    let (store, leases) = context(&server.client(), "full").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = guard.fence(store.script("return redis.call('INCR', KEYS[1])").key("full: n")).await;
    let Err(FenceError::Store(refused)) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.applied, Applied::No, "{refused}");
    let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    let mut next = pin!(leases.lock("k").acquire().into_future());
    assert!(timeout(LIMIT, next.as_mut()).await.is_err(), "the lease is taken");
    let before = leases.stats().transactions;
    drop(guard);
    let next = timeout(BUSY, next).await.unwrap().unwrap();
    assert_eq!(leases.stats().transactions, before);
    next.release().await.unwrap();
}

/// All is written down before it is answered.
#[tokio::test]
async fn a_server_that_dies_and_comes_back_has_kept_holder_and_waiter() {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let (store, leases) = context(&server.client(), "revived").await;
    let (_, others) = context(&server.client(), "revived").await;
    // Whoever listens to a server that died may miss what is said at once when it is back, and looks at the next heartbeat.
    let others = others.heartbeat(LIMIT).build().unwrap();
    let leases = leases.build().unwrap();
    for _ in 0..3 {
        let guard = leases.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(others.lock("k").acquire());
        while leases.status("k").await.unwrap().queue.is_empty() {}
        server.kill();
        assert!(guard.is_valid(), "a server that is away is no reason to give up");
        server.run();
        let count = || store.script("return redis.call('INCR', KEYS[1])").key("revived: n");
        // The connection broke: the first to use it may learn no more than that.
        drop(guard.fence(count()).await);
        assert!(guard.verify().await.unwrap(), "the server kept the lease");
        guard.fence(count()).await.unwrap().unwrap();
        let status = leases.status("k").await.unwrap();
        assert_eq!((status.holders.len(), status.queue.len()), (1, 1), "the server kept holder and waiter");
        assert!(!waiting.is_finished());
        guard.release().await.unwrap();
        let next = timeout(BUSY, waiting).await.unwrap().unwrap().unwrap();
        assert!(next.token() > guard.token());
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn who_said_for_how_long_waits_for_the_server() {
    let Some(mut server) = Server::start(&[]) else { return };
    let (_, leases) = context(&server.client(), "gone").await;
    let serve = |up| {
        if up {
            assert!(server.run(), "it starts again");
        } else {
            server.kill();
        }
    };
    outage::who_said_for_how_long_waits_for_the_server(leases.build().unwrap(), serve).await;
}

#[test]
fn calls_from_a_plain_thread() {
    let Some(server) = shared() else { return };
    let runtime = Runtime::new().unwrap();
    let made = async || context(&server.client(), "threads").await.1.build().unwrap();
    let managers = runtime.block_on(async { [made().await, made().await, made().await] });
    threads::calls_from_a_plain_thread(runtime, managers);
}

#[test]
fn a_runtime_that_lacks_something_is_refused() {
    let url = "redis://127.0.0.1:1/";
    threads::a_runtime_that_lacks_something(url, async || RedisStore::connect(url).await.map(drop));
}

#[test]
fn a_manager_is_closed_in_a_runtime_without_timers() {
    let Some(server) = shared() else { return };
    let runtime = Runtime::new().unwrap();
    let made = async || context(&server.client(), "bare").await.1;
    let managers = runtime.block_on(async { [made().await, made().await] });
    threads::closing_in_a_runtime_without_timers(runtime, managers);
}

#[test]
fn calls_while_the_first_runtime_stands_still() {
    let Some(server) = shared() else { return };
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let leases = first.block_on(async { context(&server.client(), "still").await.1.build().unwrap() });
    still::calls_while_the_first_runtime_stands_still(&leases);
}

/// The first request is made in a runtime that has timers.
#[test]
fn a_context_hears_and_speaks_although_its_manager_was_built_in_a_runtime_without_timers() {
    let Some(server) = shared() else { return };
    let (runtime, bare) = (Runtime::new().unwrap(), Builder::new_current_thread().build().unwrap());
    let made = async || context(&server.client(), "built").await.1.lease(BUSY * 20);
    let [built, other] = runtime.block_on(async { [made().await, made().await] });
    let (leases, other) = (bare.block_on(async { built.build().unwrap() }), other.build().unwrap());
    let held = runtime.block_on(other.lock("k").acquire()).unwrap();
    runtime.block_on(leases.status("k")).unwrap();
    // From here on, the context is used in the runtime without timers only.
    let mut waiting = pin!(leases.lock("k").timeout(BUSY * 2).acquire());
    bare.block_on(async {
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        tokio::task::yield_now().await;
    });
    runtime.block_on(async {
        while other.status("k").await.unwrap().queue.is_empty() {}
        held.release().await.unwrap();
    });
    let since = Instant::now();
    let granted = bare.block_on(waiting).unwrap();
    assert!(since.elapsed() < BUSY, "it was told of the grant");
    drop(granted);
}

/// A task is opening a connection in the first runtime, which nobody drives any more.
#[test]
fn a_connection_that_nobody_goes_on_opening_holds_up_nobody_elsewhere() {
    let Some(server) = shared() else { return };
    let proxy = proxy_before(server.port());
    let (first, other) = (Builder::new_current_thread().enable_all().build().unwrap(), Runtime::new().unwrap());
    let leases = first.block_on(async { context(&client_of(&proxy), "left").await.1.build().unwrap() });
    first.block_on(leases.status("k")).unwrap();
    proxy.cut();
    proxy.fall_silent();
    let pause = || tokio::time::sleep(Duration::from_millis(1));
    let opens = async {
        while proxy.open() > 0 {
            pause().await;
        }
        // Whoever asks first learns that the connection is gone. Whoever asks next opens another one, which gets no answer.
        while proxy.open() == 0 {
            let mut asked = pin!(leases.status("k"));
            while proxy.open() == 0 && futures::poll!(asked.as_mut()).is_pending() {
                pause().await;
            }
        }
    };
    first.block_on(async { timeout(BUSY, opens).await.unwrap() });
    proxy.cut();
    let since = Instant::now();
    while let Err(told) = other.block_on(leases.status("k")) {
        assert!(since.elapsed() < BUSY, "it cannot look: {told}");
    }
    other.block_on(leases.close());
}

/// Whoever waits for a lease waits for such a server, too.
#[tokio::test]
async fn a_server_that_is_busy_with_a_script_is_told_as_such_by_a_new_connection() {
    let Some(server) = Server::start(&["--lua-time-limit", "1"]) else { return };
    let proxy = proxy_before(server.port());
    let store = open(&client_of(&proxy), "script").await;
    let client = server.client();
    let script = thread::spawn(move || {
        let mut connection = client.get_connection().unwrap();
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection).unwrap_err()
    });
    let mut connection = server.client().get_connection().unwrap();
    while redis::cmd("GET").arg("k").exec(&mut connection).is_ok() {}
    proxy.cut();
    // The first one that uses the old connection may learn no more than that it broke.
    let failed = async || store.transact(look(1), now(), BUSY).await.unwrap_err();
    let mut error = failed().await;
    if !error.message.contains("SCRIPT KILL") {
        error = failed().await;
    }
    assert_eq!(error.kind, StoreErrorKind::Busy, "{error}");
    let _: String = server.ask(&["SCRIPT", "KILL"]);
    script.join().unwrap();
}
