//! The SQLite store: its contract, files of every kind, fenced writes, and processes that share a file.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time and real tasks")]

mod clocks;
mod contract;
mod counter;
mod disks;
mod ends;
mod examples;
mod fence;
mod files;
mod forks;
mod full;
#[path = "../histories/mod.rs"]
mod histories;
#[path = "../stores/clocks.rs"]
mod jumps;
#[path = "../stores/killed.rs"]
mod killed;
#[path = "../stores/leases.rs"]
mod leases;
mod locks;
#[path = "../stores/names.rs"]
mod names;
#[path = "../processes/other.rs"]
mod other;
mod processes;
mod real;
mod renewals;
mod runtimes;
#[path = "../stores/scenarios.rs"]
mod scenarios;
mod shared;
#[path = "../processes/skipped.rs"]
mod skipped;
mod swapped;
#[path = "../processes/until.rs"]
mod until;
mod users;
#[path = "../processes/wall_clock.rs"]
mod wall_clock;

use std::path::{Path, PathBuf};

use leasehold::{LeaseManager, LeaseManagerBuilder, executor::TokioExecutor, store::SqliteStore};
use rusqlite::Connection;

use jumps::LEASE;
use other::{Other, Scratch, role, say, told};

/// The other process. In the first one there is no role, and nothing to do.
#[test]
fn the_other_process() {
    let Some((role, [directory])) = role() else { return };
    let directory = PathBuf::from(directory);
    if real::take_part(&role, &directory) {
        return;
    }
    match role.as_str() {
        "contestant" => processes::contend(&directory),
        "copy" => forks::go_on_as_a_copy(&directory),
        "counter" => counter::count(&directory),
        "fences" => disks::fence_when_told(&directory),
        "holder" => processes::hold(&directory),
        "jumping holder" => jumps::hold(LEASE, async || manager(&directory)),
        "jumping waiter" => jumps::wait(LEASE, async || manager(&directory)),
        "renews" => renewals::renew(&directory),
        "too late" => forks::fork_too_late(&directory),
        "one more" => disks::acquire_when_told(&directory),
        "until shutdown" => processes::hold_until_shutdown(&directory),
        "rival writer" => locks::write_at_once(&directory),
        "actor" => users::act(&directory),
        "opener" => files::open_as_told(&directory),
        "waiter" => processes::wait(&directory),
        "writer" => processes::write(&directory),
        unknown => panic!("no role is called {unknown:?}"),
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("leases.db")
}

fn manager(directory: &Path) -> LeaseManagerBuilder {
    LeaseManager::builder(SqliteStore::open(file(directory)).expect("it opens"), TokioExecutor::new())
}

/// The user's own connection to the file.
fn connect(directory: &Path) -> Connection {
    let connection = Connection::open(file(directory)).expect("it opens");
    connection.busy_timeout(std::time::Duration::from_secs(60)).expect("it is a plain setting");
    connection
}
