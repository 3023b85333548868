//! The contract of signals, and messages over a cut.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use etcd_client::{Client, Permission, PermissionType};
use futures::FutureExt;
use leasehold::{
    executor::process_clock,
    machine::{Action, Batch, Body, Key, Message, Operation, Outcome, RequestId, SessionId},
    signal::{
        Inbox, Notice, Signals,
        contract::{self, Half},
    },
    store::Store,
};
use tokio::runtime::{Builder, Runtime};

use crate::{
    Scratch, address_of, connect,
    contract::client,
    faults::ask,
    inputs::enable_users,
    manager, missed, prefix,
    proxy::Way,
    proxy_before, say,
    server::{self, Server},
    start, told,
};

/// Several times what a message takes.
const SETTLED: Duration = Duration::from_millis(60);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// Long enough that nobody waits for its end.
const LONG: Duration = Duration::from_secs(3_600);

async fn brought(address: &str, prefix: &str) -> Arc<dyn Signals> {
    connect(address, prefix).await.signals().expect("it brings signals")
}

#[test]
fn its_signals_keep_the_contract() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        contract::all(async || brought(&address, "signals").await, async || tokio::time::sleep(SETTLED).await).await;
    });
}

/// The other process: does what it is told, and answers.
pub(crate) fn obey(address: &str, prefix: &str) {
    let runtime = Runtime::new().unwrap();
    let half = Half::new(runtime.block_on(brought(address, prefix)));
    told().for_each(|line| say(&half.obey(&line)));
}

#[test]
fn its_signals_over_two_processes_keep_the_contract() {
    let Some(address) = server::shared() else { return };
    let (scratch, runtime) = (Scratch::new(), Runtime::new().unwrap());
    let one = Half::new(runtime.block_on(brought(&address, &prefix(&scratch.0))));
    let other = Mutex::new(start("half", &scratch, &address));
    let obey = async |line: String| other.lock().unwrap().ask(&line);
    let settle = async || thread::sleep(SETTLED);
    futures::executor::block_on(contract::between(async |line: String| one.obey(&line), obey, settle));
}

/// By messages alone: a waiter would look only once in a third of an hour.
#[test]
fn a_waiter_whose_connection_was_cut_hears_of_the_release() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        let one = manager(&address, "cut").await.lease(LONG).build().unwrap();
        let two = manager(&address_of(&proxy), "cut").await.lease(LONG).build().unwrap();
        for _ in 0..3 {
            let guard = one.lock("k").timeout(BUSY).acquire().await.unwrap();
            let wait = two.lock("k").timeout(BUSY).acquire();
            let release = async {
                while one.status("k").await.unwrap().queue.is_empty() {
                    tokio::task::yield_now().await;
                }
                proxy.cut();
                guard.release().await.unwrap();
            };
            let (next, ()) = futures::join!(wait, release);
            next.unwrap().release().await.unwrap();
        }
    });
}

/// Each time, the server reads on from the last message that the context has heard.
#[test]
fn a_context_whose_connections_are_cut_at_once_watches_ever_more_rarely() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&server.address());
        let one = Half::new(brought(&address_of(&proxy), "often").await);
        one.obey("wake 1");
        let (mut seen, since) = (0, Instant::now());
        // In a second, equal pauses of 20 ms would allow 50 watches. If each pause is twice as long as the one before, there are about 6.
        // On a busy machine, the first watch alone may take a second.
        while since.elapsed() < Duration::from_secs(1) || seen < 2 {
            assert!(since.elapsed() < BUSY, "it does not watch again");
            if server.begun("Watch") > seen {
                seen = server.begun("Watch");
                proxy.cut();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let begun = server.begun("Watch");
        assert!(begun < 12, "{begun} times");
    });
}

