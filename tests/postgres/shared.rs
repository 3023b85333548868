//! The scenarios that need a shared store, over PostgreSQL.

use leasehold::{LeaseManager, LeaseManagerBuilder, executor::TokioExecutor};

use crate::{scenarios, server::Place};

impl Place {
    async fn context(&self) -> LeaseManagerBuilder {
        LeaseManager::builder(self.store().await, TokioExecutor::new())
    }
}

#[expect(clippy::unused_async, reason = "others are opened over a network")]
async fn open(name: &str) -> Option<Place> {
    let (number, _) = name.split_once('_')?;
    Place::new(&format!("shared_{number}"))
}

scenarios::tests!(open);
