//! Servers that die, and answers that are lost.

use std::{sync::Arc, time::Duration};

use etcd_client::DeleteOptions;
use leasehold::{
    FenceError, LeaseManager,
    executor::{TokioExecutor, process_clock},
    machine::{Acquire, Action, Applied, Batch, Beat, Key, Operation, Outcome, RequestId, SessionId, SessionStep},
    store::Store,
};
use tokio::runtime::Runtime;

use crate::{
    connect,
    contract::client,
    manager,
    proxy::Proxy,
    server::{self, Server},
};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// Long enough that nobody waits for its end.
const LONG: Duration = Duration::from_secs(3_600);

/// By other means: which revision last wrote the key, 0 if it is not there.
async fn revision(address: &str, key: &str) -> i64 {
    let found = client(address).await.get(key, None).await.unwrap();
    found.kvs().first().map_or(0, etcd_client::KeyValue::mod_revision)
}

#[test]
fn a_commit_whose_answer_is_lost_is_found_out_by_asking_again() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = Proxy::start(&address);
        let leases = manager(&proxy.address(), "lost-answer").await.lease(LONG).linger(Duration::ZERO).build().unwrap();
        let onlooker = manager(&address, "lost-answer").await.lease(LONG).build().unwrap();
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        let key = "lost-answer/record/k";
        for round in 0..3 {
            let before = revision(&address, key).await;
            proxy.mute();
            let acquire = leases.lock("k").timeout(BUSY).acquire();
            let cut = async {
                while revision(&address, key).await == before {
                    tokio::task::yield_now().await;
                }
                proxy.cut();
            };
            let (guard, ()) = futures::join!(acquire, cut);
            let guard = guard.unwrap();
            let status = onlooker.status("k").await.unwrap();
            assert_eq!(status.holders.len(), 1, "it is granted once, in round {round}");
            assert_eq!(status.holders[0].token, guard.token());
            assert!(guard.verify().await.unwrap());

            let before = revision(&address, key).await;
            proxy.mute();
            let cut = async {
                while revision(&address, key).await == before {
                    tokio::task::yield_now().await;
                }
                proxy.cut();
            };
            let (released, ()) = futures::join!(guard.release(), cut);
            drop(released);
            while !onlooker.status("k").await.unwrap().holders.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    });
}

/// A batch that opens a session and asks for a key.
fn ask(session: u128) -> Batch {
    let acquire = Action::Acquire(Acquire::new(RequestId(1), 1));
    let operation = Operation { key: Key::new("k").unwrap(), action: acquire };
    let mut batch = Batch::new(SessionId(session), vec![operation]);
    let beat = Beat { beat: 1, lease_ms: 10_000, ..Beat::default() };
    batch.step = SessionStep::Open { beat, instance: String::new() };
    batch
}

#[test]
fn a_write_without_an_answer_is_unknown_and_a_read_or_a_refused_connection_is_not() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = Proxy::start(&address);
        let store = connect(&proxy.address(), "unknown").await;
        let key = || Key::new("k").unwrap();
        let look = |session| Batch::new(SessionId(session), vec![Operation { key: key(), action: Action::Inspect }]);
        // It remembers these rows, so that the next write needs no answer to be sent.
        let first = store.transact(ask(1), process_clock(), BUSY).await.unwrap();
        assert!(matches!(first.answers[0].outcome, Outcome::Granted(_)));
        let before = revision(&address, "unknown/session/00000000000000000000000000000001").await;
        let beat = |number| {
            let mut batch = Batch::new(SessionId(1), Vec::new());
            batch.step = SessionStep::Beat(Beat { beat: number, lease_ms: 10_000, ..Beat::default() });
            batch
        };
        proxy.mute();
        let error = store.transact(beat(2), process_clock(), Duration::from_millis(700)).await.unwrap_err();
        assert_eq!((error.applied, error.retry), (Applied::Unknown, true), "{error}");
        let after = revision(&address, "unknown/session/00000000000000000000000000000001").await;
        assert!(after > before, "it was written all the same");
        // It is still mute, and reads write nothing.
        let error = store.transact(look(1), process_clock(), Duration::from_millis(300)).await.unwrap_err();
        assert_eq!((error.applied, error.retry), (Applied::No, true), "{error}");
        proxy.cut();
        store.transact(look(1), process_clock(), BUSY).await.unwrap();
    });
}

/// The client must not send a write a second time by itself.
#[test]
fn a_write_is_sent_once() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let proxy = Proxy::start(&server.address());
        let store = connect(&proxy.address(), "once").await;
        store.transact(ask(1), process_clock(), BUSY).await.unwrap();
        let before = server.transactions();
        let row = "once/session/00000000000000000000000000000001";
        let written = revision(&server.address(), row).await;
        proxy.mute();
        let mut batch = Batch::new(SessionId(1), Vec::new());
        batch.step = SessionStep::Beat(Beat { beat: 2, lease_ms: 10_000, ..Beat::default() });
        let beat = store.transact(batch, process_clock(), BUSY);
        let cut = async {
            while revision(&server.address(), row).await == written {
                tokio::task::yield_now().await;
            }
            proxy.cut();
        };
        let (answer, ()) = futures::join!(beat, cut);
        assert_eq!(answer.unwrap_err().applied, Applied::Unknown);
        // Whatever would be sent again is sent before this.
        store.keys("").await.unwrap();
        assert_eq!(server.transactions() - before, 1);
    });
}

#[test]
fn a_server_that_is_killed_and_comes_back_keeps_the_lease_and_its_queue() {
    if !server::is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    let runtime = Runtime::new().unwrap();
    let lease = Duration::from_secs(30);
    let (holder, waiter) = runtime.block_on(async {
        let open = async || manager(&server.address(), "restarted").await.lease(lease).build().unwrap();
        (open().await, open().await)
    });
    let guard = runtime.block_on(holder.lock("k").acquire()).unwrap();
    let wait = runtime.spawn({
        let waiter = waiter.clone();
        async move { waiter.lock("k").timeout(BUSY).acquire().await }
    });
    runtime.block_on(async {
        while holder.status("k").await.unwrap().queue.is_empty() {
            tokio::task::yield_now().await;
        }
    });
    server.kill();
    let down = runtime.block_on(waiter.lock("other").timeout(Duration::from_millis(500)).acquire());
    assert!(down.is_err(), "nobody is granted anything without the server");
    assert!(guard.is_valid(), "a lease outlasts an outage that is shorter");
    server.restart();
    assert!(runtime.block_on(guard.verify()).unwrap(), "the lease is still there");
    runtime.block_on(guard.release()).unwrap();
    let next = runtime.block_on(wait).unwrap().unwrap();
    assert!(next.token() > guard.token());
}

/// What somebody deleted is another store, whatever this handle remembers: it has another id.
#[test]
fn leases_of_a_store_that_was_wiped_are_lost_and_fence_nothing() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let store = Arc::new(connect(&address, "wiped").await);
        let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()).lease(LONG).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let fence = guard.fence(&*store).await.unwrap();
        let mut etcd = client(&address).await;
        etcd.delete("wiped/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
        let other = manager(&address, "wiped").await.lease(LONG).build().unwrap();
        let next = other.lock("k").try_acquire().await.unwrap().expect("nobody holds it in the new store");
        let compare = &fence.compares()[0];
        assert_ne!(revision(&address, "wiped/record/k").await, compare.mod_revision, "the old fence lets nothing pass");
        let refused = guard.fence(&*store).await.expect_err("it was granted in another store");
        assert!(matches!(refused, FenceError::Lost(_)), "{refused}");
        assert!(next.verify().await.unwrap());
    });
}
