//! Servers and addresses that cannot keep leases: the error names the value and the remedy.

use std::time::Duration;

use leasehold::{
    FenceError,
    machine::{
        Acquire, Action, Applied, Batch, Beat, Key, Monotonic, Now, Operation, RequestId, SessionId, SessionStep,
    },
    machine::{StoreError, StoreErrorKind, Wall},
    store::{RedisStore, Store, from_url},
};
use redis::Client;
use tokio::time::sleep;

use crate::{BUSY, LONG_LEASE, SHORT_LEASE, context, open, server::Server, shared};

/// What a connection is refused with, and that each of these words is in its sentence.
async fn refusal(client: Client, prefix: &str, words: &[&str]) -> StoreError {
    let error = RedisStore::with_prefix(client, prefix).await.expect_err("it is refused");
    for word in words {
        assert!(error.message.contains(word), "{word:?} is not in: {error}");
    }
    assert_eq!(error.applied, Applied::No, "{error}");
    error
}

async fn refused(url: &str, words: &[&str]) -> StoreError {
    refusal(Client::open(url).unwrap(), "inputs", words).await
}

/// A context opens, and asks for a key.
pub(crate) fn ask(session: u128) -> Batch {
    let acquire = Action::Acquire(Acquire::new(RequestId(1), 1));
    let mut batch = Batch::new(SessionId(session), vec![Operation { key: Key::new("k").unwrap(), action: acquire }]);
    let beat = Beat { beat: 1, lease_ms: 10_000, ..Beat::default() };
    batch.step = SessionStep::Open { beat, instance: String::new() };
    batch
}

/// It looks, and writes nothing.
pub(crate) fn look(session: u128) -> Batch {
    let look = Operation { key: Key::new("k").unwrap(), action: Action::Inspect };
    Batch::new(SessionId(session), vec![look])
}

pub(crate) fn now() -> Now {
    Now { monotonic: Monotonic::from_ms(1_000), wall: Wall::from_ms(1_000_000) }
}

#[tokio::test]
async fn an_address_that_leads_nowhere_is_told() {
    let error = RedisStore::connect("http://example.org").await.expect_err("it is no address of a Redis");
    assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false));
    assert!(error.message.contains("redis://user:password@host:6379/0"), "{error}");

    let words = ["no-such-host.invalid:6379", "the host name was not found; check \"no-such-host.invalid\""];
    let unknown = refused("redis://no-such-host.invalid/", &words).await;
    assert_eq!((unknown.kind, unknown.retry), (StoreErrorKind::Unavailable, true));
    refused("redis://127.0.0.1:1/", &["127.0.0.1:1", "that the server runs"]).await;
    refused("unix:///no/such/socket", &["/no/such/socket"]).await;
}

/// Such a server closes the connection, and its reason may be lost.
#[tokio::test]
async fn a_server_without_a_place_for_another_client_is_told() {
    let Some(server) = Server::start(&["--maxclients", "1"]) else { return };
    let _only = server.client().get_multiplexed_async_connection().await.unwrap();
    refusal(server.client(), "inputs", &["maxclients"]).await;
}

/// Between the two commands that create the store's row and read it.
#[tokio::test]
async fn a_store_that_is_cleared_while_it_is_opened_is_not_taken_for_one_without_an_id() {
    let Some(server) = Server::start(&[]) else { return };
    let clears = async {
        let mut connection = server.client().get_multiplexed_async_connection().await.unwrap();
        loop {
            let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
        }
    };
    let opens = async {
        loop {
            if let Err(error) = RedisStore::with_prefix(server.client(), "inputs").await {
                return error;
            }
        }
    };
    let told = tokio::time::timeout(BUSY, async {
        tokio::select! { error = opens => error, () = clears => unreachable!("it goes on") }
    });
    let error = told.await.expect("it is cleared in between");
    assert!(error.message.contains("cleared the store") && error.retry, "{error}");
}

/// Otherwise the first server would be taken for a part of the password.
#[tokio::test]
async fn a_user_that_is_repeated_before_each_server_is_refused() {
    for (kind, end) in [("cluster", ""), ("sentinel", "/mymaster")] {
        let url = format!("redis-{kind}://me:secret@127.0.0.1:1,me:secret@127.0.0.1:2{end}");
        let error = from_url(&url).await.expect_err("it is no address");
        assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false), "{error}");
        assert!(error.message.contains("once, before the first server"), "{error}");
        assert!(!error.message.contains("secret"), "{error}");
    }
}

