//! The scenarios that need a shared store, over Redis.

use std::time::Duration;

use leasehold::LeaseManagerBuilder;
use leasehold::store::RedisServers;

use crate::{cluster, context, scenarios, sentinel, shared};

struct Shared {
    servers: RedisServers,
    prefix: String,
    has_successors: bool,
}

/// How often the contexts read the store. A context misses what is sent while it still subscribes, and on a busy machine that takes longer
/// over a port than over a single server's socket.
const LOOK: Duration = Duration::from_millis(300);

impl Shared {
    fn new(servers: impl Into<RedisServers>, prefix: &str, has_successors: bool) -> Self {
        Self { servers: servers.into(), prefix: prefix.to_owned(), has_successors }
    }

    async fn context(&self) -> LeaseManagerBuilder {
        let (_, leases) = context(&self.servers, &self.prefix).await;
        if self.has_successors { leases.heartbeat(LOOK) } else { leases }
    }
}

mod by_one_server {
    use super::*;

    #[expect(clippy::unused_async, reason = "others are opened over a network")]
    async fn open(name: &str) -> Option<Shared> {
        Some(Shared::new(shared()?.client(), name, false))
    }

    scenarios::tests!(open);
}

mod by_sentinels {
    use super::*;

    #[expect(clippy::unused_async, reason = "others are opened over a network")]
    async fn open(name: &str) -> Option<Shared> {
        Some(Shared::new(sentinel::shared()?.servers(), name, true))
    }

    scenarios::tests!(open);
}

mod by_a_cluster {
    use super::*;

    #[expect(clippy::unused_async, reason = "others are opened over a network")]
    async fn open(name: &str) -> Option<Shared> {
        Some(Shared::new(cluster::shared()?.servers(), name, true))
    }

    scenarios::tests!(open);
}
