//! The scenarios that need a shared store, over PostgreSQL.

use leasehold::{LeaseManager, LeaseManagerBuilder, executor::TokioExecutor};

use crate::{
    scenarios::{self, removals},
    server::Place,
};

impl Place {
    async fn context(&self) -> LeaseManagerBuilder {
        LeaseManager::builder(self.store().await, TokioExecutor::new())
    }
}

impl removals::Rows for Place {
    async fn context(&self) -> LeaseManagerBuilder {
        Self::context(self).await
    }

    async fn remove(&self, key: &str) {
        let remove = format!("DELETE FROM {}_record WHERE key = $1", self.prefix);
        assert_eq!(self.client().await.execute(&remove, &[&key.as_bytes()]).await.unwrap(), 1);
    }

    async fn wipe(&self) {
        let prefix = &self.prefix;
        let wipe = format!("TRUNCATE {prefix}_store, {prefix}_record, {prefix}_session");
        self.client().await.batch_execute(&wipe).await.unwrap();
        // It writes the only row of the first table anew.
        drop(self.store().await);
    }
}

#[expect(clippy::unused_async, reason = "others are opened over a network")]
async fn open(name: &str) -> Option<Place> {
    let (number, _) = name.split_once('_')?;
    Place::new(&format!("shared_{number}"))
}

scenarios::tests!(open);
removals::tests!(open);
