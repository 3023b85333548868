//! What holds over an application's own pool, whichever driver's it is: the contract, the shared scenarios, and the pool's manners.

use std::time::{Duration, Instant};

use leasehold::{
    LeaseManager, LeaseManagerBuilder, StoreError,
    executor::{Executor, TokioExecutor},
    machine::{
        Acquire, Action, Applied, Batch, Beat, Key, Operation, Outcome, Reply, RequestId, SessionId, SessionStep,
        StoreErrorKind,
    },
    signal::contract as signals,
    store::{PostgresPool, PostgresStore, PostgresStoreBuilder, Store, contract},
};
use tokio::runtime::Runtime;

use crate::{
    pooler::Pooler,
    proxy::{Commit, Way},
    server::{PATIENCE, Place, on_server},
    until::until,
};

/// An application's pool.
pub(crate) trait Pool: Clone + Into<PostgresPool> + Send + Sync + 'static {
    /// What its errors call it.
    const NAME: &'static str;

    /// A pool of at most this many connections.
    async fn open(url: &str, most: u32) -> Self;

    /// The first row that a connection of the pool finds, each column as text.
    async fn ask(&self, statement: &str) -> Vec<String>;

    /// Takes a connection, and keeps it as long as the answer.
    async fn take(&self) -> Box<dyn std::any::Any>;

    async fn end(&self);

    /// A store with signals over this pool.
    fn builder(&self, place: &Place) -> PostgresStoreBuilder;
}

/// A store over a pool of its own.
pub(crate) async fn store<P: Pool>(place: &Place) -> PostgresStore {
    let store = P::open(&place.url, 4).await.builder(place).prefix(&place.prefix).connect().await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// A place whose contexts are over pools of their own.
pub(crate) struct Pooled<P> {
    place: Place,
    _driver: std::marker::PhantomData<P>,
}

impl<P: Pool> Pooled<P> {
    pub(crate) fn new(driver: &str, scenario: &str) -> Option<Self> {
        let (number, _) = scenario.split_once('_')?;
        Some(Self { place: Place::new(&format!("{driver}_{number}"))?, _driver: std::marker::PhantomData })
    }

    pub(crate) async fn context(&self) -> LeaseManagerBuilder {
        LeaseManager::builder(store::<P>(&self.place).await, TokioExecutor::new())
    }
}

/// The tests of one driver: `suites!(Pool, "prefix")`.
macro_rules! suites {
    ($pool:ty, $driver:literal) => {
        type Driver = $pool;

        mod scenarios {
            async fn open(name: &str) -> Option<$crate::pools::Pooled<super::Driver>> {
                $crate::pools::Pooled::new($driver, name)
            }
            $crate::scenarios::tests!(open);
        }
        $crate::pools::suites! { $pool, $driver:
            the_store_keeps_the_contract
            handles_of_one_pool_keep_the_contract
            new_sessions_are_told_of_others
            what_cannot_be_read_is_left_as_it_is
            threads_take_turns
            any_text_comes_back_as_it_was
            signals_keep_the_contract
            calls_that_run_out_of_time_leave_connections_clean
            a_call_whose_commit_stalls_leaves_no_transaction_in_the_pool
            a_pool_without_a_free_connection_is_named_in_time
            a_pool_that_was_closed_is_named
            connections_that_the_server_ended_are_replaced_unnoticed
            contexts_over_pools_take_turns_behind_pgbouncer
            the_pool_outlives_its_store
            a_heartbeat_finds_a_connection_in_a_small_pool
            a_session_that_reads_text_in_another_encoding_spoils_no_record
            policies_that_come_later_are_told_from_a_missing_right
        }
    };
    ($pool:ty, $driver:literal: $($test:ident)+) => {
        $(
            #[test]
            fn $test() {
                $crate::pools::$test::<$pool>(concat!($driver, "_", stringify!($test)));
            }
        )+
    };
}
pub(crate) use suites;

/// Names of tables are not as long as those of tests.
fn on<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Place) -> F) {
    on_server(&name[..name.len().min(40)], test);
}

pub(crate) fn the_store_keeps_the_contract<P: Pool>(name: &str) {
    on(name, |place| async move { contract::all(async || store::<P>(&place).await).await });
}

