//! Messages by way of the server.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::StreamExt;
use leasehold::{
    LeaseManager,
    signal::{
        Signals,
        contract::{self, Half},
    },
    store::{RedisServers, Store},
};
use redis::Client;
use tokio::{
    runtime::{Handle, Runtime},
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use crate::{
    BUSY, LONG_LEASE, client_of, cluster, context,
    inputs::{look, now},
    missed, open,
    other::{Other, say, told},
    proxy_before,
    server::Server,
    shared,
};

/// Several times what a message takes.
const SETTLED: Duration = Duration::from_millis(60);

pub(crate) async fn signals(servers: &(impl Into<RedisServers> + Clone), prefix: &str) -> Arc<dyn Signals> {
    open(servers, prefix).await.signals().expect("the store brings its own")
}

pub(crate) async fn settle() {
    tokio::time::sleep(SETTLED).await;
}

#[tokio::test]
async fn signals_keep_the_contract() {
    let Some(server) = shared() else { return };
    contract::all(async || signals(&server.client(), "signals").await, settle).await;
}

/// The other process: does what it is told, and answers.
pub(crate) fn obey(runtime: &Runtime, client: &Client, prefix: &str) {
    let half = Half::new(runtime.block_on(signals(client, prefix)));
    told().for_each(|line| say(&half.obey(&line)));
}

#[tokio::test]
async fn signals_over_two_processes_keep_the_contract() {
    let Some(server) = shared() else { return };
    let one = Half::new(signals(&server.client(), "two").await);
    let other = Arc::new(Mutex::new(Other::start("half", &(server.url().as_str(), "two"))));
    let obey = async |line: String| {
        let other = Arc::clone(&other);
        spawn_blocking(move || other.lock().unwrap().ask(&line)).await.unwrap()
    };
    contract::between(async |line: String| one.obey(&line), obey, settle).await;
}

/// Without a message it would wait for a third of an hour: a heartbeat.
#[tokio::test]
async fn a_waiter_of_another_context_is_notified_at_once() {
    let Some(server) = shared() else { return };
    let (_, leases) = context(&server.client(), "notified").await;
    let (_, others) = context(&server.client(), "notified").await;
    let (leases, others) = (leases.lease(LONG_LEASE).build().unwrap(), others.lease(LONG_LEASE).build().unwrap());
    let awake = (leases.lock("a").acquire().await.unwrap(), others.lock("b").acquire().await.unwrap());
    // What is said while a context still subscribes is lost to it.
    while server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", "{notified}:0:all"]).1 < 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        let guard = leases.lock("k").acquire().await.unwrap();
        let waiting = others.lock("k").acquire();
        let release = async {
            while leases.status("k").await.unwrap().queue.is_empty() {}
            guard.release().await.unwrap();
        };
        let (granted, ()) = timeout(BUSY, futures::future::join(waiting, release)).await.expect("it was told");
        granted.unwrap().release().await.unwrap();
    }
    drop(awake);
}

/// A context may be in the queue before it is subscribed.
#[tokio::test]
async fn what_is_said_to_a_context_before_it_is_subscribed_is_said_again() {
    let Some(server) = shared() else { return };
    let (one, other) = (signals(&server.client(), "early").await, signals(&server.client(), "early").await);
    let (one, other) = (Half::new(one), Half::new(other));
    one.obey("wake 1");
    one.obey(
        "send {\"format\":1,\"store\":\"00000000000000000000000000000001\",\"key\":\"k\",\"kind\":\"ended\",\
         \"holder\":\"00000000000000000000000000000002\"}",
    );
    // It went out, and nobody heard it.
    settle().await;
    other.obey("wake 2");
    let heard = async {
        while !other.obey("tell").contains("\"ended\"") {
            settle().await;
        }
    };
    timeout(BUSY, heard).await.expect("it is sent again");
}

