//! `PostgresStore` on a real server, which these tests start and stop. This file runs itself as the other process.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time, and tasks of the tests' own")]

#[path = "postgres/bad_input.rs"]
mod bad_input;
#[path = "postgres/contract.rs"]
mod contract;
#[path = "postgres/counter.rs"]
mod counter;
#[path = "postgres/faults.rs"]
mod faults;
#[path = "postgres/fence.rs"]
mod fence;
#[path = "postgres/measure.rs"]
mod measure;
#[path = "postgres/other.rs"]
mod other;
#[path = "postgres/pooler.rs"]
mod pooler;
#[path = "postgres/proxy.rs"]
mod proxy;
#[path = "postgres/server.rs"]
mod server;
#[path = "postgres/signals.rs"]
mod signals;

use other::Role;

/// What the other process does. In the first one there is no role, and nothing to do.
#[test]
fn the_other_process() {
    let Some(Role { name, url, prefix }) = other::role() else { return };
    match name.as_str() {
        "counter" => counter::count(&url, &prefix),
        "brief" => signals::hold_once(&url, &prefix),
        "half" => signals::obey(&url, &prefix),
        "writer" => fence::write(&url, &prefix),
        "player" => measure::play(&url, &prefix),
        unknown => panic!("no role is called {unknown:?}"),
    }
}