pub(crate) fn handles_of_one_pool_keep_the_contract<P: Pool>(name: &str) {
    on(name, |place| async move {
        let pool = P::open(&place.url, 2).await;
        drop(store::<P>(&place).await);
        contract::all(async || pool.builder(&place).prefix(&place.prefix).connect().await.unwrap()).await;
    });
}

pub(crate) fn new_sessions_are_told_of_others<P: Pool>(name: &str) {
    on(name, |place| async move {
        contract::new_sessions_are_told_of_others(async || store::<P>(&place).await).await;
    });
}

pub(crate) fn what_cannot_be_read_is_left_as_it_is<P: Pool>(name: &str) {
    on(name, |place| async move {
        let (user, prefix) = (place.client().await, &place.prefix);
        let put = async |key: String, text: String| {
            let statement = format!("INSERT INTO {prefix}_record VALUES (convert_to($1, 'UTF8'), $2)");
            user.execute(&statement, &[&key, &text]).await.unwrap();
        };
        let read = async |key: String| {
            let statement = format!("SELECT text FROM {prefix}_record WHERE key = convert_to($1, 'UTF8')");
            user.query_opt(&statement, &[&key]).await.unwrap().map(|row| row.get(0))
        };
        contract::unreadable(async || store::<P>(&place).await, put, read).await;
    });
}

pub(crate) fn threads_take_turns<P: Pool>(name: &str) {
    let Some(place) = Place::new(name) else { return };
    let runtime = Runtime::new().unwrap();
    contract::in_threads(async || store::<P>(&place).await, |work| runtime.block_on(work));
}

/// Values stand in the text of statements: whatever is in them, and however the session reads text.
pub(crate) fn any_text_comes_back_as_it_was<P: Pool>(name: &str) {
    on(name, |place| async move {
        let settings = "options=-cstandard_conforming_strings%3Doff%20-cbytea_output%3Descape%20-cDateStyle%3DGerman";
        let odd = Place { url: format!("{}?{settings}", place.url), ..place.clone() };
        let leases = LeaseManager::builder(store::<P>(&odd).await, TokioExecutor::new()).build().unwrap();
        let other = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        for text in ["'; DROP TABLE notes; --", "\\", "\\'", "$$", "\"", "{},NULL", "a\0b", "\u{1f98a}", "\u{7f}\r\n"] {
            let guard = leases.lock(text).info(text).acquire().await.unwrap();
            assert_eq!(other.status(text).await.unwrap().holders[0].info, text);
            assert_eq!(leases.list(text).await.unwrap()[0].key.as_str(), text);
            guard.release().await.unwrap();
        }
    });
}

pub(crate) fn signals_keep_the_contract<P: Pool>(name: &str) {
    for (name, beacons) in [(name.to_owned(), false), (format!("{name}_beacons"), true)] {
        let Some(place) = Place::new(&name) else { return };
        let runtime = Runtime::new().unwrap();
        let open = async || {
            runtime.block_on(async {
                let builder = P::open(&place.url, 1).await.builder(&place).prefix(&place.prefix);
                let builder = if beacons { builder.with_beacons() } else { builder };
                builder.connect().await.unwrap().signals().expect("it brings signals")
            })
        };
        // Twice what a look at the beacons takes, and much more than a message does.
        let settle = async || std::thread::sleep(Duration::from_millis(100));
        futures::executor::block_on(signals::all(open, settle));
    }
}

/// Opens a session and asks for a key, by one transaction.
async fn ask(store: &PostgresStore, session: u128, limit: Duration) -> Result<Reply, StoreError> {
    ask_with(store, session, Acquire::new(RequestId(1), 1), limit).await
}

async fn ask_with(
    store: &PostgresStore,
    session: u128,
    acquire: Acquire,
    limit: Duration,
) -> Result<Reply, StoreError> {
    let acquire = Operation { key: Key::new("k").unwrap(), action: Action::Acquire(acquire) };
    let mut batch = Batch::new(SessionId(session), vec![acquire]);
    let beat = Beat { beat: 1, lease_ms: 60_000, ..Beat::default() };
    batch.step = SessionStep::Open { beat, instance: String::new() };
    store.transact(batch, TokioExecutor::new().now(), limit).await
}