/// The tests' own client is built without TLS.
#[tokio::test]
async fn an_address_that_asks_for_tls_names_the_feature_and_the_other_way() {
    let url = "rediss://:guess@127.0.0.1:6379/";
    let told = [RedisStore::connect(url).await.map(drop), from_url(url).await.map(drop)];
    for error in told.map(|opened| opened.expect_err("it cannot encrypt")) {
        assert_eq!((error.kind, error.retry, error.applied), (StoreErrorKind::Unsupported, false, Applied::No));
        for word in ["store-redis-tls", "tokio-native-tls-comp"] {
            assert!(error.message.contains(word), "{word:?} is not in: {error}");
        }
        assert!(!error.message.contains("guess"), "{error}");
    }
}

#[tokio::test]
async fn a_prefix_that_would_break_the_names_is_refused() {
    let Some(server) = shared() else { return };
    for prefix in ["", "a{b", "}"] {
        let error = refusal(server.client(), prefix, &[&format!("{prefix:?}"), "choose one"]).await;
        assert!(!error.retry);
    }
}

#[tokio::test]
async fn a_database_that_the_server_lacks_is_reported_at_once() {
    let Some(server) = Server::start(&["--databases", "4"]) else { return };
    let port = server.port();
    let error = refused(
        &format!("redis://127.0.0.1:{port}/4"),
        &["DB index is out of range", "no database 4", "`databases`", "port/0"],
    )
    .await;
    assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false), "{error}");
    assert!(from_url(&format!("redis://127.0.0.1:{port}/3")).await.is_ok());
}

#[tokio::test]
async fn a_password_that_is_missing_or_wrong_is_told_and_not_shown() {
    let Some(server) = Server::start(&["--requirepass", "secret"]) else { return };
    let port = server.port();
    let missing = refused(&format!("redis://127.0.0.1:{port}/"), &["NOAUTH", "redis://user:password@host"]).await;
    let wrong = refused(&format!("redis://:guess@127.0.0.1:{port}/"), &["refused the password"]).await;
    let stranger = refused(&format!("redis://me:secret@127.0.0.1:{port}/"), &["refused the password"]).await;
    for error in [missing, wrong, stranger] {
        assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false), "{error}");
        assert!(!error.message.contains("guess"), "{error}");
    }
    let client = Client::open(format!("redis://:secret@127.0.0.1:{port}/")).unwrap();
    let store = open(&client, "inputs").await;
    assert!(!format!("{store:?} {:?} {:?}", store.signals(), store.script("return 1")).contains("secret"));
}

#[tokio::test]
async fn another_programs_key_under_our_name_is_left_alone() {
    let Some(server) = shared() else { return };
    let _: String = server.ask(&["SET", "{anothers}:rows", "mine"]);
    let error = refusal(server.client(), "anothers", &["WRONGTYPE", "choose another prefix"]).await;
    assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false));
    assert_eq!(server.ask::<String>(&["GET", "{anothers}:rows"]), "mine");

    let store = open(&server.client(), "anothers too").await;
    let _: String = server.ask(&["SET", "{anothers too}:sessions", "mine"]);
    let error = store.transact(ask(1), now(), BUSY).await.expect_err("it is not ours");
    assert!(error.message.contains("WRONGTYPE") && error.message.contains("choose another prefix"), "{error}");
    assert_eq!((error.applied, error.retry), (Applied::No, false));
    assert_eq!(server.ask::<Vec<String>>(&["HKEYS", "{anothers too}:rows"]), ["store"], "nothing was written");
}

#[tokio::test]
async fn a_store_of_a_newer_format_is_left_alone() {
    let Some(server) = shared() else { return };
    let newer = "{\"format\":99,\"store\":\"of another kind\"}";
    let _: i64 = server.ask(&["HSET", "{newer}:rows", "store", newer]);
    let error = refusal(server.client(), "newer", &["99", "update this program"]).await;
    assert!(!error.retry);
    let store = open(&server.client(), "older").await;
    let _: i64 = server.ask(&["HSET", "{older}:rows", "store", newer]);
    let error = store.transact(ask(1), now(), BUSY).await.expect_err("it is newer now");
    assert!(error.message.contains("99") && !error.retry, "{error}");
    assert_eq!(server.ask::<String>(&["HGET", "{older}:rows", "store"]), newer);
}

