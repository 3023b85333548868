//! `RedisStore` on real servers, which the tests start and stop. This file runs itself as the other process, too.
#![cfg(unix)]
#![expect(
    clippy::disallowed_methods,
    reason = "servers and processes live in real time, and these tests have no executor"
)]

mod contract;
mod counter;
mod examples;
mod failover;
mod faults;
mod fence;
mod inputs;
#[path = "../processes/other.rs"]
mod other;
mod proxy;
#[path = "../stores/scenarios.rs"]
mod scenarios;
mod server;
#[path = "shared.rs"]
mod shared_store;
mod signals;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use leasehold::{LeaseManager, LeaseManagerBuilder, executor::TokioExecutor, store::RedisStore};
use redis::Client;
use tokio::runtime::Runtime;

use server::Server;

/// Longer than anything takes here that does not wait for the end of a lease, however busy the machine is.
const BUSY: Duration = Duration::from_secs(30);
/// So long that nothing in these tests waits for its end.
const LONG_LEASE: Duration = Duration::from_secs(3_600);
/// The shortest that a manager accepts.
const SHORT_LEASE: Duration = Duration::from_secs(1);

/// The server that most tests share, each with a prefix of its own.
fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(&[])).as_ref()
}

/// One more connection.
async fn open(client: &Client, prefix: &str) -> RedisStore {
    RedisStore::with_prefix(client.clone(), prefix).await.unwrap()
}

/// One more context, and its store.
async fn context(client: &Client, prefix: &str) -> (Arc<RedisStore>, LeaseManagerBuilder) {
    let store = Arc::new(open(client, prefix).await);
    let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new());
    (store, leases)
}

/// What the other process does. In the first one there is no role, and nothing to do.
#[test]
fn the_other_process() {
    let Some((role, [server, prefix])) = other::role() else { return };
    let client = Client::open(server).unwrap();
    let runtime = Runtime::new().unwrap();
    match role.as_str() {
        "counter" => runtime.block_on(counter::count(&client, &prefix)),
        "half" => signals::obey(&runtime, &client, &prefix),
        "writer" => fence::write_when_told(&runtime, &client, &prefix),
        unknown => panic!("no role is called {unknown:?}"),
    }
}