/// Otherwise a waiter that is granted a lease before it has subscribed would learn of it only at its next heartbeat.
#[tokio::test]
async fn what_a_context_that_closes_its_store_said_last_is_said_again_too() {
    let Some(server) = shared() else { return };
    let store = open(&server.client(), "last").await;
    let one = Half::new(store.signals().expect("the store brings its own"));
    let other = Half::new(signals(&server.client(), "last").await);
    one.obey("wake 1");
    one.obey(
        "send {\"format\":1,\"store\":\"00000000000000000000000000000001\",\"key\":\"k\",\"kind\":\"stolen\",\
         \"holder\":\"00000000000000000000000000000002\",\"token\":64}",
    );
    one.obey("rest");
    // It went out, and nobody heard it.
    settle().await;
    let subscribing = async {
        other.obey("wake 2");
    };
    futures::join!(store.close(), subscribing);
    drop((store, one));
    let heard = async {
        while !other.obey("tell").contains("\"stolen\"") {
            settle().await;
        }
    };
    timeout(BUSY, heard).await.expect("it is sent again");
}

/// The script that releases the lease also notifies the next holder, and sends it the record, which the next script rests on.
#[tokio::test]
async fn a_hand_off_costs_one_script_and_one_message() {
    let Some(server) = Server::start(&[]) else { return };
    let (_, giver) = context(&server.client(), "one").await;
    let (_, heir) = context(&server.client(), "one").await;
    let (giver, heir) = (giver.lease(LONG_LEASE).build().unwrap(), heir.lease(LONG_LEASE).build().unwrap());
    let guard = giver.lock("k").acquire().await.unwrap();
    // Otherwise the session of `heir` would end with its last lease, by another script.
    let awake = heir.lock("another").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let heir = heir.clone();
        async move { heir.lock("k").acquire().await.unwrap() }
    });
    let channel = format!("{{one}}:0:{}", heir.session());
    let queues = async || !giver.status("k").await.unwrap().queue.is_empty();
    while server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", &channel]).1 < 1 || !queues().await {
        tokio::task::yield_now().await;
    }
    // Waits until all messages about the waiter are sent.
    let mut said = u64::MAX;
    while said != server.calls("publish") {
        said = server.calls("publish");
        for _ in 0..10 {
            heir.status("k").await.unwrap();
        }
    }
    let before = (server.scripts(), server.calls("publish"));
    guard.release().await.unwrap();
    let inherited = waiting.await.unwrap();
    assert_eq!((server.scripts() - before.0, server.calls("publish") - before.1), (1, 1), "scripts and messages");
    let before = server.scripts();
    inherited.release().await.unwrap();
    assert_eq!(server.scripts() - before, 1, "the new holder knows the record");
    drop(awake);
}

/// Each context releases once it has heard that the other one waits, and queues again at once.
#[tokio::test]
async fn two_contexts_that_take_turns_need_two_scripts_a_turn() {
    let Some(server) = Server::start(&[]) else { return };
    let open = async || context(&server.client(), "turns").await.1.lease(LONG_LEASE).build().unwrap();
    let (mut holder, mut waiter) = (open().await, open().await);
    let keep = (holder.lock("a").acquire().await.unwrap(), waiter.lock("b").acquire().await.unwrap());
    while server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", "{turns}:0:all"]).1 < 2 {
        tokio::task::yield_now().await;
    }
    let queue = |leases: &LeaseManager| {
        let leases = leases.clone();
        tokio::spawn(async move { leases.lock("k").acquire().await.unwrap() })
    };
    let mut guard = holder.lock("k").acquire().await.unwrap();
    let mut waiting = queue(&waiter);
    let mut costs = Vec::new();
    // In the first turns the contexts also read each other's sessions. On a busy machine a message may come after the release.
    while !costs.ends_with(&[2; 4]) {
        assert!(costs.len() < 40, "scripts of each turn: {costs:?}");
        // Once nothing more is sent, the holder has heard.
        let said = || (server.calls("publish"), server.scripts());
        let mut before = (u64::MAX, u64::MAX);
        while before != said() {
            before = said();
            settle().await;
        }
        guard.release().await.unwrap();
        guard = waiting.await.unwrap();
        waiting = queue(&holder);
        std::mem::swap(&mut holder, &mut waiter);
        settle().await;
        costs.push(server.scripts() - before.1);
    }
    println!("scripts of each turn: {costs:?}");
    waiting.abort();
    drop(keep);
}

