//! Servers that die, and answers that are lost.

use std::{sync::Arc, time::Duration};

use etcd_client::{DeleteOptions, Txn, TxnOp};
use leasehold::{
    FenceError, LeaseManager, LostReason,
    executor::{TokioExecutor, process_clock},
    machine::{Acquire, Action, Applied, Batch, Beat, Key, Operation, Outcome, RequestId, SessionId, SessionStep},
    store::{EtcdStore, Store},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::block_in_place,
    time::timeout,
};

use crate::{
    address_of, connect,
    contract::client,
    fence::{compares, deaf},
    manager, outage, proxy_before,
    server::{self, Member, Server},
    still, threads,
};

/// Longer than anything takes, however busy the machine is.
pub(crate) const BUSY: Duration = Duration::from_secs(60);
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
        let proxy = proxy_before(&address);
        let leases =
            manager(&address_of(&proxy), "lost-answer").await.lease(LONG).linger(Duration::ZERO).build().unwrap();
        let onlooker = manager(&address, "lost-answer").await.lease(LONG).build().unwrap();
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        let key = "lost-answer/record/k";
        let cut_after = async |before| {
            while revision(&address, key).await == before {
                tokio::task::yield_now().await;
            }
            proxy.cut();
        };
        for round in 0..3 {
            let before = revision(&address, key).await;
            // So what the round before may have left under way is answered. The request would wait behind it while the proxy is mute.
            leases.status("k").await.unwrap();
            proxy.mute();
            let acquire = leases.lock("k").timeout(BUSY).acquire();
            let cut = async { timeout(BUSY, cut_after(before)).await.expect("the request arrives") };
            let (guard, ()) = futures::join!(acquire, cut);
            let guard = guard.unwrap();
            let status = onlooker.status("k").await.unwrap();
            assert_eq!(status.holders.len(), 1, "it is granted once, in round {round}");
            assert_eq!(status.holders[0].token, guard.token());
            assert!(guard.verify().await.unwrap());

            let before = revision(&address, key).await;
            proxy.mute();
            let cut = async { timeout(BUSY, cut_after(before)).await.expect("the release arrives") };
            let (released, ()) = futures::join!(guard.release(), cut);
            drop(released);
            while !onlooker.status("k").await.unwrap().holders.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    });
}

/// A batch that opens a session and asks for a key.
pub(crate) fn ask(session: u128) -> Batch {
    let acquire = Action::Acquire(Acquire::new(RequestId(1), 1));
    let operation = Operation { key: Key::new("k").unwrap(), action: acquire };
    let mut batch = Batch::new(SessionId(session), vec![operation]);
    let beat = Beat { beat: 1, lease_ms: 10_000, ..Beat::default() };
    batch.step = SessionStep::Open { beat, instance: String::new() };
    batch
}

/// As behind a firewall that forgot the connection. A new one reaches the server.
#[test]
fn a_connection_that_leads_nowhere_is_left_after_one_answer_that_is_long_overdue() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        let store = connect(&address_of(&proxy), "nowhere").await;
        store.transact(ask(1), process_clock(), BUSY).await.unwrap();
        proxy.strand();
        store.transact(ask(1), process_clock(), Duration::from_secs(3)).await.unwrap_err();
        store.transact(ask(1), process_clock(), BUSY).await.unwrap();
    });
}

#[test]
fn a_write_without_an_answer_is_unknown_and_a_read_or_a_refused_connection_is_not() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        let store = connect(&address_of(&proxy), "unknown").await;
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
        // On a busy machine, it may take a while until the write is sent.
        let error = store.transact(beat(2), process_clock(), Duration::from_secs(3)).await.unwrap_err();
        assert_eq!((error.applied, error.retry), (Applied::Unknown, true), "{error}");
        let written = async {
            while revision(&address, "unknown/session/00000000000000000000000000000001").await == before {
                tokio::task::yield_now().await;
            }
        };
        timeout(BUSY, written).await.expect("it was written all the same");
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
        let proxy = proxy_before(&server.address());
        let store = connect(&address_of(&proxy), "once").await;
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

#[test]
fn who_said_for_how_long_waits_for_the_server() {
    if !server::is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&server.address(), "gone").await.build().unwrap();
        // The server is asked by a runtime of its own.
        let serve = |up| block_in_place(|| if up { server.restart() } else { server.kill() });
        outage::who_said_for_how_long_waits_for_the_server(leases, serve).await;
    });
}

