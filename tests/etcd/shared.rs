//! The scenarios that need a shared store, over etcd.

use leasehold::LeaseManagerBuilder;

use crate::{manager, scenarios, server};

struct Shared {
    address: String,
    prefix: String,
}

impl Shared {
    async fn context(&self) -> LeaseManagerBuilder {
        manager(&self.address, &self.prefix).await
    }
}

/// Without an etcd there is nothing to try.
async fn open(name: &str) -> Option<Shared> {
    let address = tokio::task::spawn_blocking(server::shared).await.expect("it does not panic")?;
    Some(Shared { address, prefix: name.into() })
}

scenarios::tests!(open);