/// A server lets a token expire that nobody has used for a while, and ends a watch that is opened with it.
#[test]
fn a_waiter_whose_token_has_expired_hears_of_the_release() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&["--auth-token-ttl", "1"]);
    Runtime::new().unwrap().block_on(async {
        let mut etcd = client(&server.address()).await;
        enable_users(&mut etcd).await;
        let proxy = proxy_before(&server.address());
        let open = async |port: u16| {
            let address = format!("etcd://worker:p%40ss@127.0.0.1:{port}");
            manager(&address, "leasehold").await.lease(LONG).build().unwrap()
        };
        let (one, two) = (open(server.port).await, open(proxy.port).await);
        let guard = one.lock("k").timeout(BUSY).acquire().await.unwrap();
        let wait = two.lock("k").timeout(BUSY).acquire();
        let release = async {
            while one.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            // The server looks for expired tokens once a second.
            tokio::time::sleep(Duration::from_secs(4)).await;
            proxy.cut();
            guard.release().await.unwrap();
        };
        let (next, ()) = futures::join!(wait, release);
        next.unwrap().release().await.unwrap();
    });
}

/// The server checks the password for each new connection, and that takes long.
#[test]
fn a_user_who_may_not_read_messages_keeps_its_connection() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let mut etcd = client(&server.address()).await;
        etcd.role_add("deaf").await.unwrap();
        for part in ["store", "record/", "session/", "reserved/"] {
            let part = Permission::new(PermissionType::Readwrite, format!("leasehold/{part}")).with_prefix();
            etcd.role_grant_permission("deaf", part).await.unwrap();
        }
        etcd.user_add("deaf", "p", None).await.unwrap();
        etcd.user_grant_role("deaf", "deaf").await.unwrap();
        enable_users(&mut etcd).await;
        let leases = manager(&format!("etcd://deaf:p@127.0.0.1:{}", server.port), "leasehold").await;
        let leases = leases.lease(LONG).build().unwrap();
        let first = server.calls("Authenticate");
        let guard = leases.lock("k").timeout(BUSY).acquire().await.unwrap();
        let looks = async |limit| {
            let since = Instant::now();
            while since.elapsed() < limit {
                leases.status("k").await.unwrap();
            }
        };
        // The token may have expired, so the first refusal of a watch costs the connection. The next call opens another one, or several
        // calls at the same time open one each, perhaps before the lease is granted: the looks give all of them time to connect.
        looks(Duration::from_secs(4)).await;
        while server.calls("Authenticate") == first {
            looks(Duration::from_secs(4)).await;
        }
        let before = server.calls("Authenticate");
        // This is long enough for two more watches, whatever the pauses between them.
        looks(Duration::from_secs(5)).await;
        assert_eq!(server.calls("Authenticate"), before, "it connected again");
        guard.release().await.unwrap();
    });
}

/// The transaction that releases the lease also notifies the next holder, once the releasing context has an etcd lease for messages. That
/// context has read the queue already: otherwise it would first read the queue, and then the session of the next holder.
#[test]
fn a_hand_off_costs_one_transaction_and_no_other_write() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let open = async || manager(&server.address(), "one").await.lease(LONG).linger(Duration::ZERO).build().unwrap();
        let (giver, heir) = (open().await, open().await);
        let (mut costs, since) = (Vec::new(), Instant::now());
        // On a busy machine, the server may tell the giver late that somebody waits. Then the giver has not read the queue yet.
        while !costs.ends_with(&[(1, 0), (1, 0)]) {
            assert!(since.elapsed() < BUSY, "transactions and other writes of each release: {costs:?}");
            let guard = giver.lock("k").acquire().await.unwrap();
            let heir = heir.clone();
            let waiting = tokio::spawn(async move { heir.lock("k").acquire().await.unwrap() });
            // Waits until the waiter is in the queue, and all messages about it are sent.
            let mut said = u64::MAX;
            while said != server.calls("Put") || giver.status("k").await.unwrap().queue.is_empty() {
                said = server.calls("Put");
                for _ in 0..10 {
                    giver.status("k").await.unwrap();
                }
            }
            let before = (server.transactions(), server.calls("Put"));
            guard.release().await.unwrap();
            let inherited = waiting.await.unwrap();
            costs.push((server.transactions() - before.0, server.calls("Put") - before.1));
            inherited.release().await.unwrap();
        }
    });
}

