//! `RedisStore` on real servers, which the tests start and stop. This file runs itself as the other process, too.
#![cfg(unix)]
#![expect(
    clippy::disallowed_methods,
    reason = "servers and processes live in real time, and these tests have no executor"
)]

#[path = "../stores/absences.rs"]
mod absences;
mod clocks;
mod cluster;
mod contention;
mod contract;
mod counter;
#[path = "../stores/delays.rs"]
mod delays;
mod distant;
mod examples;
mod failover;
#[path = "../stores/far.rs"]
mod far;
mod faults;
mod fence;
mod groups;
#[path = "../histories/mod.rs"]
mod histories;
mod inputs;
#[path = "../stores/clocks.rs"]
mod jumps;
#[path = "../stores/killed.rs"]
mod killed;
#[path = "../stores/leases.rs"]
mod leases;
#[path = "../stores/missed.rs"]
mod missed;
#[path = "../stores/names.rs"]
mod names;
#[path = "../processes/other.rs"]
mod other;
#[path = "../stores/outage.rs"]
mod outage;
#[path = "../processes/port.rs"]
mod port;
#[path = "../processes/proxy.rs"]
mod proxy;
mod real;
mod renewals;
#[path = "../stores/renewals.rs"]
mod renewing;
mod runtimes;
#[path = "../stores/scenarios.rs"]
mod scenarios;
mod sentinel;
mod server;
#[path = "shared.rs"]
mod shared_store;
mod signals;
#[path = "../processes/skipped.rs"]
mod skipped;
mod slow;
#[path = "../stores/still.rs"]
mod still;
mod takeovers;
#[path = "../stores/threads.rs"]
mod threads;
#[path = "../processes/until.rs"]
mod until;
#[path = "../processes/wall_clock.rs"]
mod wall_clock;
#[path = "../stores/warnings.rs"]
mod warnings;
#[path = "../stores/ways.rs"]
mod ways;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use leasehold::{
    LeaseManager, LeaseManagerBuilder,
    executor::TokioExecutor,
    store::{RedisServers, RedisStore},
};
use redis::Client;
use tokio::runtime::Runtime;

use jumps::LEASE;
use proxy::{Proxy, Wire};
use server::Server;

/// Longer than anything takes here that does not wait for the end of a lease, however busy the machine is.
const BUSY: Duration = Duration::from_secs(30);
/// Long enough that nothing in these tests waits for its end.
const LONG_LEASE: Duration = Duration::from_secs(3_600);
/// The shortest that a manager accepts.
const SHORT_LEASE: Duration = Duration::from_secs(1);

/// The server that most tests share, each with a prefix of its own.
fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(&[])).as_ref()
}

/// A proxy in front of the server at this port. Every script counts as a commit.
fn proxy_before(port: u16) -> Proxy {
    Proxy::start(port, Wire { commit: b"EVAL", committed: b"" })
}

fn client_of(proxy: &Proxy) -> Client {
    Client::open(format!("redis://127.0.0.1:{}/", proxy.port)).unwrap()
}

/// One more connection.
async fn open(servers: &(impl Into<RedisServers> + Clone), prefix: &str) -> RedisStore {
    RedisStore::with_prefix(servers.clone(), prefix).await.unwrap()
}

/// One more context, and its store.
async fn context(servers: &(impl Into<RedisServers> + Clone), prefix: &str) -> (Arc<RedisStore>, LeaseManagerBuilder) {
    let store = Arc::new(open(servers, prefix).await);
    let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new());
    (store, leases)
}

/// What the other process does. In the first one there is no role, and nothing to do.
#[test]
fn the_other_process() {
    let Some((role, [server, prefix])) = other::role() else { return };
    let client = Client::open(server).unwrap();
    if real::take_part(&role, &client) || renewing::take_part(&role, async || context(&client, &prefix).await.1) {
        return;
    }
    let runtime = Runtime::new().unwrap();
    match role.as_str() {
        "counter" => runtime.block_on(counter::count(&client, &prefix)),
        "half" => signals::obey(&runtime, &client, &prefix),
        "holder" => jumps::hold(LEASE, async || context(&client, &prefix).await.1),
        "waiter" => jumps::wait(LEASE, async || context(&client, &prefix).await.1),
        "writer" => fence::write_when_told(&runtime, &client, &prefix),
        unknown => panic!("no role is called {unknown:?}"),
    }
}