/// The message that is published when a lease is granted to the first of five waiters with this `info`.
async fn announcement(
    servers: &(impl Into<RedisServers> + Clone),
    client: &Client,
    (prefix, info): (&str, &str),
) -> String {
    let mut listener = client.get_async_pubsub().await.unwrap();
    listener.psubscribe(format!("{{{prefix}}}:0:*")).await.unwrap();
    let open = async || context(servers, prefix).await.1.lease(LONG_LEASE).build().unwrap();
    let giver = open().await;
    let guard = giver.lock("k").acquire().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let (leases, info) = (open().await, info.to_owned());
        waiting.push(tokio::spawn(async move { leases.lock("k").info(&info).acquire().await }));
    }
    while giver.status("k").await.unwrap().queue.len() < waiting.len() {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    let messages = listener.on_message().map(|message| message.get_payload::<String>().unwrap());
    let mut grants = Box::pin(messages.filter(|text| ready(text.contains("\"kind\":\"granted\""))));
    let granted = timeout(BUSY, grants.next()).await.expect("it is told");
    waiting.iter().for_each(JoinHandle::abort);
    granted.expect("the connection stands")
}

/// A long record would cost the server time, and a cluster would pass it on to all its nodes.
#[tokio::test]
async fn a_short_record_goes_with_the_message_of_its_grant_and_a_long_one_does_not() {
    let (Some(server), Some(cluster)) = (shared(), cluster::shared()) else { return };
    let client = server.client();
    let short = announcement(&client, &client, ("short", "")).await;
    assert!(short.contains("\n{\"format\":"), "{short}");
    let long = announcement(&client, &client, ("long", &"x".repeat(4_000))).await;
    assert!(!long.contains('\n'), "{long}");
    let clustered = announcement(&cluster.servers(), &cluster.client("spread"), ("spread", "")).await;
    assert!(!clustered.contains('\n'), "{clustered}");
}

/// In a server of its own, of which all such connections are cut.
#[tokio::test]
async fn a_connection_that_was_cut_is_subscribed_again() {
    let Some(server) = Server::start(&[]) else { return };
    let (one, other) = (signals(&server.client(), "cut").await, signals(&server.client(), "cut").await);
    let (one, other) = (Half::new(one), Half::new(other));
    let gone = "send {\"format\":1,\"store\":\"00000000000000000000000000000001\",\"key\":\"k\",\"kind\":\"gone\",\
                \"holder\":\"00000000000000000000000000000001\"}";
    one.obey("wake 1");
    other.obey("wake 2");
    let heard = async |least: usize| {
        let wait = async {
            while other.obey("tell").matches("\"gone\"").count() < least {
                one.obey(gone);
                settle().await;
            }
        };
        timeout(BUSY, wait).await.expect("it is heard");
    };
    heard(1).await;
    assert_eq!(server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 2, "each context listens");
    let before = other.obey("tell").matches("\"gone\"").count();
    heard(before + 1).await;
}

/// The restart cuts both connections of the context: the one for messages, and the one of its store.
#[tokio::test]
async fn a_context_is_notified_once_of_a_restart_of_the_server() {
    let Some(mut server) = Server::start(&[]) else { return };
    let store = open(&server.client(), "once").await;
    let one = Half::new(store.signals().expect("the store brings its own"));
    one.obey("wake 1");
    while server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", "{once}:0:all"]).1 == 0 {
        settle().await;
    }
    server.kill();
    server.run();
    let told = || one.obey("tell").matches("reconnected").count();
    let heard = async {
        while told() == 0 {
            settle().await;
        }
    };
    timeout(BUSY, heard).await.expect("the context is notified");
    // As a context does when it is notified.
    while store.transact(look(1), now(), BUSY).await.is_err() {}
    settle().await;
    assert_eq!(told(), 1, "the store's connection was cut, too");
}

