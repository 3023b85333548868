//! leasehold: each holder is a context of its own.

use std::time::Duration;

use leasehold::{
    LeaseGuard, LeaseManager,
    executor::TokioExecutor,
    store::{MemoryStore, Store},
};

use crate::contest::{Contest, Holder};

/// One key in one store.
#[derive(Default)]
pub(crate) struct Leases(MemoryStore);

impl Contest for Leases {
    type Holder = LeaseManager;

    fn holder(&self, _number: usize) -> LeaseManager {
        context(self.0.clone())
    }
}

impl Holder for LeaseManager {
    type Guard = LeaseGuard;

    async fn take(&mut self) -> LeaseGuard {
        self.lock("k").acquire().await.expect("a memory store grants")
    }

    async fn give_back(&mut self, guard: LeaseGuard) {
        guard.release().await.expect("a memory store releases");
    }
}

/// A context as it comes: it keeps a released lease for a while, in case that it is wanted again.
pub(crate) fn context(store: impl Store) -> LeaseManager {
    LeaseManager::builder(store, TokioExecutor::new()).build().expect("the default options fit together")
}

/// A context that gives a lease back to the store with each release.
pub(crate) fn eager(store: impl Store) -> LeaseManager {
    let builder = LeaseManager::builder(store, TokioExecutor::new()).linger(Duration::ZERO);
    builder.build().expect("the default options fit together")
}
