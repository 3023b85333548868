//! The scenarios that need a shared store, over etcd.

use leasehold::{LeaseManager, LeaseManagerBuilder, executor::TokioExecutor, store::MemoryStore};
use tokio::{runtime::Handle, task::block_in_place};

use crate::{manager, scenarios, server};

enum Shared {
    Etcd(String, String),
    /// Without an etcd, the scenarios themselves are tried.
    Skipped(MemoryStore),
}

impl Shared {
    fn context(&self) -> LeaseManagerBuilder {
        match self {
            Self::Etcd(address, name) => block_in_place(|| Handle::current().block_on(manager(address, name))),
            Self::Skipped(store) => LeaseManager::builder(store.clone(), TokioExecutor::new()),
        }
    }
}

async fn open(name: &str) -> Shared {
    match tokio::task::spawn_blocking(server::shared).await.expect("it does not panic") {
        Some(address) => Shared::Etcd(address, name.into()),
        None => Shared::Skipped(MemoryStore::new()),
    }
}

scenarios::tests!(open);
