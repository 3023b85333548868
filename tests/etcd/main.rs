//! The etcd store: its contract, signals, fenced writes, and servers that are killed, cut off and moved.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time and real tasks")]

mod contract;
#[path = "../stores/scenarios.rs"]
mod scenarios;
mod server;
mod shared;

use leasehold::{LeaseManager, LeaseManagerBuilder, executor::TokioExecutor, store::EtcdStore};

/// A connection of its own. Each test has a prefix of its own.
async fn connect(address: &str, prefix: &str) -> EtcdStore {
    EtcdStore::connect_with_prefix(address, prefix).await.expect("it answers")
}

async fn manager(address: &str, prefix: &str) -> LeaseManagerBuilder {
    LeaseManager::builder(connect(address, prefix).await, TokioExecutor::new())
}