#[test]
fn calls_from_a_plain_thread() {
    let Some(address) = server::shared() else { return };
    let runtime = Runtime::new().unwrap();
    let made = async || manager(&address, "threads").await.build().unwrap();
    let managers = runtime.block_on(async { [made().await, made().await, made().await] });
    threads::calls_from_a_plain_thread(runtime, managers);
}

#[test]
fn a_runtime_that_lacks_something_is_refused() {
    let url = "etcd://127.0.0.1:1";
    threads::a_runtime_that_lacks_something(url, async || EtcdStore::connect(url).await.map(drop));
}

#[test]
fn a_manager_is_closed_in_a_runtime_without_timers() {
    let Some(address) = server::shared() else { return };
    let runtime = Runtime::new().unwrap();
    let made = async || manager(&address, "bare").await;
    let managers = runtime.block_on(async { [made().await, made().await] });
    threads::closing_in_a_runtime_without_timers(runtime, managers);
}

#[test]
fn a_list_whose_runtime_ends_is_an_error() {
    let Some(address) = server::shared() else { return };
    let runtime = Runtime::new().unwrap();
    let proxy = proxy_before(&address);
    let leases = runtime.block_on(async { manager(&address_of(&proxy), "ends").await.build().unwrap() });
    drop(futures::executor::block_on(leases.list("")).unwrap());
    proxy.mute();
    let mut listed = Box::pin(leases.list(""));
    assert!(futures::executor::block_on(async { futures::poll!(listed.as_mut()).is_pending() }));
    runtime.shutdown_background();
    let told = futures::executor::block_on(listed);
    assert!(told.is_err(), "{told:?}");
}

#[test]
fn a_fence_is_asked_for_on_a_plain_thread() {
    let Some(address) = server::shared() else { return };
    let runtime = Runtime::new().unwrap();
    let store = Arc::new(runtime.block_on(connect(&address, "thread-fence")));
    let leases = runtime.block_on(async {
        LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()).lease(LONG).build().unwrap()
    });
    let guard = futures::executor::block_on(leases.lock("k").acquire()).unwrap();
    assert!(!futures::executor::block_on(guard.fence(&*store)).unwrap().compares().is_empty());
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
        let late = Txn::new().when(compares(&fence)).and_then([TxnOp::put("wiped-note", "milk", None)]);
        assert!(!etcd.txn(late).await.unwrap().succeeded(), "the old fence lets nothing pass");
        let refused = guard.fence(&*store).await.expect_err("it was granted in another store");
        assert!(matches!(refused, FenceError::Lost { .. }), "{refused}");
        assert!(next.verify().await.unwrap());
    });
}

/// A cluster without data counts its revisions from the beginning, and comes to the same ones.
#[test]
fn a_fence_from_before_a_cluster_lost_its_data_lets_nothing_pass() {
    if !server::is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    let (address, runtime) = (server.address(), Runtime::new().unwrap());
    let (_stale, fence) = runtime.block_on(async {
        // Nobody tells it of the new cluster, so that it writes nothing there.
        let (store, leases) = deaf(&address, "lost").await;
        let guard = leases.lock("k").acquire().await.unwrap();
        let fence = guard.fence(&*store).await.unwrap();
        (guard, fence)
    });
    let before = runtime.block_on(revision(&address, "lost/record/k"));
    server.wipe();
    server.restart();
    runtime.block_on(async {
        let other = manager(&address, "lost").await.lease(LONG).build().unwrap();
        let guard = other.lock("k").acquire().await.unwrap();
        assert_eq!(revision(&address, "lost/record/k").await, before, "the new record has the revision of the old one");
        let late = Txn::new().when(compares(&fence)).and_then([TxnOp::put("note", "milk", None)]);
        assert!(!client(&address).await.txn(late).await.unwrap().succeeded(), "the key has another holder");
        assert!(guard.verify().await.unwrap());
    });
}

