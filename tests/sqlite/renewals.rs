//! Holders that are killed in the middle of a heartbeat.

use std::{
    env, fs,
    path::Path,
    time::{Duration, Instant},
};

use futures::future::{Either, select};
use leasehold::{LeaseManager, ReleaseOutcome};
use rusqlite::TransactionBehavior;
use tokio::{runtime::Runtime, task::yield_now};

use crate::{Other, Scratch, connect, manager, say, told, wall_clock::preloaded};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// Long enough that nobody waits here for its end.
const LONG_LEASE: Duration = Duration::from_secs(3_600);

/// The other process: holds the key, says its token, and does nothing but renew its lease.
pub(crate) fn renew(directory: &Path) {
    let runtime = Runtime::new().unwrap();
    let leases = manager(directory).lease(LONG_LEASE).heartbeat(Duration::from_millis(300)).build().unwrap();
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    say(&guard.token().as_u64().to_string());
    told().for_each(drop);
}

/// Whether somebody has a transaction open that writes.
fn is_being_written(scratch: &Scratch) -> bool {
    let mut database = connect(&scratch.0);
    database.busy_timeout(Duration::ZERO).unwrap();
    database.transaction_with_behavior(TransactionBehavior::Immediate).is_err()
}

async fn queue(leases: &LeaseManager, length: usize) {
    while leases.status("k").await.unwrap().queue.len() != length {
        yield_now().await;
    }
}

/// The holder stops at a step of its heartbeat's transaction, and is killed there. Returns whether the transaction was open.
fn dies_at(step: usize) -> Option<bool> {
    let scratch = Scratch::new();
    let library = preloaded("refused_writes", &scratch)?;
    let (why, draft) = (scratch.0.join("why"), scratch.0.join("draft"));
    let program = env::current_exe().expect("this test is a file");
    let mut holder = Other::start_by(&program, "renews", &scratch, |command| {
        command.env("LD_PRELOAD", library).env("LEASEHOLD_TEST_REFUSES", &why);
    });
    let held: u64 = holder.hear().parse().unwrap();
    Runtime::new().unwrap().block_on(async {
        let waiters = [(); 2].map(|()| manager(&scratch.0).lease(LONG_LEASE).build().unwrap());
        let [first, second] =
            waiters.each_ref().map(|leases| tokio::spawn(leases.lock("k").timeout(BUSY * 2).acquire()));
        queue(&waiters[0], 2).await;
        fs::write(&draft, format!("-{step}")).unwrap();
        fs::rename(draft, &why).unwrap();
        let since = Instant::now();
        while !holder.is_stopped() {
            assert!(since.elapsed() < BUSY, "no heartbeat has {step} steps");
        }
        let was_open = is_being_written(&scratch);
        assert!(!first.is_finished() && !second.is_finished(), "it is held");
        holder.kill();
        // Either may be the first in the queue.
        let (granted, other) = match select(first, second).await {
            Either::Left(done) | Either::Right(done) => done,
        };
        let granted = granted.unwrap().unwrap();
        assert!(granted.token().as_u64() > held, "tokens grow");
        assert!(granted.verify().await.unwrap() && !other.is_finished(), "it is granted once");
        assert_eq!(granted.release().await, Ok(ReleaseOutcome::Released));
        assert!(other.await.unwrap().unwrap().token() > granted.token(), "tokens grow");
        let integrity: String = connect(&scratch.0).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(integrity, "ok");
        Some(was_open)
    })
}

/// SQLite writes a header and a page for each page that has changed, and syncs them.
#[test]
fn a_holder_that_is_killed_between_two_writes_of_a_heartbeat_is_replaced_once() {
    let was_open: Vec<_> = (1..=4).map_while(dies_at).collect();
    println!("{was_open:?}");
    assert!(was_open.is_empty() || was_open.iter().filter(|open| **open).count() > 1, "{was_open:?}");
}
