//! Behind pgbouncer, which gives each transaction another connection.

use std::{fs, path::PathBuf, time::Duration};

use futures::FutureExt as _;
use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    store::{PostgresStore, Store, from_url},
};
use tokio::{runtime::Builder, time::timeout};

use crate::{
    port::free_port,
    proxy::Way,
    server::{PATIENCE, Place, as_server, connect, folder, keep, on_server},
    skipped::skip,
    until::until,
    warnings::Warnings,
};

/// It ends with this, as the server does.
pub(crate) struct Pooler {
    keeper: std::process::Child,
    pub(crate) port: u16,
}

impl Pooler {
    /// It gives each transaction another connection.
    pub(crate) fn start(server: &Place) -> Option<Self> {
        Self::start_on(server, free_port(), "pool_mode = transaction")
    }

    /// Starts one with these lines in its file, too.
    fn start_on(server: &Place, port: u16, lines: &str) -> Option<Self> {
        let places = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/opt/homebrew/bin/pgbouncer"];
        let Some(program) = places.iter().map(PathBuf::from).find(|place| place.exists()) else {
            skip("pgbouncer is missing; .ci/setup postgres installs it");
            return None;
        };
        let (folder, behind) = (folder(), server.port());
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={behind} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\ndefault_pool_size = 3\n{lines}\n"
        );
        // The folder is the server user's, as the file is to be.
        let write = as_server("sh")
            .args(["-c", &format!("printf %s \"$1\" > '{}/ini'", folder.display()), "sh", &text])
            .status();
        assert!(write.unwrap().success() && fs::exists(folder.join("ini")).unwrap());
        let command = format!("'{}' '{}/ini'", program.display(), folder.display());
        Some(Self { keeper: keep(&folder, &command, "TERM"), port })
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}

/// More transactions at once than the pooler has connections, from several contexts: a hundred turns each.
#[test]
fn contexts_take_turns_behind_pgbouncer() {
    on_server("pooler", |place| async move {
        let Some(pooler) = Pooler::start(&place) else { return };
        let far = place.behind(pooler.port);
        until("pgbouncer answers", async || PostgresStore::connect(&far.url).await.is_ok()).await;
        let near = place.store().await;
        let (mut turns, user) = (Vec::new(), place.client().await);
        user.batch_execute("CREATE TABLE pooler_count AS SELECT 0 AS n").await.unwrap();
        for _ in 0..2 {
            let store = far.builder().without_signals().connect().await.unwrap();
            assert_eq!(Store::reach(&store), Store::reach(&near));
            let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
            turns.push(take_turns(leases, &far.url));
        }
        futures::future::join_all(turns).await;
        let counted: i32 = user.query_one("SELECT n FROM pooler_count", &[]).await.unwrap().get(0);
        assert_eq!(counted, 2 * TURNS);
        // Nothing named is left in any of its connections.
        let pooled = connect(&far.url).await;
        let named = pooled.query_typed("SELECT count(*) FROM pg_prepared_statements", &[]).await.unwrap();
        assert_eq!(named[0].get::<_, i64>(0), 0);
    });
}

/// A user of the command line, and of `from_url`, has nothing but the URL.
#[test]
fn a_url_can_do_without_signals() {
    on_server("pooler_url", |place| async move {
        let Some(pooler) = Pooler::start(&place) else { return };
        let far = place.behind(pooler.port);
        until("pgbouncer answers", async || PostgresStore::connect(&far.url).await.is_ok()).await;
        for (signals, has_signals) in [("", true), ("&signals=off", false)] {
            let url = format!("{}?prefix={}{signals}", far.url, far.prefix);
            let store = from_url(&url).await.unwrap();
            assert_eq!(store.signals().is_some(), has_signals, "{url}");
        }
        let url = format!("{}?signals=off&prefix={}", far.url, far.prefix);
        let leases = LeaseManager::from_url(&url, TokioExecutor::new()).await.unwrap();
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        leases.close().await;
    });
}

/// The user forgot `without_signals`. Statements that were prepared on one connection are then called, or prepared again, on another.
#[test]
fn a_pooler_that_nobody_mentioned_costs_time_only() {
    on_server("pooler_unmentioned", |place| async move {
        let Some(pooler) = Pooler::start(&place) else { return };
        let far = place.behind(pooler.port);
        // The pooler passes the name on. Connections of other tests have another one.
        let far = Place { url: format!("{}?application_name=pooler_unmentioned", far.url), ..far };
        until("pgbouncer answers", async || PostgresStore::connect(&far.url).await.is_ok()).await;
        drop(place.store().await);
        let contexts = futures::future::join_all((0..3).map(async |_| {
            let store = far.builder().connect().await.unwrap();
            LeaseManager::builder(store, TokioExecutor::new()).build().unwrap()
        }));
        let (contexts, user) = (contexts.await, place.client().await);
        for turn in 0..10 {
            if turn == 5 {
                // The pooler opens others in their place, where nothing is prepared.
                let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                    WHERE application_name = 'pooler_unmentioned' AND pid <> pg_backend_pid()";
                assert!(user.query_one(ended, &[]).await.unwrap().get::<_, i64>(0) > 0);
            }
            let turns = contexts.iter().enumerate().map(async |(context, leases)| {
                let guard = timeout(PATIENCE, leases.lock(&format!("k {context}")).acquire()).await.unwrap();
                guard.unwrap_or_else(|error| panic!("turn {turn}: {error}")).release().await.unwrap();
            });
            futures::future::join_all(turns).await;
        }
        let settings =
            "SELECT current_setting('enable_seqscan'), current_setting('jit'), current_setting('plan_cache_mode')";
        let [left, usual] = [connect(&far.url).await, user].map(async |user| {
            let row = &user.query_typed(settings, &[]).await.unwrap()[0];
            [0, 1, 2].map(|column| row.get::<_, String>(column))
        });
        assert_eq!(left.await, usual.await, "other users of the connection find it as it was");
    });
}