/// A manager that is connected to a demoted master would go on getting grants from it.
#[tokio::test]
async fn a_server_that_would_write_as_a_replica_is_refused() {
    let Some(server) = Server::start(&["--replica-read-only", "no"]) else { return };
    let error = refusal(server.client(), "replica", &["replica-read-only no", "set replica-read-only yes"]).await;
    assert!(!error.retry);
    let _: String = server.ask(&["CONFIG", "SET", "replica-read-only", "yes"]);
    open(&server.client(), "replica").await;
}

#[tokio::test]
async fn a_server_that_evicts_any_key_is_refused() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let error = refusal(server.client(), "evicts", &["allkeys-lru", "maxmemory-policy noeviction"]).await;
    assert!(!error.retry);
    let newer = Client::open(format!("redis://127.0.0.1:{}/?protocol=resp3", server.port())).unwrap();
    refusal(newer, "evicts", &["allkeys-lru"]).await;
    // Rows have no time to live, so that these evict none.
    let _: String = server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    open(&server.client(), "evicts").await;
}

#[tokio::test]
async fn a_server_without_memory_left_writes_nothing_and_says_so() {
    let Some(server) = Server::start(&[]) else { return };
    let (writer, leases) = context(&server.client(), "held").await;
    let leases = leases.lease(LONG_LEASE).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    let store = open(&server.client(), "memory").await;
    let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let fenced = guard.fence(writer.script("return redis.call('SET', KEYS[1], 1)").key("no room")).await;
    let quota = |error: &FenceError| {
        matches!(error, FenceError::Store(StoreError { kind: StoreErrorKind::Quota, applied: Applied::No, .. }))
    };
    assert!(fenced.as_ref().is_err_and(quota), "{fenced:?}");
    guard.fence(writer.script("return redis.call('DEL', KEYS[1])").key("no room")).await.unwrap().unwrap();
    let error = refusal(server.client(), "new", &["OOM", "maxmemory"]).await;
    assert_eq!(error.kind, StoreErrorKind::Quota);
    let looks = open(&server.client(), "held").await;
    assert_eq!(looks.keys("").await.map(|keys| keys.len()), Ok(1), "who opens a full server finds its leases");
    looks.transact(look(1), now(), BUSY).await.unwrap();
    let error = store.transact(ask(1), now(), BUSY).await.expect_err("there is no memory left");
    assert_eq!((error.kind, error.applied), (StoreErrorKind::Quota, Applied::No), "{error}");
    let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(server.ask::<Vec<String>>(&["HKEYS", "{memory}:rows"]), ["store"], "nothing was written");
    store.transact(ask(1), now(), BUSY).await.unwrap();
    let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let step = SessionStep::Beat(Beat { beat: 2, lease_ms: 10_000, ..Beat::default() });
    let beat = Batch { step, ..Batch::new(SessionId(1), Vec::new()) };
    store.transact(beat, now(), BUSY).await.expect("a heartbeat only replaces a row");
}

/// Heartbeats and releases only replace rows, so they need no memory.
#[tokio::test]
async fn a_server_without_memory_left_takes_no_lease_from_its_holder() {
    let Some(server) = Server::start(&[]) else { return };
    let (_, holder) = context(&server.client(), "full").await;
    let holder = holder.lease(SHORT_LEASE).linger(Duration::ZERO).build().unwrap();
    let (_, rival) = context(&server.client(), "full").await;
    let rival = rival.lease(SHORT_LEASE).build().unwrap();
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiter = rival.clone();
    let waits = tokio::spawn(async move { waiter.lock("k").acquire().await });
    while holder.status("k").await.unwrap().queue.is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    let _: String = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    sleep(SHORT_LEASE * 3).await;
    assert!(guard.verify().await.expect("the store answers"), "it has sent heartbeats");
    guard.release().await.expect("a release needs no memory");
    let granted = waits.await.unwrap().expect("the rival is granted the lease that was released");
    sleep(SHORT_LEASE * 3).await;
    assert!(granted.verify().await.expect("the store answers"), "it has sent heartbeats, too");
    let error = holder.lock("another").try_acquire().await.expect_err("there is no memory for a new lease");
    assert!(error.to_string().contains("maxmemory"), "{error}");
}

