//! Histories of processes that share a server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use etcd_client::{Client, GetOptions, Txn, TxnOp};
use leasehold::{LeaseGuard, LeaseManager, executor::TokioExecutor, store::EtcdStore};
use tokio::runtime::Runtime;

use crate::{
    Other, address_of,
    contract::client,
    fence::compares,
    histories::{Desk, Dice, Site, Written, histories, play},
    proxy_before,
    server::{self, Server},
    ways::{SPOILS, Ways},
};

const PREFIX: &str = "histories";

struct Rows {
    store: Arc<EtcdStore>,
    host: String,
    written: AtomicU64,
}

impl Rows {
    async fn try_write(&self, guard: &LeaseGuard, key: usize) -> Option<bool> {
        let (token, number) = (guard.token().as_u64(), self.written.fetch_add(1, SeqCst));
        let fence = guard.fence(&*self.store).await.ok()?;
        let put = TxnOp::put(format!("{PREFIX}-writes/{token:020}/{key}/{number}"), token.to_string(), None);
        let mut etcd = Client::connect([&self.host], None).await.ok()?;
        Some(etcd.txn(Txn::new().when(compares(&fence)).and_then([put])).await.ok()?.succeeded())
    }
}

impl Desk for Rows {
    async fn write(&self, guard: &LeaseGuard, key: usize) -> Written {
        if self.try_write(guard, key).await == Some(true) { Written::Yes } else { Written::No }
    }
}

/// Runs this process's part in a history, if it has one.
pub(crate) fn take_part(role: &str, address: &str) -> bool {
    play(role, async || {
        loop {
            // The server may be down.
            if let Ok(store) = EtcdStore::connect_with_prefix(address, PREFIX).await {
                let (store, host) = (Arc::new(store), address.replace("etcd://", ""));
                let rows = Rows { store: Arc::clone(&store), host, written: AtomicU64::new(0) };
                return (LeaseManager::builder(store, TokioExecutor::new()), rows);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

struct Etcd {
    server: Server,
    ways: Ways,
}

impl Site for Etcd {
    // The proxy cannot tell a commit from other requests.
    const SPOILS: &'static [&'static str] = SPOILS.split_last().expect("there are some").1;

    fn start(&self, slot: usize, role: &str) -> Other {
        Other::start(role, &(address_of(self.ways.of(slot)).as_str(), PREFIX))
    }

    fn spoil(&mut self, slot: usize, what: &'static str, dice: &mut Dice) {
        let Self { server, ways } = self;
        let away = Duration::from_millis(dice.below(1_000));
        ways.spoil(slot, what, dice, || {
            server.kill();
            thread::sleep(away);
            server.restart();
        });
    }

    fn heal(&mut self) {
        self.ways.heal();
    }

    fn writes(&mut self) -> Vec<(usize, u64)> {
        let found = Runtime::new().unwrap().block_on(async {
            let mut etcd = client(&self.server.address()).await;
            etcd.get(format!("{PREFIX}-writes/"), Some(GetOptions::new().with_prefix())).await.unwrap()
        });
        let mut rows: Vec<_> = found.kvs().iter().map(|row| (row.mod_revision(), row)).collect();
        rows.sort_by_key(|(revision, _)| *revision);
        let key = |row: &etcd_client::KeyValue| row.key_str().unwrap().split('/').nth(2).unwrap().parse().unwrap();
        rows.into_iter().map(|(_, row)| (key(row), row.value_str().unwrap().parse().unwrap())).collect()
    }
}

#[test]
fn histories_of_processes_and_servers_that_are_killed_break_no_promise() {
    if !server::is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let ways = Ways::new(|| proxy_before(&server.address()));
    histories(Etcd { server, ways });
}
