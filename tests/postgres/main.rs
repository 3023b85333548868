//! `PostgresStore` on a real server, which these tests start and stop. This file runs itself as the other process.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time, and tasks of the tests' own")]

#[path = "../stores/absences.rs"]
mod absences;
mod bad_input;
mod clocks;
mod contract;
mod counter;
#[path = "../stores/delays.rs"]
mod delays;
mod examples;
mod faults;
mod fence;
mod generic_fence;
#[path = "../histories/mod.rs"]
mod histories;
#[path = "../stores/clocks.rs"]
mod jumps;
#[path = "../stores/killed.rs"]
mod killed;
#[path = "../stores/leases.rs"]
mod leases;
mod locked;
mod measure;
#[path = "../stores/missed.rs"]
mod missed;
#[path = "../stores/names.rs"]
mod names;
#[path = "../processes/other.rs"]
mod other;
#[path = "../stores/outage.rs"]
mod outage;
#[cfg(feature = "store-postgres-deadpool")]
mod over_deadpool;
#[cfg(feature = "store-postgres-sqlx")]
mod over_sqlx;
mod pooler;
#[cfg(any(feature = "store-postgres-deadpool", feature = "store-postgres-sqlx"))]
mod pools;
#[path = "../processes/port.rs"]
mod port;
mod prepared;
mod programs;
#[path = "../processes/proxy.rs"]
mod proxy;
mod real;
mod renewals;
#[path = "../stores/renewals.rs"]
mod renewing;
mod replicas;
mod rewrite;
#[path = "../stores/scenarios.rs"]
mod scenarios;
mod server;
mod shared;
mod signals;
#[path = "../processes/skipped.rs"]
mod skipped;
mod slow;
#[cfg(feature = "store-postgres-sqlx")]
mod sqlx_fence;
mod still;
mod swallowed;
mod sweeps;
mod tables;
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

/// What the other process does. In the first one there is no role, and nothing to do.
#[test]
fn the_other_process() {
    let Some((role, [url, prefix])) = other::role() else { return };
    if real::take_part(&role, &url, &prefix) || renewals::take_part(&role, &url, &prefix) {
        return;
    }
    match role.as_str() {
        "counter" => counter::count(&url, &prefix),
        "brief" => signals::hold_once(&url, &prefix),
        "half" => signals::obey(&url, &prefix),
        "holder" | "waiter" => clocks::take_part(&role, &url, &prefix),
        "writer" => fence::write(&url, &prefix),
        "player" => measure::play(&url, &prefix),
        unknown => panic!("no role is called {unknown:?}"),
    }
}