#[tokio::test]
async fn a_server_that_lacks_its_replicas_writes_nothing_and_says_so() {
    let Some(server) = Server::start(&[]) else { return };
    let store = open(&server.client(), "lacks").await;
    let _: String = server.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = store.transact(ask(1), now(), BUSY).await.expect_err("it has no replica");
    assert!(error.message.contains("min-replicas-to-write"), "{error}");
    assert_eq!((error.applied, error.retry), (Applied::No, true));
    assert_eq!(server.ask::<Vec<String>>(&["HKEYS", "{lacks}:rows"]), ["store"], "nothing was written");
}

#[tokio::test]
async fn a_replica_is_refused_and_nothing_is_read_from_a_master_that_became_one() {
    let Some(server) = Server::start(&[]) else { return };
    let store = open(&server.client(), "replica").await;
    // It knows nothing of what the other one writes.
    let stranger = open(&server.client(), "replica").await;
    store.transact(ask(1), now(), BUSY).await.unwrap();
    let _: String = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = refusal(server.client(), "replica", &["read replica", "connect to its master"]).await;
    assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false));
    for (store, batch) in [(&store, ask(1)), (&store, look(1)), (&store, look(2)), (&stranger, look(3))] {
        let error = store.transact(batch, now(), BUSY).await.expect_err("it is a replica now");
        assert!(error.message.contains("connect to the master"), "{error}");
        assert_eq!((error.applied, error.retry), (Applied::No, true));
    }
    let error = store.keys("").await.expect_err("a list of old rows would mislead");
    assert!(error.message.contains("connect to the master") && error.retry, "{error}");
    let _: String = server.ask(&["REPLICAOF", "NO", "ONE"]);
    store.transact(look(2), now(), BUSY).await.unwrap();
}

#[test]
fn there_must_be_a_runtime() {
    let client = Client::open("redis://127.0.0.1:1/").unwrap();
    let error = futures::executor::block_on(RedisStore::from_client(client)).unwrap_err();
    assert!(error.message.contains("call this inside one"), "{error}");
}

/// A user who may do what a store needs, and neither read the settings nor the role.
#[tokio::test]
async fn a_user_with_few_rights_is_enough_and_one_with_fewer_is_told() {
    let Some(server) = Server::start(&[]) else { return };
    let rights = "+eval +evalsha +hget +hset +hdel +hsetnx +hscan +zadd +zrem +zrangebylex +publish +subscribe +ping";
    let user = |name: &str, rights: &str| {
        let mut words = vec!["ACL", "SETUSER", name, "on", ">secret", "~{rights}:*", "&{rights}:*"];
        words.extend(rights.split(' '));
        let _: String = server.ask(&words);
        Client::open(format!("redis://{name}:secret@127.0.0.1:{}/", server.port())).unwrap()
    };
    let store = open(&user("enough", rights), "rights").await;
    store.transact(ask(1), now(), BUSY).await.unwrap();
    store.keys("").await.unwrap();
    let words = [
        "NOPERM",
        "grant them to the user",
        "TIME if it is to make reservations",
        "CONFIG|GET and INFO are recommended",
    ];
    let error = refusal(user("fewer", "+hget"), "rights", &words).await;
    assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false));
    let elsewhere = Client::open(format!("redis://enough:secret@127.0.0.1:{}/1", server.port())).unwrap();
    let error = refusal(elsewhere, "rights", &["SELECT", "grant them to the user"]).await;
    assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false));
    let older = open(&user("older", &rights.replace("+zadd ", "")), "rights").await;
    let rows = || server.ask::<i64>(&["HLEN", "{rights}:rows"]);
    let before = rows();
    let error = older.transact(ask(2), now(), BUSY).await.expect_err("it may not write the ids of sessions");
    assert!(error.message.contains("ZADD") && error.applied == Applied::No, "{error}");
    assert_eq!(rows(), before, "nothing was written");
    let reader = open(&user("reader", &rights.replace("+hset ", "")), "rights").await;
    let error = reader.transact(ask(2), now(), BUSY).await.expect_err("it may not write");
    assert!(error.message.contains("grant them to the user") && error.applied == Applied::No, "{error}");
}

