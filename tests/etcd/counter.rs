//! Processes count together, and are killed.

use std::{sync::Arc, time::Duration};

use etcd_client::{GetOptions, TxnOp};
use leasehold::{LeaseGuard, LeaseManager, executor::TokioExecutor};
use tokio::runtime::Runtime;

use crate::{
    Scratch, address_of, connect,
    contract::client,
    fence,
    killed::{self, Count},
    prefix,
    proxy::Way,
    proxy_before, server, start,
};

/// How long some transactions take to arrive.
const LATE: Duration = Duration::from_millis(30);

/// The other process: counts under a fence until it is killed.
pub(crate) fn count(address: &str, prefix: &str) {
    Runtime::new().unwrap().block_on(async {
        let store = Arc::new(connect(address, prefix).await);
        let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new());
        let leases = leases.lease(killed::LEASE).build().unwrap();
        // Some transactions arrive late. If their task is dropped meanwhile, another task of the manager writes first, unless the
        // manager asks the server for the next lease.
        let proxy = proxy_before(address);
        proxy.delay(Way::ToServer, LATE);
        let ways = [client(address).await, client(&address_of(&proxy)).await];
        let last = format!("{prefix}-last");
        let write = async |guard: &LeaseGuard, step| {
            let [mut etcd, late] = ways.clone();
            // Read outside of the transaction: only the lease makes that safe.
            let found = etcd.get(last.as_str(), None).await.unwrap();
            let count: u64 = found.kvs().first().map_or(0, |found| found.value_str().unwrap().parse().unwrap()) + 1;
            let told = format!("{} {step}", guard.token().as_u64());
            let counted = TxnOp::put(format!("{prefix}-counts/{count:08}"), told, None);
            let writes = [counted, TxnOp::put(last.as_str(), count.to_string(), None)];
            let mut etcd = if killed::below(2) == 0 { late } else { etcd };
            // The process is stopped and killed between the check and the write, too.
            fence::put(guard, &store, &mut etcd, writes, Duration::from_millis(10)).await
        };
        killed::count(&leases, (0..killed::TASKS).map(|_| &write)).await;
    });
}

#[test]
fn a_fenced_counter_is_exact_though_processes_are_killed() {
    let Some(address) = server::shared() else { return };
    let scratch = Scratch::new();
    let told = killed::at_random(3, || start("counter", &scratch, &address));
    Runtime::new().unwrap().block_on(async {
        let name = format!("{}-counts/", prefix(&scratch.0));
        let counts = client(&address).await.get(name.as_str(), Some(GetOptions::new().with_prefix())).await.unwrap();
        let count = |found: &etcd_client::KeyValue| -> Count {
            assert_eq!(found.version(), 1, "a count is there twice");
            let (token, step) = found.value_str().unwrap().split_once(' ').unwrap();
            let count = found.key_str().unwrap().strip_prefix(&name).unwrap();
            (count.parse().unwrap(), token.parse().unwrap(), step.parse().unwrap())
        };
        killed::judge(&told, counts.kvs().iter().map(count));
    });
}