/// What a handle remembers of the time after the backup has the revisions that others get for what they write now.
#[test]
fn a_key_that_is_held_in_a_restored_cluster_is_not_granted_by_what_was_remembered() {
    if !server::is_installed() {
        return;
    }
    let mut server = Server::start(&[]);
    let (address, runtime) = (server.address(), Runtime::new().unwrap());
    let (row, transact) = ("restored/record/k", async |store: &EtcdStore, batch: Batch| {
        let reply = store.transact(batch, process_clock(), BUSY).await.unwrap();
        reply.answers.into_iter().map(|answer| answer.outcome).collect::<Vec<_>>()
    });
    let (one, granted) = runtime.block_on(async {
        let one = connect(&address, "restored").await;
        let granted = transact(&one, ask(1)).await.remove(0);
        (one, granted)
    });
    let Outcome::Granted(granted) = granted else { panic!("{granted:?}") };
    let operation = |action| Operation { key: Key::new("k").unwrap(), action };
    let release = || operation(Action::Release { token: granted.block.first, request: RequestId(1) });
    server.back_up();
    server.restart();
    let idle = runtime.block_on(async {
        transact(&one, Batch::new(SessionId(1), vec![release()])).await;
        revision(&address, row).await
    });
    server.restore();
    server.restart();
    runtime.block_on(async {
        let other = connect(&address, "restored").await;
        let again = operation(Action::Acquire(Acquire::new(RequestId(2), 2)));
        let outcomes = transact(&other, Batch::new(SessionId(1), vec![release(), again])).await;
        assert!(matches!(outcomes[1], Outcome::Granted(_)), "{outcomes:?}");
        assert_eq!(revision(&address, row).await, idle, "it is held at the revision at which it was idle");
        let outcomes = transact(&one, ask(2)).await;
        assert!(matches!(outcomes[0], Outcome::Busy { .. }), "{outcomes:?}");
    });
}

/// Its session is older than the backup, and so its heartbeats go on.
#[test]
fn a_holder_whose_grant_alone_is_not_in_the_backup_is_told() {
    if !server::is_installed() {
        return;
    }
    let (mut server, runtime) = (Server::start(&[]), Runtime::new().unwrap());
    let address = server.address();
    let open = async || manager(&address, "backup").await.lease(LONG);
    let leases = runtime.block_on(async { open().await.heartbeat(Duration::from_secs(1)).build().unwrap() });
    let earlier = runtime.block_on(leases.lock("earlier").acquire()).unwrap();
    server.back_up();
    server.restart();
    let guard = runtime.block_on(leases.lock("k").timeout(BUSY).acquire()).unwrap();
    server.restore();
    server.restart();
    runtime.block_on(async {
        timeout(BUSY, guard.lost()).await.expect("it is told");
        assert!(earlier.verify().await.unwrap(), "what the backup has is kept");
    });
}

/// Somebody set up a new cluster under the same addresses, with another token and so another id. Nothing is lost silently, and no process
/// needs a restart.
#[test]
fn a_cluster_that_replaces_another_is_used_and_the_leases_of_the_old_one_are_lost() {
    if !server::is_installed() {
        return;
    }
    let (member, runtime) = (Member::new(), Runtime::new().unwrap());
    let start = |token: &str| {
        let server = Server::start_member(&member, &[&member], &["--initial-cluster-token", token]);
        server.wait();
        server
    };
    let mut old = start("old");
    // Each of its names must lead to the new cluster.
    let address = format!("{},localhost:{}", old.address(), member.client);
    let leases = runtime.block_on(async {
        manager(&address, "replaced").await.lease(LONG).heartbeat(Duration::from_secs(1)).build().unwrap()
    });
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    old.kill();
    let down = runtime.block_on(leases.lock("other").timeout(Duration::from_millis(300)).acquire());
    assert!(down.is_err(), "nobody answers");
    drop(old);
    let new = start("new");
    runtime.block_on(async {
        let reason = timeout(BUSY, guard.lost()).await.expect("it is told");
        assert_eq!(reason, LostReason::StoreCleared);
        let other = manager(&new.address(), "replaced").await.lease(LONG).build().unwrap();
        let next = leases.lock("k").timeout(BUSY).acquire().await.unwrap();
        assert!(next.token() > guard.token() && next.verify().await.unwrap());
        assert!(other.lock("k").try_acquire().await.unwrap().is_none(), "both use the new cluster");
        // The lease is too long to wait for its end, so a signal notifies the waiter.
        let wait = other.lock("k").timeout(BUSY).acquire();
        let release = async {
            while leases.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            next.release().await.unwrap();
        };
        assert!(futures::join!(wait, release).0.unwrap().is_valid());
    });
}

#[test]
fn calls_while_the_first_runtime_stands_still() {
    let Some(address) = server::shared() else { return };
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let leases = first.block_on(async { manager(&address, "still").await.build().unwrap() });
    still::calls_while_the_first_runtime_stands_still(&leases);
}
