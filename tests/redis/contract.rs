//! The contract of all stores, and what this store says of itself.

use std::time::Duration;

use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    machine::{Action, Batch, Key, Now, Outcome, RequestId, Row, SessionId, SessionStep, StoreClock, Wall},
    store::{Durability, RedisStore, Store, contract},
};
use redis::Client;
use tokio::runtime::Runtime;

use crate::{
    BUSY, context,
    inputs::{ask, look, now},
    names, open,
    server::Server,
    shared,
    warnings::Warnings,
};

#[tokio::test]
async fn the_store_keeps_the_contract() {
    let Some(server) = shared() else { return };
    contract::all(async || open(&server.client(), "all").await).await;
}

#[tokio::test]
async fn what_cannot_be_read_is_left_as_it_is() {
    let Some(server) = shared() else { return };
    let name = |key: &str| Row::Record(Key::new(key).unwrap()).to_string();
    let write = async |key: String, text: String| {
        let _: u64 = server.ask(&["HSET", "{unreadable}:rows", &name(&key), &text]);
    };
    let read = async |key: String| server.ask(&["HGET", "{unreadable}:rows", &name(&key)]);
    contract::unreadable(async || open(&server.client(), "unreadable").await, write, read).await;
}

#[tokio::test]
async fn a_list_looks_at_no_name_that_nobody_uses() {
    let Some(server) = shared() else { return };
    names::a_list_looks_at_no_name_that_nobody_uses(async || open(&server.client(), "names").await).await;
}

/// Another program spoils the store's own row, and then restores it.
#[tokio::test]
async fn a_store_that_can_be_read_again_works_again() {
    let Some(server) = shared() else { return };
    let (store, name) = (open(&server.client(), "restored").await, Row::Store.to_string());
    let write = |text: &str| server.ask::<i64>(&["HSET", "{restored}:rows", &name, text]);
    let sound: String = server.ask(&["HGET", "{restored}:rows", &name]);
    store.transact(ask(1), now(), BUSY).await.unwrap();
    write("spoilt");
    assert!(store.transact(ask(2), now(), BUSY).await.is_err());
    write(&sound);
    // The first one may still go by the text that it remembers.
    drop(store.transact(ask(2), now(), BUSY).await);
    store.transact(ask(2), now(), BUSY).await.unwrap();
}

#[test]
fn threads_take_turns() {
    let Some(server) = shared() else { return };
    let runtime = Runtime::new().unwrap();
    contract::in_threads(async || open(&server.client(), "threads").await, |work| runtime.block_on(work));
}

/// The whole store is in one slot, so one node of a cluster will do.
#[tokio::test]
async fn a_node_of_a_cluster_keeps_the_contract() {
    let Some(server) = Server::start(&["--cluster-enabled", "yes"]) else { return };
    let refused = RedisStore::with_prefix(server.client(), "cluster").await.expect_err("nobody has its slot");
    assert!(refused.message.contains("CLUSTERDOWN") && refused.retry, "{refused}");
    let _: String = server.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    while !server.ask::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok") {
        tokio::task::yield_now().await;
    }
    contract::all(async || open(&server.client(), "cluster").await).await;
}

