//! Real processes on one store: this file runs itself as the other process.
#![cfg(unix)]

#[path = "processes/directory.rs"]
mod directory;
#[path = "processes/leases.rs"]
mod leases;
#[path = "processes/other.rs"]
mod other;
#[path = "processes/signals.rs"]
mod signals;

use other::{Other, Scratch, role, say, told};

/// What the other process does. In the first one there is no role, and nothing to do.
#[test]
fn the_other_process() {
    let Some((role, [directory])) = role() else { return };
    let directory = std::path::PathBuf::from(directory);
    match role.as_str() {
        "contestant" => leases::contend(&directory),
        "holder" => leases::hold(&directory),
        "half" => signals::obey(&directory),
        unknown => panic!("no role is called {unknown:?}"),
    }
}