/// The server loses the etcd lease of a store's messages. Grants must not fail because of that.
#[test]
fn a_lease_is_handed_on_although_no_message_can_go_with_it() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let open = async || manager(&server.address(), "bin").await.lease(LONG).linger(Duration::ZERO).build().unwrap();
        let (giver, heir, mut etcd) = (open().await, open().await, client(&server.address()).await);
        for number in 0..3 {
            let guard = giver.lock("k").acquire().await.unwrap();
            let heir = heir.clone();
            let waiting = tokio::spawn(async move { heir.lock("k").acquire().await.unwrap() });
            while giver.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            let leases = etcd.leases().await.unwrap();
            assert!(number == 0 || !leases.leases().is_empty(), "its messages go away");
            for lease in leases.leases() {
                etcd.lease_revoke(lease.id()).await.unwrap();
            }
            guard.release().await.unwrap();
            waiting.await.unwrap().release().await.unwrap();
        }
    });
}

/// Nor may the outcome of the release be unknown: the holder would have to find out, and meanwhile nobody would be granted the key.
#[test]
fn a_release_is_certain_although_no_message_can_go_with_it() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    Runtime::new().unwrap().block_on(async {
        let (store, mut etcd) = (connect(&server.address(), "sure").await, client(&server.address()).await);
        let granted = store.transact(ask(1), process_clock(), BUSY).await.unwrap();
        let Outcome::Granted(granted) = granted.answers[0].outcome.clone() else { panic!("{granted:?}") };
        let mut waiter = ask(2);
        let Action::Acquire(acquire) = &mut waiter.operations[0].action else { panic!("it acquires") };
        acquire.wait = true;
        let reply = store.transact(waiter, process_clock(), BUSY).await.unwrap();
        let signals = store.signals().unwrap();
        let inbox: Arc<dyn Inbox> = Arc::new(Deaf);
        signals.wake(SessionId(1), false, Arc::downgrade(&inbox));
        let key = Key::new("k").unwrap();
        let body = Body::Gone { holder: SessionId(1) };
        signals.send(&Message { store: reply.store, key: key.clone(), body });
        while etcd.leases().await.unwrap().leases().is_empty() || server.calls("Put") == 0 {
            tokio::task::yield_now().await;
        }
        for lease in etcd.leases().await.unwrap().leases() {
            etcd.lease_revoke(lease.id()).await.unwrap();
        }
        let action = Action::Release { token: granted.block.first, request: RequestId(1) };
        let batch = Batch::new(SessionId(1), vec![Operation { key, action }]);
        let reply = store.transact(batch, process_clock(), BUSY).await.unwrap();
        assert_eq!(reply.answers[0].outcome, Outcome::Released);
        let promoted: Vec<_> = reply.answers[0].promoted.iter().map(|heir| (heir.holder, heir.told)).collect();
        assert_eq!(promoted, [(SessionId(2), false)], "it is granted the key, and the manager must notify it");
    });
}

/// What hears nothing.
struct Deaf;

impl Inbox for Deaf {
    fn notice(&self, _notice: Notice) {}
}