#[tokio::test]
async fn keys_are_listed_by_what_they_begin_with_whatever_that_is() {
    let Some(server) = shared() else { return };
    let leases = LeaseManager::builder(open(&server.client(), "listing").await, TokioExecutor::new()).build().unwrap();
    let store = open(&server.client(), "listing").await;
    let names = ["a*b", "a*c\0{}", "axb", "a[b]", "a\\b", "\u{1f98a}"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(leases.lock(name).acquire().await.unwrap());
    }
    let listed = async |prefix: &str| {
        let keys = store.keys(prefix).await.unwrap();
        keys.iter().map(|key| key.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("a*").await, ["a*b", "a*c\0{}"]);
    assert_eq!(listed("a[").await, ["a[b]"]);
    assert_eq!(listed("a\\").await, ["a\\b"]);
    assert_eq!(listed("b").await, [""; 0]);
    let mut all = names.map(String::from);
    all.sort();
    assert_eq!(listed("").await, all);
}

/// More sessions than the server tells of without being asked.
#[tokio::test]
async fn a_long_queue_is_seen_whole() {
    const WAITERS: u128 = 200;
    let Some(server) = shared() else { return };
    let store = open(&server.client(), "queue").await;
    for session in 1..=WAITERS {
        let mut batch = ask(session);
        if let Action::Acquire(acquire) = &mut batch.operations[0].action {
            acquire.wait = true;
        }
        store.transact(batch, now(), BUSY).await.unwrap();
    }
    let stranger = open(&server.client(), "queue").await;
    let reply = stranger.transact(look(1_000), now(), BUSY).await.unwrap();
    let Outcome::Status { grants, queue, sessions, .. } = &reply.answers[0].outcome else { panic!("{reply:?}") };
    let seen = (grants.len(), queue.len(), sessions.len());
    assert_eq!(seen, (1, 199, 200), "nobody is taken for ended because this process has not seen them yet");
}

#[tokio::test]
async fn new_sessions_are_told_of_others() {
    let Some(server) = shared() else { return };
    contract::new_sessions_are_told_of_others(async || open(&server.client(), "peers").await).await;
}

/// The ids of sessions stand in a set of their own, which goes with their rows.
#[tokio::test]
async fn the_ids_of_sessions_are_those_that_have_a_row() {
    let Some(server) = shared() else { return };
    let store = open(&server.client(), "ids").await;
    let ids = || server.ask::<Vec<String>>(&["ZRANGE", "{ids}:sessions", "0", "-1"]);
    for session in [3, 1, 2] {
        store.transact(ask(session), now(), BUSY).await.unwrap();
    }
    let named = |ids: &[u128]| ids.iter().map(|id| SessionId(*id).to_string()).collect::<Vec<_>>();
    assert_eq!(ids(), named(&[1, 2, 3]));
    let mut close = look(2);
    close.step = SessionStep::Close;
    store.transact(close, now(), BUSY).await.unwrap();
    assert_eq!(ids(), named(&[1, 3]));
    // Another hand deletes a row: whoever finds its id deletes that.
    let _: i64 = server.ask(&["HDEL", "{ids}:rows", &Row::Session(SessionId(3)).to_string()]);
    let reply = store.transact(ask(2), now(), BUSY).await.unwrap();
    let told: Vec<_> = reply.peers.iter().map(|peer| peer.session).collect();
    assert_eq!(told, [SessionId(1)]);
    assert_eq!(ids(), named(&[1, 2]));
}

/// In a server of its own, so that nobody else's scripts are counted.
#[tokio::test]
async fn an_acquire_and_its_release_take_one_round_trip_each() {
    let Some(server) = Server::start(&[]) else { return };
    let leases = LeaseManager::builder(open(&server.client(), "trips").await, TokioExecutor::new()).build().unwrap();
    let other = LeaseManager::builder(open(&server.client(), "trips").await, TokioExecutor::new()).build().unwrap();
    // The server learns the script, and both learn what the store has.
    leases.lock("k").acquire().await.unwrap().release().await.unwrap();
    other.lock("elsewhere").acquire().await.unwrap().release().await.unwrap();

    let trips = async |leases: &LeaseManager, key: &str| {
        let before = server.scripts();
        let guard = leases.lock(key).acquire().await.unwrap();
        let acquired = server.scripts();
        guard.release().await.unwrap();
        (acquired - before, server.scripts() - acquired)
    };
    assert_eq!(trips(&leases, "k").await, (1, 1), "a key that this process used last");
    assert_eq!(trips(&leases, "new").await, (1, 1), "a key that nobody used yet");
    assert_eq!(trips(&other, "k").await, (2, 1), "a key that another process used last");
}

#[tokio::test]
async fn all_names_of_a_server_are_one_place_and_other_databases_and_prefixes_are_others() {
    let Some(server) = shared() else { return };
    let port = server.port();
    let reach = async |url: String, prefix: &str| {
        RedisStore::with_prefix(Client::open(url).unwrap(), prefix).await.unwrap().reach()
    };
    let by_socket = reach(server.url(), "reach").await;
    assert_eq!(reach(format!("redis://127.0.0.1:{port}/0"), "reach").await, by_socket);
    assert_eq!(reach(format!("redis://localhost:{port}/"), "reach").await, by_socket);
    assert_ne!(reach(format!("redis://127.0.0.1:{port}/1"), "reach").await, by_socket);
    assert_ne!(reach(server.url(), "reach 2").await, by_socket);
}

#[tokio::test]
async fn a_store_tells_what_its_server_does_with_what_is_written() {
    let Some(server) = shared() else { return };
    let durability = async |appends: &str, syncs: &str, prefix: &str| {
        let server = Server::start(&["--appendonly", appends, "--appendfsync", syncs]).unwrap();
        open(&server.client(), prefix).await.durability()
    };
    assert_eq!(open(&server.client(), "durability").await.durability(), Durability::Ephemeral);
    assert_eq!(durability("yes", "everysec", "d").await, Durability::Ephemeral);
    assert_eq!(durability("yes", "always", "d").await, Durability::Local);
    assert_eq!(open(&server.client(), "durability").await.clock(), StoreClock::Observed);
}

#[tokio::test]
async fn who_may_not_read_the_settings_is_told_that_they_are_unchecked() {
    let Some(server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let (told, _listens) = Warnings::listen();
    let open_as = async |name: &str, rights: &[&str]| {
        let user = ["ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all", "-config"];
        let _: String = server.ask(&[&user[..], rights].concat());
        let url = format!("redis://{name}:secret@127.0.0.1:{}/", server.port());
        let store = open(&Client::open(url).unwrap(), "settings").await;
        (store.durability(), told.take())
    };
    assert_eq!(open_as("reader", &["+config|get"]).await, (Durability::Local, Vec::new()));
    let (durability, said) = open_as("blind", &[]).await;
    assert_eq!((durability, said.len()), (Durability::Ephemeral, 1), "{said:?}");
    assert!(said[0].contains("maxmemory-policy") && said[0].contains("grant its user CONFIG|GET"), "{said:?}");
}

/// A user that Redis 7 made hears nothing unless it is granted channels.
#[tokio::test]
async fn a_user_that_may_not_subscribe_gets_a_warning() {
    let Some(server) = Server::start(&[]) else { return };
    let (told, _listens) = Warnings::listen();
    let _: String = server.ask(&["ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "resetchannels"]);
    let url = format!("redis://deaf:secret@127.0.0.1:{}/", server.port());
    let (_, leases) = context(&Client::open(url).unwrap(), "deaf").await;
    let leases = leases.build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let mut said = told.take();
    while said.is_empty() {
        tokio::task::yield_now().await;
        said = told.take();
    }
    assert!(said.len() == 1 && said[0].contains("as in &{leasehold}:*"), "{said:?}");
    assert!(guard.is_valid());
}

/// Each context forgets what it no longer uses, but for the last few hundred keys. So it takes many contexts to leave many. One of them
/// ended without giving its lease back.
#[tokio::test]
async fn a_store_with_many_records_that_nobody_uses_is_swept() {
    let Some(server) = shared() else { return };
    let records = || {
        let rows: Vec<String> = server.ask(&["HKEYS", "{swept}:rows"]);
        rows.iter().filter(|row| row.starts_with("lease:")).count()
    };
    let leases = async || {
        let store = open(&server.client(), "swept").await;
        LeaseManager::builder(store, TokioExecutor::new()).linger(Duration::ZERO).build().unwrap()
    };
    let store = open(&server.client(), "swept").await;
    store.transact(ask(1), now(), BUSY).await.unwrap();
    let close = Batch { step: SessionStep::Close, ..Batch::new(SessionId(1), Vec::new()) };
    store.transact(close, now(), BUSY).await.unwrap();
    for context in 0..3 {
        let leases = leases().await;
        for name in 0..200 {
            let guard = leases.lock(&format!("{context}-{name}")).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        leases.close().await;
    }
    assert_eq!(records(), 601, "idle records stay at first");
    let leases = leases().await;
    let guard = leases.lock("0-199").acquire().await.unwrap();
    while records() > 1 {
        tokio::task::yield_now().await;
    }
    assert!(guard.is_valid());
    assert!(guard.token().as_u64() > 64, "tokens go on growing: {:?}", guard.token());
}

/// Forgetting raises the floor of tokens in the store's own row, which other contexts remember.
#[tokio::test]
async fn forgetting_a_record_makes_nobody_else_begin_anew() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, other) = (open(&server.client(), "forgets").await, open(&server.client(), "forgets").await);
    let reply = one.transact(ask(1), now(), BUSY).await.unwrap();
    let Outcome::Granted(granted) = &reply.answers[0].outcome else { panic!("{reply:?}") };
    let release = |session, key: &Key, first| {
        let mut release = look(session);
        release.operations[0].key = key.clone();
        release.operations[0].action = Action::Release { token: first, request: RequestId(1) };
        release
    };
    let (key, mut elsewhere) = (Key::new("elsewhere").unwrap(), ask(2));
    elsewhere.operations[0].key = key.clone();
    let reply = other.transact(elsewhere, now(), BUSY).await.unwrap();
    let Outcome::Granted(forgotten) = &reply.answers[0].outcome else { panic!("{reply:?}") };
    let row = || server.ask::<String>(&["HGET", "{forgets}:rows", "store"]);
    let before = row();
    let forgetting = Batch { forgets: vec![key.clone()], ..release(2, &key, forgotten.block.first) };
    other.transact(forgetting, now(), BUSY).await.unwrap();
    assert_ne!(row(), before, "the floor is raised");
    let before = server.scripts();
    one.transact(release(1, &Key::new("k").unwrap(), granted.block.first), now(), BUSY).await.unwrap();
    assert_eq!(server.scripts() - before, 1, "scripts of a release");
}

/// Whoever remembers the store from before has a clock that is behind.
#[tokio::test]
async fn the_tokens_of_a_forgotten_record_are_not_given_again_by_who_remembers_the_store_from_before() {
    let Some(server) = shared() else { return };
    let (one, other) = (open(&server.client(), "floor").await, open(&server.client(), "floor").await);
    let behind = Now { wall: Wall::from_ms(1_000), ..now() };
    one.transact(ask(1), behind, BUSY).await.unwrap();
    let (key, mut elsewhere) = (Key::new("elsewhere").unwrap(), ask(2));
    elsewhere.operations[0].key = key.clone();
    let mut release = look(2);
    release.operations[0].key = key.clone();
    let reply = other.transact(elsewhere.clone(), now(), BUSY).await.unwrap();
    let Outcome::Granted(granted) = &reply.answers[0].outcome else { panic!("{reply:?}") };
    release.operations[0].action = Action::Release { token: granted.block.first, request: RequestId(1) };
    other.transact(Batch { forgets: vec![key], ..release }, now(), BUSY).await.unwrap();
    elsewhere.session = SessionId(3);
    let reply = one.transact(elsewhere, behind, BUSY).await.unwrap();
    let Outcome::Granted(again) = &reply.answers[0].outcome else { panic!("{reply:?}") };
    assert!(again.block.first > granted.block.last, "{again:?} comes after {granted:?}");
}
