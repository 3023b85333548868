//! Three servers. The network cuts their leader off from the other two; all clients still reach all servers.

use std::{pin::pin, sync::Arc, time::Duration};

use etcd_client::{Txn, TxnOp};
use futures::future::{Either, select};
use leasehold::{LeaseManager, LeaseState, LostReason, executor::TokioExecutor};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use crate::{cluster::leader, connect, contract::client, fence::compares, manager, network::Cluster, server};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// Longer than an election takes, and longer than a leader that is cut off needs to notice that it no longer leads.
const LEASE: Duration = Duration::from_secs(10);

/// A cluster, the addresses of its members, and which of them leads.
async fn cluster() -> (Cluster, Vec<String>, usize) {
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let addresses = cluster.addresses();
    let leads = leader(&addresses).await.expect("one of them leads");
    (cluster, addresses, leads)
}

#[test]
fn who_reaches_only_the_server_that_is_cut_off_is_told_before_another_is_granted() {
    if !server::is_installed() {
        return;
    }
    Runtime::new().unwrap().block_on(async {
        let (cluster, addresses, alone) = cluster().await;
        let majority = &addresses[(alone + 1) % 3];
        let store = Arc::new(connect(&addresses[alone], "partition").await);
        let minority = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()).lease(LEASE).build().unwrap();
        let others = manager(majority, "partition").await.lease(LEASE).build().unwrap();
        let guard = minority.lock("k").acquire().await.unwrap();
        let fence = guard.fence(&*store).await.unwrap();
        cluster.cut_off(alone).await;

        let rival = others.lock("k").timeout(BUSY).acquire().await.unwrap();
        assert!(!guard.is_valid(), "two hold it");
        assert_eq!(guard.watch().state(), LeaseState::Suspect, "it was not told");
        assert!(rival.token() > guard.token());
        let refused = minority.lock("k").timeout(Duration::from_secs(1)).acquire().await;
        assert!(refused.is_err(), "the server that is cut off grants a lease of its own");

        cluster.heal();
        let mut etcd = client(&addresses[alone]).await;
        let late = Txn::new().when(compares(&fence)).and_then([TxnOp::put("partition-note", "late", None)]);
        let late = loop {
            match etcd.txn(late.clone()).await {
                Ok(answer) => break answer,
                // It does not know its leader yet.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        };
        assert!(!late.succeeded(), "who lost the lease writes");
        assert_eq!(timeout(BUSY, guard.lost()).await, Ok(LostReason::Expired));
        rival.release().await.unwrap();
        let again = minority.lock("k").timeout(BUSY).acquire().await.unwrap();
        assert!(again.token() > rival.token());
        futures::join!(minority.close(), others.close());
    });
}

#[test]
fn who_knows_all_servers_keeps_the_lease_when_the_one_it_uses_is_cut_off() {
    if !server::is_installed() {
        return;
    }
    Runtime::new().unwrap().block_on(async {
        let (cluster, addresses, alone) = cluster().await;
        // The first address is the first that is asked.
        let hosts = (0..3).map(|step| addresses[(alone + step) % 3].strip_prefix("etcd://").unwrap());
        let everybody = format!("etcd://{}", hosts.collect::<Vec<_>>().join(","));
        let leases = manager(&everybody, "moves").await.lease(LEASE).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let others = manager(&addresses[(alone + 1) % 3], "moves").await.build().unwrap();
        cluster.cut_off(alone).await;
        // A lease that was not renewed would be lost within this time, and the rival would hold it.
        let rival = others.lock("k").timeout(3 * LEASE).acquire();
        match select(pin!(guard.lost()), pin!(rival)).await {
            Either::Left((why, _)) => panic!("it was lost: {why:?}"),
            Either::Right((granted, _)) => assert!(granted.is_err(), "two hold it"),
        }
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        futures::join!(leases.close(), others.close());
    });
}
