//! More at one moment than one transaction of etcd takes.

use std::time::Duration;

use futures::future::join_all;
use leasehold::{LeaseGuard, LeaseManager};
use tokio::runtime::Runtime;

use crate::{manager, server};

const PATIENCE: Duration = Duration::from_secs(60);

async fn acquire_at_once(leases: &LeaseManager, many: usize) -> Vec<LeaseGuard> {
    let keys: Vec<_> = (0..many).map(|number| format!("k{number}")).collect();
    let asked = join_all(keys.iter().map(|key| leases.lock(key).timeout(PATIENCE).acquire())).await;
    asked.into_iter().map(Result::unwrap).collect()
}

/// By two contexts, so that each key has another session to look at, too.
#[test]
fn a_thousand_keys_asked_for_at_one_moment_are_granted_and_handed_over() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let one = manager(&address, "division").await.build().unwrap();
        let two = manager(&address, "division").await.build().unwrap();
        let guards = acquire_at_once(&one, 1_000).await;
        assert!(guards.iter().all(LeaseGuard::is_valid));
        let (heirs, ()) = futures::join!(acquire_at_once(&two, 1_000), one.close());
        assert!(heirs.iter().all(LeaseGuard::is_valid) && !guards.iter().any(LeaseGuard::is_valid));
        let transactions = (one.stats().transactions, two.stats().transactions);
        assert!(transactions.0 < 100 && transactions.1 < 100, "{transactions:?} transactions");
        two.close().await;
    });
}