/// The test uses one thread, because only the warnings of its own thread are kept.
#[test]
fn whoever_hears_nothing_is_warned_once_and_nobody_else() {
    let Some(place) = Place::new("pooler_deaf") else { return };
    let Some(pooler) = Pooler::start(&place) else { return };
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let (told, _listens) = Warnings::listen();
        let (proxy, far) = (place.proxy(), place.behind(pooler.port));
        until("pgbouncer answers", async || PostgresStore::connect(&far.url).await.is_ok()).await;
        drop(place.store().await);
        let mut guards = Vec::new();
        let mut hold = async |place: &Place, key: &str| {
            let store = place.builder().connect().await.unwrap();
            let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
            guards.push((leases.lock(key).acquire().await.unwrap(), leases));
        };
        hold(&place, "near").await;
        hold(&place.behind(proxy.port), "slow").await;
        proxy.delay(Way::ToServer, Duration::from_millis(300));
        for key in ["deaf", "deaf, too"] {
            hold(&far, key).await;
            let mut said = Vec::new();
            until("it is warned", async || {
                said.append(&mut told.take());
                !said.is_empty()
            })
            .await;
            assert!(said.len() == 1 && said[0].contains("?signals=off"), "{said:?}");
        }
    });
}

/// Ways in which a lock ends before its session: the pooler resets a connection after each transaction, or closes an idle one.
const WAYS: [&str; 4] = [
    "server_round_robin = 1",
    "server_reset_query = RESET ALL\nserver_reset_query_always = 1",
    "server_reset_query = DISCARD ALL\nserver_reset_query_always = 1",
    "server_idle_timeout = 1",
];

#[test]
fn beacons_are_refused_behind_pgbouncer() {
    on_server("pooler_refused", |place| async move {
        for ways in WAYS {
            let lines = format!("pool_mode = transaction\n{ways}");
            let Some(pooler) = Pooler::start_on(&place, free_port(), &lines) else { return };
            let far = place.behind(pooler.port);
            until("pgbouncer answers", async || PostgresStore::connect(&far.url).await.is_ok()).await;
            let error =
                far.builder().with_beacons().connect().await.expect_err("a beacon would end with another's use");
            let words = ["beacons", "pooler", "connect to the server itself", "without beacons"];
            assert!(!error.retry && words.iter().all(|word| error.message.contains(word)), "{error}");
        }
    });
}

/// In session mode each context has a connection of its own until it leaves. Then somebody sets the pooler to transaction mode, while the
/// programs run: all contexts share the connections of the server. A lock seems to be free on the connection that has it.
#[test]
fn a_pooler_that_is_set_to_transaction_mode_does_not_let_a_waiter_take_a_living_holder_for_dead() {
    on_server("pooler_switched", |place| async move {
        drop(place.store().await);
        futures::future::join_all(WAYS.map(|ways| switched(&place, ways))).await;
    });
}

async fn switched(place: &Place, ways: &str) {
    let Some(pooler) = Pooler::start_on(place, free_port(), "pool_mode = session\ndefault_pool_size = 20") else {
        return;
    };
    let (far, port) = (place.behind(pooler.port), pooler.port);
    until("pgbouncer answers", async || PostgresStore::connect(&far.url).await.is_ok()).await;
    let manager = async |place: &Place| {
        let store = place.builder().with_beacons().connect().await.unwrap();
        LeaseManager::builder(store, TokioExecutor::new()).build().unwrap()
    };
    let (holder, waiters) = (manager(&far).await, [manager(&far).await, manager(place).await]);
    drop(pooler);
    let lines = format!("pool_mode = transaction\n{ways}");
    let Some(_pooler) = Pooler::start_on(place, port, &lines) else { return };
    until("pgbouncer answers", async || PostgresStore::connect(&far.url).await.is_ok()).await;
    let guard = holder.lock(ways).acquire().await.unwrap();
    let waits = waiters.each_ref().map(|waiter| waiter.lock(ways).acquire().boxed());
    // An absent beacon proves a death after 10 s.
    let granted = timeout(Duration::from_secs(14), futures::future::select_all(waits)).await;
    assert!(granted.is_err() && guard.is_valid(), "a living holder was replaced: {ways}");
}

const TURNS: i32 = 20;

async fn take_turns(leases: LeaseManager, url: &str) {
    let mut user = connect(url).await;
    for _ in 0..TURNS {
        let guard = timeout(PATIENCE, leases.lock("k").acquire()).await.unwrap().unwrap();
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        let n: i32 = transaction.query_typed("SELECT n FROM pooler_count", &[]).await.unwrap()[0].get(0);
        transaction.batch_execute(&format!("UPDATE pooler_count SET n = {}", n + 1)).await.unwrap();
        transaction.commit().await.unwrap();
        guard.release().await.unwrap();
    }
    leases.close().await;
}

/// A pooler that goes away, and comes back by another program's hand, is as a server that does.
#[test]
fn a_pooler_that_goes_away_is_told_as_such() {
    on_server("pooler_gone", |place| async move {
        let Some(pooler) = Pooler::start(&place) else { return };
        let far = place.behind(pooler.port);
        until("pgbouncer answers", async || PostgresStore::connect(&far.url).await.is_ok()).await;
        let store = far.builder().without_signals().connect().await.unwrap();
        drop(pooler);
        let error = Store::keys(&store, "").await.unwrap_err();
        assert!(error.retry, "{error}");
    });
}
