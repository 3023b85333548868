//! A process that ends soon after its work blocks no successor by a lease that lingers.

use std::time::Duration;

use leasehold::{
    LeaseManager, ReleaseOutcome, StoreError,
    machine::{Batch, Now, Reply},
    store::{MemoryStore, Reach, Store},
};

use crate::support::world::{World, everywhere, ms};

/// A store that processes share, such as a database.
#[derive(Debug, Clone)]
struct Database(MemoryStore);

#[async_trait::async_trait]
impl Store for Database {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.0.transact(batch, now, limit).await
    }

    async fn close(&self) {
        self.0.close().await;
    }

    fn reach(&self) -> Reach {
        Reach::Named("database".into())
    }
}

/// A process that released its lease and ended, without a close.
async fn run_and_end(world: &World, linger: Option<Duration>) -> Database {
    let (store, process) = (Database(world.shared.clone()), world.sim.context());
    let mut builder = LeaseManager::builder(store.clone(), process.clone());
    if let Some(linger) = linger {
        builder = builder.linger(linger);
    }
    let leases = builder.build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    process.kill();
    store
}

#[test]
fn a_process_that_ended_leaves_no_lease_in_a_store_that_others_share() {
    everywhere(async |world| {
        let store = run_and_end(world, None).await;
        let next = LeaseManager::builder(store, world.sim.context()).build().unwrap();
        assert!(next.lock("k").try_acquire().await.unwrap().is_some(), "it waits for nobody");
    });
}

#[test]
fn a_linger_that_was_chosen_stays() {
    everywhere(async |world| {
        let store = run_and_end(world, Some(ms(100))).await;
        let next = LeaseManager::builder(store, world.sim.context()).build().unwrap();
        assert!(next.lock("k").try_acquire().await.unwrap().is_none());
    });
}
