//! The etcd store: its contract, signals, fenced writes, and servers that are killed, cut off and moved.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time and real tasks")]

mod cluster;
mod contract;
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
    let Some((role, directory)) = role() else { return };
    let address = std::fs::read_to_string(directory.join(ADDRESS)).expect("a role comes with a server");
    // A directory is known by one test only, and so its name is.
    let prefix = prefix(&directory);
    match role.as_str() {
        "counter" => processes::count(&address, &prefix),
        "half" => signals::obey(&address, &prefix),
        "writer" => fence::write(&address, &prefix),
        unknown => panic!("no role is called {unknown:?}"),
    }
}

/// The file that names the server to the other process.
const ADDRESS: &str = "address";

fn start(role: &str, scratch: &Scratch, address: &str) -> Other {
    let file = scratch.0.join(ADDRESS);
    // Another process may be reading it.
    if !file.exists() {
        std::fs::write(file, address).expect("the directory is there");
    }
    Other::start(role, scratch)
}

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