/// What a connection of the pool must show: no open transaction, no setting of the store's, no advisory lock.
async fn is_clean<P: Pool>(pool: &P) {
    let state = "SELECT now() = statement_timestamp(), current_setting('statement_timeout'), \
        current_setting('lock_timeout'), (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')";
    assert_eq!(pool.ask(state).await, ["t", "0", "0", "0"]);
}

/// However far they got.
pub(crate) fn calls_that_run_out_of_time_leave_connections_clean<P: Pool>(name: &str) {
    on(name, |place| async move {
        drop(store::<P>(&place).await);
        let proxy = place.proxy();
        let pool = P::open(&place.behind(proxy.port).url, 1).await;
        let store = PostgresStore::builder_from_pool(pool.clone()).prefix(&place.prefix).connect().await.unwrap();
        // A round trip takes 2 ms, so that the limits end at each step of a transaction.
        proxy.delay(Way::ToServer, Duration::from_millis(2));
        let (mut late, mut unknown) = (0, 0);
        for session in 0..40 {
            let limit = Duration::from_micros(u64::try_from(session).unwrap() * 200);
            match ask(&store, session, limit).await {
                Err(error) if error.applied == Applied::Unknown => unknown += 1,
                Err(_) => late += 1,
                Ok(_) => {}
            }
            is_clean(&pool).await;
        }
        println!("{late} late, {unknown} unknown");
        assert!(late > 0, "no call ran out of time");
        ask(&store, 99, PATIENCE).await.unwrap();
    });
}

