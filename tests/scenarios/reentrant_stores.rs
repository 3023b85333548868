//! Stores that ask back: nothing outside is called while a lock is held.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use leasehold::{
    LeaseManager,
    executor::SimExecutor,
    machine::{Batch, Now, Reply, SessionId, StoreClock, StoreError},
    store::{MemoryStore, Reach, Store},
};

type Told = Arc<Mutex<Option<LeaseManager>>>;

/// A store that has a look at its manager when it is asked whether it deletes blindly.
#[derive(Debug)]
struct Curious {
    inner: MemoryStore,
    manager: Told,
}

#[async_trait::async_trait]
impl Store for Curious {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.inner.transact(batch, now, limit).await
    }

    fn abandons(&self) -> bool {
        let manager = self.manager.lock().unwrap().clone();
        manager.is_none_or(|manager| manager.stats().granted < u64::MAX)
    }

    fn abandon(&self, session: SessionId) {
        self.inner.abandon(session);
    }

    async fn close(&self) {}

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

#[test]
fn a_store_may_look_at_its_manager_when_it_is_asked_whether_it_abandons() {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let manager = Told::default();
        let store = Curious { inner: MemoryStore::new(), manager: manager.clone() };
        let leases = LeaseManager::builder(store, SimExecutor::new(1)).build().unwrap();
        *manager.lock().unwrap() = Some(leases.clone());
        leases.suspend();
        sender.send(()).unwrap();
    });
    assert!(receiver.recv_timeout(Duration::from_secs(10)).is_ok(), "`suspend` waits for itself");
}
