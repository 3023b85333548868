//! A store that follows the master that Sentinels name.

use std::{sync::OnceLock, time::Duration};

use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    machine::{Applied, StoreErrorKind},
    signal::contract as signal_contract,
    store::{RedisServers, RedisStore, Store, contract},
};
use redis::{Client, RedisConnectionInfo};

use crate::{
    BUSY, LONG_LEASE, SHORT_LEASE, context,
    groups::{self, Pair},
    inputs::{ask, look, now},
    open,
    proxy::Commit,
    proxy_before,
    server::Server,
    signals::{settle, signals},
};

/// A master, its replica, and three Sentinels, of which two must agree.
pub(crate) struct Group {
    pub(crate) master: Server,
    pub(crate) replica: Server,
    pub(crate) sentinels: Vec<Server>,
}

/// The settings with which Sentinels watch the server at this port. After a silence of this length they take it for dead.
fn watching(name: &str, port: u16, quorum: usize, silence_ms: u64) -> String {
    format!(
        "sentinel monitor {name} 127.0.0.1 {port} {quorum}\nsentinel down-after-milliseconds {name} {silence_ms}\n\
         sentinel failover-timeout {name} 3000\n"
    )
}

/// For a server that must not be replaced, although it may be silent for long on a busy machine.
const PATIENT_MS: u64 = 60_000;
/// For a server that is to die. The same limit holds for its successor, which must not be replaced: a living server is seldom silent for so
/// long, even on a busy machine.
const SOON_MS: u64 = 2_500;

impl Group {
    fn start(silence_ms: u64) -> Option<Self> {
        let master = Server::start(&["--repl-diskless-sync-delay", "0"])?;
        let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port().to_string()])?;
        replica.wait_for::<String>(&["INFO", "replication"], |info| info.contains("master_link_status:up"));
        let start = |_| Server::start_sentinel(&watching("mymaster", master.port(), 2, silence_ms));
        let sentinels = (0..3).map(start).collect::<Option<Vec<_>>>()?;
        for sentinel in &sentinels {
            // A Sentinel cannot replace a master before it knows the replica and the other two Sentinels.
            let knows = |info: &String| info.contains("slaves=1,sentinels=3");
            sentinel.wait_for::<String>(&["INFO", "sentinel"], knows);
        }
        Some(Self { master, replica, sentinels })
    }

    pub(crate) fn servers(&self) -> RedisServers {
        let sentinels = self.sentinels.iter().map(Server::remote_client);
        RedisServers::sentinel("mymaster", sentinels, RedisConnectionInfo::default())
    }

    fn pair<'a>(&'a mut self, prefix: &'a str) -> Pair<'a> {
        Pair { servers: self.servers(), master: &mut self.master, replica: &self.replica, prefix }
    }

    fn hosts(&self) -> String {
        self.sentinels.iter().map(Server::address).collect::<Vec<_>>().join(",")
    }
}

/// The group that most tests share, each with a prefix of its own.
pub(crate) fn shared() -> Option<&'static Group> {
    static SHARED: OnceLock<Option<Group>> = OnceLock::new();
    SHARED.get_or_init(|| Group::start(PATIENT_MS)).as_ref()
}

#[tokio::test]
async fn the_store_keeps_the_contract_over_sentinels() {
    let Some(group) = shared() else { return };
    let servers = group.servers();
    contract::all(async || open(&servers, "all").await).await;
    signal_contract::all(async || signals(&servers, "signals").await, settle).await;
}

#[tokio::test]
async fn holder_and_waiter_outlive_the_master_of_sentinels() {
    let Some(mut group) = Group::start(SOON_MS) else { return };
    groups::holder_and_waiter_are_kept(group.pair("sentinels")).await;
}

#[tokio::test]
async fn a_grant_that_a_failover_of_sentinels_loses_makes_two_holders_of_which_one_writes() {
    let Some(mut group) = Group::start(SOON_MS) else { return };
    groups::a_grant_that_is_lost_makes_two_holders_of_which_one_writes(group.pair("sentinels")).await;
}

