//! A store that does not answer for longer than a lease.

use std::{
    iter::repeat_with,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use rusqlite::{Connection, TransactionBehavior};

use crate::{
    harness::{Scratch, done, is_right_once},
    show::until_queued,
};

const LEASE: Duration = Duration::from_secs(6);

/// The only candidate leads again before its former lease has run out, for nobody else is in its way.
fn leads_again(url: &str, stop: impl FnOnce(), start: impl FnOnce()) {
    let scratch = Scratch::new();
    let lease = LEASE.as_secs().to_string();
    let term = "echo $LEASEHOLD_TOKEN; exec sleep 600";
    let candidate = scratch.start(&["elect", "--store", url, "--lease", &lease, "k", "--", "sh", "-c", term]);
    let first: u64 = candidate.line().unwrap().parse().unwrap();
    stop();
    candidate.until_err("campaigning again");
    // A candidate that closed its store after the loss would have given up by now.
    sleep(Duration::from_secs(2));
    start();
    let back = Instant::now();
    let second: u64 = candidate.line().unwrap().parse().unwrap();
    assert!(back.elapsed() < LEASE, "{:?}: {}", back.elapsed(), candidate.err());
    assert!(second > first, "{second} after {first}");
    assert!(!candidate.err().contains("held by"), "it is in nobody's way: {}", candidate.err());
    let mut command = scratch.leasehold(&["run", "--store", url, "-n", "k", "true"]);
    assert_eq!(done(&mut command).code, 1, "it leads");
    candidate.signal(Signal::SIGTERM);
    let (code, err) = candidate.end();
    assert_eq!(code, 143, "{err}");
}

#[test]
#[cfg(feature = "store-redis")]
fn a_leader_leads_again_when_its_redis_is_back() {
    // Its records are on the disk when it dies.
    let settings = ["--appendonly", "yes", "--appendfsync", "always"];
    let Some(server) = crate::redis_server::Server::start(&settings) else { return };
    let (url, server) = (format!("redis://{}", server.address()), std::cell::RefCell::new(server));
    leads_again(&url, || server.borrow_mut().kill(), || assert!(server.borrow_mut().run(), "it runs again"));
}

#[test]
#[cfg(feature = "store-postgres")]
fn a_leader_leads_again_when_its_postgres_is_back() {
    let Some(server) = crate::postgres_server::Server::start() else { return };
    leads_again(&server.url(), || server.crash(), || server.restart());
}

/// A busy machine may take such a short lease from whoever was granted it.
#[test]
fn who_waits_without_a_limit_waits_for_the_store_too() {
    is_right_once(repeat_with(waits_for_a_busy_store).take(5), |code| *code == 0);
}

/// The store is busy for longer than a lease. Returns the exit code.
fn waits_for_a_busy_store() -> i32 {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let waits = scratch.start(&["run", "--lease", "1", "k", "echo", "granted"]);
    until_queued(&scratch, 1);
    let mut other = Connection::open(scratch.file()).unwrap();
    let busy = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    sleep(Duration::from_secs(4));
    drop(busy);
    drop(holder);
    assert_eq!(waits.line().as_deref(), Some("granted"));
    waits.end().0
}
