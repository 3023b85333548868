//! The scenarios that need a shared store, over etcd.

use etcd_client::DeleteOptions;
use leasehold::LeaseManagerBuilder;

use crate::{
    contract::client,
    manager,
    scenarios::{self, removals},
    server,
};

struct Shared {
    address: String,
    prefix: String,
}

impl Shared {
    async fn context(&self) -> LeaseManagerBuilder {
        manager(&self.address, &self.prefix).await
    }
}

impl removals::Rows for Shared {
    async fn context(&self) -> LeaseManagerBuilder {
        Self::context(self).await
    }

    async fn remove(&self, key: &str) {
        let record = format!("{}/record/{key}", self.prefix);
        assert_eq!(client(&self.address).await.delete(record, None).await.unwrap().deleted(), 1);
    }

    async fn wipe(&self) {
        let all = Some(DeleteOptions::new().with_prefix());
        client(&self.address).await.delete(format!("{}/", self.prefix), all).await.unwrap();
    }
}

/// Without an etcd there is nothing to try.
async fn open(name: &str) -> Option<Shared> {
    let address = tokio::task::spawn_blocking(server::shared).await.expect("it does not panic")?;
    Some(Shared { address, prefix: name.into() })
}

scenarios::tests!(open);
removals::tests!(open);