/// The server says something else of a missing command than of one that the user may not run. Trying again does not help.
#[tokio::test]
async fn a_command_that_the_server_does_not_have_is_told_with_the_remedy() {
    let Some(server) = Server::start(&["--rename-command", "ZADD", "hidden"]) else { return };
    let store = open(&server.client(), "renamed").await;
    let error = store.transact(ask(1), now(), BUSY).await.expect_err("it may not write the ids of sessions");
    assert!(error.message.contains("ZADD") && error.message.contains("rename-command"), "{error}");
    assert_eq!((error.kind, error.retry, error.applied), (StoreErrorKind::Unsupported, false, Applied::No));
    assert_eq!(server.ask::<Vec<String>>(&["HKEYS", "{renamed}:rows"]), ["store"], "nothing was written");
}

/// The user has all rights that the store needs, and none on what the script writes.
#[tokio::test]
async fn a_fenced_script_whose_user_lacks_its_key_is_told_so() {
    let Some(server) = Server::start(&[]) else { return };
    let words = ["ACL", "SETUSER", "few", "on", ">secret", "~{scripts}:*", "&{scripts}:*", "+@all"];
    let _: String = server.ask(&words);
    let few = Client::open(format!("redis://few:secret@127.0.0.1:{}/", server.port())).unwrap();
    let (store, leases) = context(&few, "scripts").await;
    let guard = leases.build().unwrap().lock("k").acquire().await.unwrap();
    let refused = guard.fence(store.script("return redis.call('INCR', KEYS[1])").key("visits")).await;
    let Err(FenceError::Store(error)) = refused else { panic!("{refused:?}") };
    assert!(error.message.contains("A fenced script also needs its own keys and commands"), "{error}");
}

/// It loads for as long as the test looks: each of its keys takes a tenth of a second.
#[tokio::test]
async fn a_server_that_still_loads_its_data_is_told() {
    let Some(mut server) = Server::start(&["--rdbcompression", "no"]) else { return };
    let store = open(&server.client(), "loading").await;
    for number in 0..100 {
        let _: String = server.ask(&["SET", &format!("key {number}"), &"value ".repeat(500)]);
    }
    let _: String = server.ask(&["SAVE"]);
    server.kill();
    server.set(&["--key-load-delay", "100000", "--loading-process-events-interval-bytes", "1024"]);
    server.run_without_waiting();
    let error = loop {
        let error = RedisStore::with_prefix(server.client(), "loading").await.expect_err("it takes ten seconds");
        if !error.message.contains("cannot be reached") {
            break error;
        }
        sleep(Duration::from_millis(2)).await;
    };
    assert!(error.message.contains("LOADING") && error.message.contains("wait until"), "{error}");
    assert_eq!((error.applied, error.retry), (Applied::No, true));
    // Of the connection that broke, the first transaction learns only that it broke.
    drop(store.transact(ask(1), now(), BUSY).await.expect_err("it died"));
    let error = store.transact(ask(1), now(), BUSY).await.expect_err("it loads");
    assert_eq!((error.applied, error.retry), (Applied::No, true), "{error}");
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let Some(server) = shared() else { return };
    let store = open(&server.client(), "closed").await;
    store.close().await;
    let error = store.transact(look(1), now(), BUSY).await.expect_err("it was closed");
    assert_eq!(error.kind, StoreErrorKind::Closed);
    assert_eq!(store.keys("").await.expect_err("it was closed").kind, StoreErrorKind::Closed);
}

/// The client would ignore it, and two programs with one URL would share no leases.
#[tokio::test]
async fn a_prefix_in_the_address_is_refused_with_the_remedy() {
    let error = RedisStore::connect("redis://127.0.0.1:1/0?prefix=jobs").await.expect_err("it would be ignored");
    assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false));
    assert!(error.message.contains("connect_with_prefix"), "{error}");
}