/// As after a failover whose old server is gone without a word.
#[tokio::test]
async fn a_context_that_has_subscribed_again_hears_while_the_connection_of_its_store_is_silent() {
    let Some(server) = Server::start(&[]) else { return };
    let proxy = proxy_before(server.port());
    let one = Half::new(signals(&client_of(&proxy), "silent").await);
    let other = Half::new(signals(&server.client(), "silent").await);
    one.obey("wake 1");
    other.obey("wake 2");
    let subscribed = async || {
        while server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", "{silent}:0:all"]).1 < 2 {
            settle().await;
        }
    };
    subscribed().await;
    proxy.strand();
    server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    subscribed().await;
    let heard = async {
        while !one.obey("tell").contains("\"gone\"") {
            other.obey(
                "send {\"format\":1,\"store\":\"00000000000000000000000000000001\",\"key\":\"k\",\"kind\":\"gone\",\
                 \"holder\":\"00000000000000000000000000000001\"}",
            );
            settle().await;
        }
    };
    timeout(BUSY, heard).await.expect("it is heard");
    assert!(!one.obey("tell").contains("reconnected"), "what is said first is heard first");
}

/// Each time, the context asks the server about all that it holds.
#[tokio::test]
async fn a_context_whose_connections_are_cut_at_once_subscribes_ever_more_rarely() {
    let Some(server) = Server::start(&[]) else { return };
    let one = Half::new(signals(&server.client(), "often").await);
    one.obey("wake 1");
    let reconnected = || one.obey("tell").matches("reconnected").count();
    let since = Instant::now();
    // A second is enough for 50 pauses of 20 ms, or for 6 if each is twice as long as the one before. On a busy machine, the first
    // connection may take that long.
    while since.elapsed() < Duration::from_secs(1) || reconnected() == 0 {
        assert!(since.elapsed() < BUSY, "it does not connect again");
        if server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", "{often}:0:all"]).1 > 0 {
            server.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let told = reconnected();
    assert!(told < 12, "{told} times");
}

#[tokio::test]
async fn a_waiter_that_missed_a_message_reads_the_store_once_it_has_subscribed_again() {
    let Some(server) = shared() else { return };
    let proxy = proxy_before(server.port());
    let open = async |client: &Client| context(client, "missed").await.1.lease(LONG_LEASE).build().unwrap();
    let (holder, waiter) = (open(&server.client()).await, open(&client_of(&proxy)).await);
    missed::a_waiter_that_missed_a_message_reads_the_store_once_reconnected(&holder, &waiter, &proxy, async || {})
        .await;
}

/// A server that hangs would otherwise be waited for once for each message.
#[tokio::test]
async fn a_context_that_rests_leaves_no_task_behind_that_sends_its_messages_to_a_server_that_hangs() {
    let Some(server) = Server::start(&[]) else { return };
    let one = Half::new(signals(&server.client(), "hangs").await);
    let alive = || Handle::current().metrics().num_alive_tasks();
    let before = alive();
    one.obey("wake 1");
    let _: String = server.ask(&["CLIENT", "PAUSE", "3600000", "ALL"]);
    for _ in 0..100 {
        one.obey(
            "send {\"format\":1,\"store\":\"00000000000000000000000000000001\",\"key\":\"k\",\"kind\":\"gone\",\
             \"holder\":\"00000000000000000000000000000001\"}",
        );
    }
    assert!(alive() > before);
    one.obey("rest");
    let end = async {
        while alive() > before {
            settle().await;
        }
    };
    timeout(BUSY, end).await.expect("the task ends");
}
