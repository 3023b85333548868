//! The contract of signals, and messages over a cut.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use leasehold::{
    signal::{
        Signals,
        contract::{self, Half},
    },
    store::Store,
};
use tokio::runtime::Runtime;

use crate::{
    Scratch, connect,
    contract::client,
    manager, prefix,
    proxy::Proxy,
    say,
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
        let proxy = Proxy::start(&address);
        let one = manager(&address, "cut").await.lease(LONG).build().unwrap();
        let two = manager(&proxy.address(), "cut").await.lease(LONG).build().unwrap();
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
        let proxy = Proxy::start(&address);
        let one = manager(&address, "compacted").await.lease(LONG).build().unwrap();
        let two = manager(&proxy.address(), "compacted").await.lease(LONG).build().unwrap();
        let mut etcd = client(&address).await;
        let guard = one.lock("k").timeout(BUSY).acquire().await.unwrap();
        let wait = two.lock("k").timeout(BUSY).acquire();
        let release = async {
            while one.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            let newest = etcd.put("compacted-note", "milk", None).await.unwrap().header().unwrap().revision();
            etcd.compact(newest, None).await.unwrap();
            proxy.cut();
            guard.release().await.unwrap();
        };
        let (next, ()) = futures::join!(wait, release);
        next.unwrap().release().await.unwrap();
    });
}
