//! The scenarios that need a shared store, over Redis.

use std::time::Duration;

use leasehold::{
    LeaseManagerBuilder,
    machine::{Key, Row},
    store::RedisServers,
};

use crate::{
    cluster, context,
    scenarios::{self, removals},
    sentinel, shared,
};

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

    impl removals::Rows for Shared {
        async fn context(&self) -> LeaseManagerBuilder {
            Self::context(self).await
        }

        async fn remove(&self, key: &str) {
            let rows = format!("{{{}}}:rows", self.prefix);
            let record = Row::Record(Key::new(key).unwrap()).to_string();
            assert_eq!(shared().unwrap().ask::<i64>(&["HDEL", &rows, &record]), 1);
        }

        async fn wipe(&self) {
            let [rows, sessions] = ["rows", "sessions"].map(|name| format!("{{{}}}:{name}", self.prefix));
            assert_eq!(shared().unwrap().ask::<i64>(&["DEL", &rows, &sessions]), 2);
        }
    }

    scenarios::tests!(open);
    removals::tests!(open);
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
