//! The etcd store: its contract, signals, fenced writes, and servers that are killed, cut off and moved.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time and real tasks")]

#[path = "../stores/absences.rs"]
mod absences;
#[cfg(feature = "store-etcd-tls")]
#[path = "../processes/certificates.rs"]
mod certificates;
mod clocks;
mod cluster;
mod contention;
mod contract;
mod counter;
#[path = "../stores/delays.rs"]
mod delays;
mod division;
#[path = "../stores/far.rs"]
mod far;
mod faults;
mod fence;
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
mod network;
#[path = "../processes/other.rs"]
mod other;
#[path = "../stores/outage.rs"]
mod outage;
mod partition;
#[path = "../processes/port.rs"]
mod port;
#[path = "../processes/proxy.rs"]
mod proxy;
mod real;
mod renewals;
#[path = "../stores/renewals.rs"]
mod renewing;
mod reservations;
#[path = "../stores/scenarios.rs"]
mod scenarios;
mod server;
mod shared;
mod signals;
#[path = "../processes/skipped.rs"]
mod skipped;
mod slow;
#[path = "../stores/still.rs"]
mod still;
mod sweeps;
#[path = "../stores/threads.rs"]
mod threads;
#[cfg(feature = "store-etcd-tls")]
mod tls;
#[path = "../processes/until.rs"]
mod until;
#[path = "../processes/wall_clock.rs"]
mod wall_clock;
#[path = "../stores/ways.rs"]
mod ways;

use leasehold::{LeaseManager, LeaseManagerBuilder, executor::TokioExecutor, store::EtcdStore};

use jumps::LEASE;
use other::{Other, Scratch, role, say, told};
use proxy::{Proxy, Wire};

/// The other process. In the first one there is no role, and nothing to do.
#[test]
fn the_other_process() {
    let Some((role, [address, prefix])) = role() else { return };
    if real::take_part(&role, &address) || renewing::take_part(&role, async || manager(&address, &prefix).await) {
        return;
    }
    match role.as_str() {
        "counter" => counter::count(&address, &prefix),
        "half" => signals::obey(&address, &prefix),
        "holder" => jumps::hold(LEASE, async || manager(&address, &prefix).await),
        "waiter" => jumps::wait(LEASE, async || manager(&address, &prefix).await),
        "writer" => fence::write(&address, &prefix),
        unknown => panic!("no role is called {unknown:?}"),
    }
}

fn start(role: &str, scratch: &Scratch, address: &str) -> Other {
    Other::start(role, &(address, prefix(&scratch.0).as_str()))
}

/// A directory is known by one test only, and so its name is.
fn prefix(directory: &std::path::Path) -> String {
    directory.file_name().expect("it has a name").to_string_lossy().into_owned()
}

/// A proxy in front of the server at this address. On the wire, commits look like everything else.
fn proxy_before(address: &str) -> Proxy {
    Proxy::start(port_of(address), Wire::default())
}

fn port_of(address: &str) -> u16 {
    address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("it has a port")
}

fn address_of(proxy: &Proxy) -> String {
    format!("etcd://127.0.0.1:{}", proxy.port)
}

/// A connection of its own. Each test has a prefix of its own.
async fn connect(address: &str, prefix: &str) -> EtcdStore {
    EtcdStore::connect_with_prefix(address, prefix).await.expect("it answers")
}

async fn manager(address: &str, prefix: &str) -> LeaseManagerBuilder {
    LeaseManager::builder(connect(address, prefix).await, TokioExecutor::new())
}
