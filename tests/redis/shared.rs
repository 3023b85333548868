//! The scenarios that need a shared store, over Redis.

use leasehold::LeaseManagerBuilder;
use redis::Client;

use crate::{context, scenarios, shared};

struct Shared {
    client: Client,
    prefix: String,
}

impl Shared {
    async fn context(&self) -> LeaseManagerBuilder {
        context(&self.client, &self.prefix).await.1
    }
}

#[expect(clippy::unused_async, reason = "others are opened over a network")]
async fn open(name: &str) -> Option<Shared> {
    Some(Shared { client: shared()?.client(), prefix: name.to_owned() })
}

scenarios::tests!(open);
