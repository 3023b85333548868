//! The etcd store: its contract, signals, fenced writes, and servers that are killed, cut off and moved.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time and real tasks")]

mod cluster;
mod contract;
mod division;
mod faults;
mod fence;
mod inputs;
#[path = "../processes/other.rs"]
mod other;
mod processes;
mod proxy;
#[path = "../stores/scenarios.rs"]
mod scenarios;
mod server;
mod shared;
mod signals;

use leasehold::{LeaseManager, LeaseManagerBuilder, executor::TokioExecutor, store::EtcdStore};

use other::{Other, Scratch, role, say, told};

/// The other process. In the first one there is no role, and nothing to do.
#[test]
fn the_other_process() {
    let Some((role, [address, prefix])) = role() else { return };
    match role.as_str() {
        "counter" => processes::count(&address, &prefix),
        "half" => signals::obey(&address, &prefix),
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

/// A connection of its own. Each test has a prefix of its own.
async fn connect(address: &str, prefix: &str) -> EtcdStore {
    EtcdStore::connect_with_prefix(address, prefix).await.expect("it answers")
}

async fn manager(address: &str, prefix: &str) -> LeaseManagerBuilder {
    LeaseManager::builder(connect(address, prefix).await, TokioExecutor::new())
}