#[tokio::test]
async fn a_release_that_a_failover_of_sentinels_loses_is_repeated_by_the_former_holder() {
    let Some(mut group) = Group::start(SOON_MS) else { return };
    groups::a_release_that_is_lost_is_repeated_by_the_former_holder(group.pair("released")).await;
}

/// The connections of the stopped master stay open, and nothing comes back on them.
#[tokio::test]
async fn a_master_that_hangs_is_replaced_and_is_not_heard_when_it_goes_on() {
    let Some(group) = Group::start(SOON_MS) else { return };
    let (store, leases) = context(&group.servers(), "hangs").await;
    let leases = leases.lease(LONG_LEASE).heartbeat(SHORT_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    group.replica.wait_for::<i64>(&["HEXISTS", "{hangs}:rows", "lease:k"], |found| *found == 1);
    group.master.signal("STOP");
    let error = store.transact(ask(2), now(), SHORT_LEASE).await.expect_err("it hangs");
    assert_eq!((error.applied, error.retry), (Applied::Unknown, true), "{error}");
    while !matches!(guard.verify().await, Ok(true)) {
        assert!(guard.is_valid(), "the replica knows the lease");
    }
    store.transact(ask(2), now(), BUSY).await.unwrap();
    group.master.signal("CONT");
    store.transact(ask(3), now(), BUSY).await.unwrap();
    assert_eq!(group.replica.ask::<u64>(&["ZCARD", "{hangs}:sessions"]), 3, "the new master has all three sessions");
    group.master.wait_for::<String>(&["INFO", "replication"], |info| info.contains("role:slave"));
    assert!(guard.verify().await.unwrap());
}

/// The former master goes on, as a replica of its successor.
#[tokio::test]
async fn a_failover_that_sentinels_are_asked_for_keeps_the_holder_and_reads_nothing_from_the_former_master() {
    let Some(group) = Group::start(SOON_MS) else { return };
    let (store, leases) = context(&group.servers(), "asked").await;
    let (_, others) = context(&group.servers(), "asked").await;
    let leases = leases.lease(LONG_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    let others = others.lease(LONG_LEASE).store_timeout(SHORT_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(others.lock("k").acquire());
    while leases.status("k").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    let _: String = group.sentinels[0].ask(&["SENTINEL", "FAILOVER", "mymaster"]);
    group.master.wait_for::<String>(&["INFO", "replication"], |info| info.contains("role:slave"));
    while !matches!(guard.verify().await, Ok(true)) {
        assert!(guard.is_valid(), "the new master knows the lease");
    }
    guard.fence(store.script("return redis.call('SET', KEYS[1], 1)").key("here")).await.unwrap().unwrap();
    assert_eq!(group.replica.ask::<Option<i64>>(&["GET", "here"]), Some(1), "the former replica is the master");
    groups::are_heard_by(&group.replica, "asked", 2).await;
    guard.release().await.unwrap();
    let next = tokio::time::timeout(BUSY, waiting).await.expect("it is told").unwrap().unwrap();
    assert!(next.verify().await.unwrap());
}

/// For ten seconds, the former master still takes itself for one: what it grants meanwhile is lost.
#[tokio::test]
async fn a_former_master_grants_nothing_more_once_the_sentinels_have_announced_its_successor() {
    let Some(group) = Group::start(SOON_MS) else { return };
    let (_, busy) = context(&group.servers(), "announced").await;
    let (_, idle) = context(&group.servers(), "announced").await;
    let (busy, idle) = (busy.lease(LONG_LEASE).build().unwrap(), idle.lease(LONG_LEASE).build().unwrap());
    let _guard = busy.lock("held").acquire().await.unwrap();
    idle.lock("free").acquire().await.unwrap().release().await.unwrap();
    // Then a connection is checked before it is used.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let _: String = group.sentinels[0].ask(&["SENTINEL", "FAILOVER", "mymaster"]);
    let successor = group.replica.port().to_string();
    let names_it = |named: &Vec<String>| named.last() == Some(&successor);
    group.sentinels[0].wait_for(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"], names_it);
    tokio::time::sleep(Duration::from_millis(500)).await;
    for (leases, key) in [(&busy, "by who was busy"), (&idle, "by who was idle")] {
        let _granted = leases.lock(key).acquire().await.unwrap();
        let row = format!("lease:{key}");
        let former: String = group.master.ask(&["INFO", "replication"]);
        assert!(group.replica.ask::<bool>(&["HEXISTS", "{announced}:rows", &row]), "{key}: {former}");
    }
}

#[tokio::test]
async fn one_sentinel_that_answers_is_enough() {
    let Some(group) = shared() else { return };
    let url = format!("redis-sentinel://127.0.0.1:1,{}/mymaster/0?prefix=url", group.sentinels[1].address());
    let leases = LeaseManager::from_url(&url, TokioExecutor::new()).await.unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let store = open(&group.servers(), "url").await;
    assert!(group.master.ask::<Vec<String>>(&["HKEYS", "{url}:rows"]).contains(&"lease:k".to_owned()));
    assert_eq!(store.keys("").await.unwrap()[0].as_str(), "k", "both ways lead to one place");
    assert!(guard.verify().await.unwrap());
    let other = Client::open(format!("redis://{}/3", group.sentinels[0].address())).unwrap();
    let login = RedisConnectionInfo::default().set_db(3);
    let sentinels = [Client::open(format!("redis://{}", other.get_connection_info().addr())).unwrap()];
    let elsewhere = open(&RedisServers::sentinel("mymaster", sentinels, login), "url").await;
    assert_ne!(elsewhere.reach(), store.reach(), "another database is another place");
}

/// Checks that a connection is refused with all these words, and returns whether trying again may help.
async fn refused(url: &str, words: &[&str]) -> bool {
    let error = RedisStore::connect(url).await.expect_err("it is refused");
    for word in words {
        assert!(error.message.contains(word), "{word:?} is not in: {error}");
    }
    assert!(error.applied == Applied::No && !error.message.contains("secret"), "{error}");
    assert_eq!(error.kind, if error.retry { StoreErrorKind::Unavailable } else { StoreErrorKind::Unsupported });
    error.retry
}

#[tokio::test]
async fn sentinels_that_lead_to_no_master_are_reported() {
    let Some(group) = shared() else { return };
    let hosts = group.hosts();
    assert!(!refused(&format!("redis-sentinel://{hosts}/another"), &["\"another\"", "SENTINEL MASTERS"]).await);
    assert!(refused("redis-sentinel://127.0.0.1:1,127.0.0.1:2/m", &["127.0.0.1:1", "check the host"]).await);
    // Those that do not answer may know the name.
    assert!(refused(&format!("redis-sentinel://127.0.0.1:1,{hosts}/another"), &["\"another\""]).await);
    let server = group.master.address();
    assert!(!refused(&format!("redis-sentinel://{server}/m"), &["is no Sentinel", "leave out -sentinel"]).await);
    let sentinel = group.sentinels[0].address();
    assert!(!refused(&format!("redis://{sentinel}"), &["is a Sentinel", "redis-sentinel://"]).await);
    assert!(!refused(&format!("redis-sentinel://{hosts}"), &["/mymaster"]).await);
    assert!(!refused(&format!("redis-sentinel://{hosts}//0"), &["/mymaster/0"]).await);
    let nameless = RedisServers::sentinel("", [group.sentinels[0].remote_client()], RedisConnectionInfo::default());
    let error = RedisStore::from_client(nameless).await.expect_err("it names no master");
    assert!(error.message.contains("name of the master is missing") && !error.retry, "{error}");
    assert!(!refused("redis-sentinel:///mymaster", &["name at least one"]).await);
}

/// A Sentinel that has not noticed the failover yet, as after a network partition.
#[tokio::test]
async fn a_replica_that_a_sentinel_takes_for_the_master_is_refused_as_long_as_it_is_one() {
    let Some(group) = shared() else { return };
    let outdated = Server::start_sentinel(&watching("outdated", group.replica.port(), 1, PATIENT_MS)).unwrap();
    let url = format!("redis-sentinel://{}/outdated", outdated.address());
    assert!(refused(&url, &["is a replica now", &group.replica.address()]).await, "it may be promoted");
}

#[tokio::test]
async fn sentinels_and_their_master_have_passwords_of_their_own() {
    let Some(master) = Server::start(&["--requirepass", "secret of the master"]) else { return };
    let watching = watching("m", master.port(), 1, PATIENT_MS);
    let text = format!("{watching}sentinel auth-pass m \"secret of the master\"\nrequirepass \"secret/own\"\n");
    let sentinel = Server::start_sentinel(&text).unwrap();
    let address = sentinel.address();
    assert!(!refused(&format!("redis-sentinel://{address}/m"), &["sentinel_password"]).await);
    let own = "sentinel_password=secret%2Fown";
    assert!(!refused(&format!("redis-sentinel://{address}/m?sentinel_password=secret"), &["password"]).await);
    assert!(!refused(&format!("redis-sentinel://{address}/m?{own}"), &["NOAUTH", &master.address()]).await);
    let url = format!("redis-sentinel://:secret%20of%20the%20master@{address}/m?{own}");
    let store = RedisStore::connect(&url).await.unwrap();
    store.transact(ask(1), now(), BUSY).await.unwrap();
    assert!(!format!("{store:?} {:?}", url.parse::<RedisServers>().unwrap()).contains("secret"));
}

/// The Sentinel names the address of a proxy, which stands between.
#[tokio::test]
async fn a_write_to_the_master_of_sentinels_whose_answer_is_lost_has_an_unknown_outcome_and_is_sent_once() {
    let Some(master) = Server::start(&[]) else { return };
    let proxy = proxy_before(master.port());
    let sentinel = Server::start_sentinel(&watching("m", proxy.port, 1, PATIENT_MS)).unwrap();
    let servers = RedisServers::sentinel("m", [sentinel.remote_client()], RedisConnectionInfo::default());
    let store = open(&servers, "lost").await;
    store.transact(ask(1), now(), BUSY).await.unwrap();
    let rows = || master.ask::<i64>(&["HLEN", "{lost}:rows"]);
    let before = rows();
    for (commit, session, written) in [(Commit::LosesAnswer, 2, 1), (Commit::IsLost, 3, 1)] {
        proxy.let_next_commit(commit);
        let error = store.transact(ask(session), now(), BUSY).await.expect_err("its answer was lost");
        assert_eq!((error.applied, error.retry), (Applied::Unknown, true), "{error}");
        assert_eq!(rows(), before + written, "{commit:?}");
    }
    store.transact(ask(3), now(), BUSY).await.expect("the Sentinel is asked anew");
    assert_eq!((rows(), proxy.hits()), (before + 2, 2));
}

/// The store asks the master that the Sentinels name, whatever its connection leads to.
#[tokio::test]
async fn a_store_that_was_refused_by_a_replica_asks_the_sentinels_anew() {
    let Some(group) = shared() else { return };
    let alone = Server::start(&[]).unwrap();
    let sentinel = Server::start_sentinel(&watching("moving", alone.port(), 1, PATIENT_MS)).unwrap();
    let servers = || RedisServers::sentinel("moving", [sentinel.remote_client()], RedisConnectionInfo::default());
    let store = open(&servers(), "moving").await;
    store.transact(ask(1), now(), BUSY).await.unwrap();
    let _: String = sentinel.ask(&["SENTINEL", "REMOVE", "moving"]);
    let port = group.master.port().to_string();
    let _: String = sentinel.ask(&["SENTINEL", "MONITOR", "moving", "127.0.0.1", &port, "1"]);
    let _: String = alone.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = store.transact(look(1), now(), BUSY).await.expect_err("it is a replica now");
    assert_eq!((error.applied, error.retry), (Applied::No, true), "{error}");
    store.transact(look(1), now(), BUSY).await.unwrap();
}