/// The only connection of the pool stands inside a transaction, and its commit is on its way, when the time is over.
pub(crate) fn a_call_whose_commit_stalls_leaves_no_transaction_in_the_pool<P: Pool>(name: &str) {
    on(name, |place| async move {
        drop(store::<P>(&place).await);
        let proxy = place.proxy();
        let pool = P::open(&place.behind(proxy.port).url, 1).await;
        let store = PostgresStore::builder_from_pool(pool.clone()).prefix(&place.prefix).connect().await.unwrap();
        proxy.let_next_commit(Commit::Stalls);
        let mut limit = Duration::from_millis(500);
        let mut error = ask(&store, 1, limit).await.unwrap_err();
        // On a busy machine, the time limit may end before the commit.
        while proxy.hits() == 0 && limit < PATIENCE {
            assert_eq!((error.applied, error.retry), (Applied::No, true), "{error}");
            limit *= 4;
            error = ask(&store, 1, limit).await.unwrap_err();
        }
        assert_eq!((error.applied, error.retry, proxy.hits()), (Applied::Unknown, true, 1), "{error}");
        is_clean(&pool).await;
        for commit in [Commit::LosesAnswer, Commit::IsLost] {
            proxy.let_next_commit(commit);
            let error = ask(&store, 2, PATIENCE).await.unwrap_err();
            assert_eq!((error.applied, error.retry), (Applied::Unknown, true), "{commit:?}: {error}");
            is_clean(&pool).await;
            let reply = ask(&store, 2, PATIENCE).await.unwrap();
            assert!(matches!(reply.answers[0].outcome, Outcome::Granted(_)), "{commit:?}");
            let user = place.client().await;
            user.batch_execute(&format!("DELETE FROM {}_record", place.prefix)).await.unwrap();
        }
        let open = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE '%{}%'",
            place.prefix
        );
        until("no transaction is open", async || {
            place.client().await.query_one(&open, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
    });
}

pub(crate) fn a_pool_without_a_free_connection_is_named_in_time<P: Pool>(name: &str) {
    on(name, |place| async move {
        drop(store::<P>(&place).await);
        let pool = P::open(&place.url, 1).await;
        let store = PostgresStore::builder_from_pool(pool.clone()).prefix(&place.prefix).connect().await.unwrap();
        let taken = pool.take().await;
        let (since, limit) = (Instant::now(), Duration::from_millis(400));
        let error = ask(&store, 1, limit).await.unwrap_err();
        assert_eq!((error.applied, error.retry), (Applied::No, true), "{error}");
        assert!(error.message.contains(P::NAME) && error.message.contains("more connections"), "{error}");
        assert!(since.elapsed() < limit * 10, "it took {:?}", since.elapsed());
        drop(taken);
        ask(&store, 1, PATIENCE).await.unwrap();
    });
}

pub(crate) fn a_pool_that_was_closed_is_named<P: Pool>(name: &str) {
    on(name, |place| async move {
        let pool = P::open(&place.url, 1).await;
        let store = PostgresStore::builder_from_pool(pool.clone()).prefix(&place.prefix).connect().await.unwrap();
        pool.end().await;
        let error = ask(&store, 1, PATIENCE).await.unwrap_err();
        assert_eq!((error.kind, error.applied, error.retry), (StoreErrorKind::Closed, Applied::No, false), "{error}");
        assert!(error.message.contains(P::NAME), "{error}");
        let refused = PostgresStore::from_pool(pool).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Closed, "{refused}");
    });
}

pub(crate) fn connections_that_the_server_ended_are_replaced_unnoticed<P: Pool>(name: &str) {
    on(name, |place| async move {
        drop(store::<P>(&place).await);
        let named = format!("{}?application_name={}", place.url, place.prefix);
        let (pool, user) = (P::open(&named, 4).await, place.client().await);
        let store = PostgresStore::builder_from_pool(pool).prefix(&place.prefix).connect().await.unwrap();
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1";
        for session in 0..20 {
            ask(&store, session, PATIENCE).await.unwrap();
            assert!(user.query_one(end, &[&place.prefix]).await.unwrap().get::<_, i64>(0) > 0);
            store.keys("").await.unwrap();
        }
    });
}

/// More transactions at once than the pooler has connections.
pub(crate) fn contexts_over_pools_take_turns_behind_pgbouncer<P: Pool>(name: &str) {
    on(name, |place| async move {
        let Some(pooler) = Pooler::start(&place) else { return };
        drop(store::<P>(&place).await);
        let far = place.behind(pooler.port);
        until("pgbouncer answers", async || PostgresStore::connect(&far.url).await.is_ok()).await;
        let room = std::sync::atomic::AtomicUsize::new(0);
        let turns = (0..2).map(async |_| {
            let pool = P::open(&far.url, 4).await;
            let builder = PostgresStore::builder_from_pool(pool).prefix(&place.prefix).without_signals();
            let leases = LeaseManager::builder(builder.connect().await.unwrap(), TokioExecutor::new()).build().unwrap();
            for _ in 0..20 {
                let guard = leases.lock("k").timeout(PATIENCE).acquire().await.unwrap();
                assert_eq!(room.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two are inside");
                tokio::task::yield_now().await;
                room.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                guard.release().await.unwrap();
                leases.list("").await.unwrap();
            }
            leases.close().await;
        });
        futures::future::join_all(turns).await;
        // The store left nothing named in any of its connections.
        let pooled = crate::server::connect(&far.url).await;
        let named = pooled.query_typed("SELECT count(*) FROM pg_prepared_statements", &[]).await.unwrap();
        assert_eq!(named[0].get::<_, i64>(0), 0);
    });
}

/// The application goes on to use its pool when the store is closed.
pub(crate) fn the_pool_outlives_its_store<P: Pool>(name: &str) {
    on(name, |place| async move {
        let pool = P::open(&place.url, 2).await;
        let store = PostgresStore::builder_from_pool(pool.clone()).prefix(&place.prefix).connect().await.unwrap();
        store.migrate().await.unwrap();
        ask(&store, 1, PATIENCE).await.unwrap();
        store.close().await;
        assert_eq!(ask(&store, 1, PATIENCE).await.unwrap_err().kind, StoreErrorKind::Closed);
        drop(store);
        is_clean(&pool).await;
    });
}

/// Behind a fenced transaction, as many transactions wait as the pool has connections.
pub(crate) fn a_heartbeat_finds_a_connection_in_a_small_pool<P: Pool>(name: &str) {
    on(name, |place| async move {
        drop(store::<P>(&place).await);
        let pool = P::open(&place.url, 2).await;
        let store = PostgresStore::builder_from_pool(pool).prefix(&place.prefix).connect().await.unwrap();
        ask(&store, 1, PATIENCE).await.unwrap();
        // Within one transaction, `pg_stat_activity` does not change after the first look. So a second client watches.
        let (user, watch) = (place.client().await, place.client().await);
        user.batch_execute(&format!("BEGIN; SELECT FROM {}_record FOR SHARE", place.prefix)).await.unwrap();
        let waiting = futures::future::join(ask(&store, 2, PATIENCE), ask(&store, 3, PATIENCE));
        let beat = async {
            let waiters = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
            let named = format!("%{}_record%", place.prefix);
            until("one waits for the fence", async || {
                watch.query_one(waiters, &[&named]).await.unwrap().get::<_, i64>(0) > 0
            })
            .await;
            let mut batch = Batch::new(SessionId(1), Vec::new());
            batch.step = SessionStep::Beat(Beat { beat: 2, lease_ms: 60_000, ..Beat::default() });
            // Those two wait for the fence for a tenth of their time limit. The heartbeat has less time than that.
            let limit = PATIENCE / 12;
            let beaten = store.transact(batch, TokioExecutor::new().now(), limit).await;
            user.batch_execute("ROLLBACK").await.unwrap();
            beaten
        };
        let ((one, two), beaten) = futures::future::join(waiting, beat).await;
        beaten.unwrap();
        assert!(one.is_ok() && two.is_ok(), "{one:?}, {two:?}");
    });
}

/// The application chose the encoding for a connection, and gave it back to its pool so.
pub(crate) fn a_session_that_reads_text_in_another_encoding_spoils_no_record<P: Pool>(name: &str) {
    on(name, |place| async move {
        let leases = LeaseManager::builder(store::<P>(&place).await, TokioExecutor::new()).build().unwrap();
        let pool = P::open(&place.url, 1).await;
        let odd = PostgresStore::builder_from_pool(pool.clone()).prefix(&place.prefix).connect().await.unwrap();
        pool.ask("SET client_encoding = 'LATIN1'; SELECT 1").await;
        for (session, text) in (1..).zip(["\u{c3}\u{a9}", "\u{e9}", "\u{1f98a}"]) {
            let guard = leases.lock("k").info(text).acquire().await.unwrap();
            // It waits in the record, which is read and written.
            let reply = ask_with(&odd, session, Acquire { wait: true, ..Acquire::new(RequestId(1), 1) }, PATIENCE)
                .await
                .unwrap();
            assert!(matches!(reply.answers[0].outcome, Outcome::Waiting { .. }), "{reply:?}");
            assert_eq!(leases.status("k").await.unwrap().holders[0].info, text);
            let user = place.client().await;
            user.batch_execute(&format!(
                "DELETE FROM {}_session WHERE id = decode('{session:032x}', 'hex')",
                place.prefix
            ))
            .await
            .unwrap();
            guard.release().await.unwrap();
        }
    });
}

/// The server says so only if it refuses a row, in its own language, and with the code of a missing right.
pub(crate) fn policies_that_come_later_are_told_from_a_missing_right<P: Pool>(name: &str) {
    on(name, |place| async move {
        drop(store::<P>(&place).await);
        let (prefix, user, owner) = (&place.prefix, format!("{}_user", place.prefix), place.client().await);
        let role = format!(
            "CREATE ROLE {user} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}_store, {prefix}_record, {prefix}_session TO {user}"
        );
        owner.batch_execute(&role).await.unwrap();
        let others = Place { url: place.url.replace("postgres@", &format!("{user}@")), ..place.clone() };
        let leases = LeaseManager::builder(store::<P>(&others).await, TokioExecutor::new()).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        owner.batch_execute(&format!("ALTER TABLE {prefix}_record ENABLE ROW LEVEL SECURITY")).await.unwrap();
        let said = leases.lock("another").acquire().await.unwrap_err().to_string();
        assert!(said.contains("DISABLE ROW LEVEL SECURITY") && !said.contains("GRANT"), "{said}");
        owner.batch_execute(&format!("ALTER TABLE {prefix}_record DISABLE ROW LEVEL SECURITY")).await.unwrap();
        guard.release().await.unwrap();
        leases.close().await;
    });
}