/// Its watches began at a revision that the cluster has not come to yet.
#[test]
fn a_waiter_hears_of_the_release_in_a_cluster_that_lost_its_data() {
    if !server::is_installed() {
        return;
    }
    let (mut server, runtime) = (Server::start(&[]), Runtime::new().unwrap());
    let open = async || manager(&server.address(), "lost").await.lease(LONG).linger(Duration::ZERO).build().unwrap();
    let (one, two) = runtime.block_on(async {
        let (one, two) = (open().await, open().await);
        for _ in 0..50 {
            one.lock("k").timeout(BUSY).acquire().await.unwrap().release().await.unwrap();
            two.lock("k").timeout(BUSY).acquire().await.unwrap().release().await.unwrap();
        }
        (one, two)
    });
    server.wipe();
    server.restart();
    runtime.block_on(async {
        let guard = one.lock("k").timeout(BUSY).acquire().await.unwrap();
        let wait = two.lock("k").timeout(BUSY).acquire();
        let release = async {
            while one.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            guard.release().await.unwrap();
        };
        // Whoever is not told looks once in a quarter of an hour.
        let (next, ()) = futures::join!(wait, release);
        next.unwrap().release().await.unwrap();
    });
}

/// Compacts away all that was written until now, so that no watch can begin there.
async fn compact(etcd: &mut Client) {
    let newest = etcd.put("compacted-note", "milk", None).await.unwrap().header().unwrap().revision();
    etcd.compact(newest, None).await.unwrap();
}

/// What was said until then is compacted away, so that a watch cannot begin there. In a server of its own, where nobody else's
/// messages are.
#[test]
fn a_waiter_whose_watch_fell_behind_a_compaction_hears_of_the_release() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let address = server.address();
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        let one = manager(&address, "compacted").await.lease(LONG).build().unwrap();
        let two = manager(&address_of(&proxy), "compacted").await.lease(LONG).build().unwrap();
        let mut etcd = client(&address).await;
        let guard = one.lock("k").timeout(BUSY).acquire().await.unwrap();
        let wait = two.lock("k").timeout(BUSY).acquire();
        let release = async {
            while one.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            compact(&mut etcd).await;
            proxy.cut();
            guard.release().await.unwrap();
        };
        let (next, ()) = futures::join!(wait, release);
        next.unwrap().release().await.unwrap();
    });
}

/// What it missed is compacted away before it is connected again.
#[test]
fn a_waiter_whose_message_was_compacted_away_reads_the_store_once_it_watches_again() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let address = server.address();
    Runtime::new().unwrap().block_on(async {
        let proxy = proxy_before(&address);
        let open = async |address: &str| manager(address, "missed").await.lease(LONG).build().unwrap();
        let (holder, waiter) = (open(&address).await, open(&address_of(&proxy)).await);
        let compact = async || compact(&mut client(&address).await).await;
        missed::a_waiter_that_missed_a_message_reads_the_store_once_reconnected(&holder, &waiter, &proxy, compact)
            .await;
    });
}

/// Without the message, the waiter would look only every 20 minutes.
#[test]
fn who_closes_and_ends_its_runtime_has_told_the_waiter_before() {
    let Some(address) = server::shared() else { return };
    let proxy = proxy_before(&address);
    let (leaving, staying) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let one = leaving.block_on(manager(&address_of(&proxy), "farewell")).lease(LONG).build().unwrap();
    let guard = leaving.block_on(one.lock("k").acquire()).unwrap();
    let two = staying.block_on(manager(&address, "farewell")).lease(LONG).build().unwrap();
    let waiter = staying.spawn(two.lock("k").timeout(BUSY).acquire());
    staying.block_on(async {
        while two.status("k").await.unwrap().queue.is_empty() {
            tokio::task::yield_now().await;
        }
    });
    // The message takes more round trips than the end of the session.
    proxy.delay(Way::ToServer, Duration::from_millis(50));
    leaving.block_on(async {
        guard.release().await.unwrap();
        one.close().await;
    });
    drop(leaving);
    assert!(staying.block_on(waiter).unwrap().is_ok(), "it was not told");
    staying.block_on(two.close());
}

/// A current-thread runtime whose `block_on` has returned still lives, but nothing drives it.
#[test]
fn a_store_without_messages_under_way_is_closed_though_nobody_drives_its_runtime() {
    let Some(address) = server::shared() else { return };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(connect(&address, "undriven"));
    assert!(store.close().now_or_never().is_some());
}
