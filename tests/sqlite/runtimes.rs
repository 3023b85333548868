//! Managers that outlive the runtime in which they were used first.

use std::time::{Duration, Instant};

use futures::executor::block_on;
use leasehold::{LeaseGuard, LeaseManager, LeaseManagerBuilder};
use tokio::runtime::Builder;

use crate::{Scratch, manager};

/// Much longer than the test may take, so that no lease runs out meanwhile.
const TOO_LONG: Duration = Duration::from_secs(600);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

fn patient(builder: LeaseManagerBuilder) -> LeaseManager {
    builder.lease(TOO_LONG * 4).store_timeout(TOO_LONG).build().unwrap()
}

/// Closes a manager in a runtime without timers, after its own runtime has ended. A transaction of this store needs no timers: it runs on a
/// thread of the store's own.
fn closed_without_timers(last: impl FnOnce(LeaseGuard)) {
    let scratch = Scratch::new();
    let (leases, other) = (patient(manager(&scratch.0)), patient(manager(&scratch.0)));
    let own = Builder::new_current_thread().enable_time().build().unwrap();
    let kept = own.block_on(async {
        let (kept, last_one) = (leases.lock("kept").acquire().await, leases.lock("last").acquire().await);
        last(last_one.unwrap());
        kept.unwrap()
    });
    drop(own);
    let since = Instant::now();
    Builder::new_current_thread().build().unwrap().block_on(leases.close());
    assert!(since.elapsed() < BUSY, "{:?}", since.elapsed());
    let looks = Builder::new_current_thread().enable_time().build().unwrap();
    for key in [kept.key(), "last"] {
        let status = looks.block_on(other.status(key)).unwrap();
        assert!(status.holders.is_empty(), "it was given back: {status:?}");
    }
}

#[test]
fn a_manager_that_is_closed_in_a_runtime_without_timers_after_its_own_has_ended_gives_its_leases_back() {
    closed_without_timers(std::mem::forget);
}

/// The answer to the last transaction was lost with the runtime.
#[test]
fn a_manager_whose_runtime_ended_during_a_release_gives_its_leases_back_when_it_is_closed() {
    closed_without_timers(drop);
}

/// The thread of the store does the work, so that nothing else need run.
#[test]
fn a_file_is_looked_at_without_a_runtime() {
    let scratch = Scratch::new();
    let (holder, looks) = (patient(manager(&scratch.0)), patient(manager(&scratch.0)));
    let own = Builder::new_current_thread().enable_time().build().unwrap();
    let guard = own.block_on(holder.lock("k").acquire()).unwrap();
    let status = block_on(looks.status("k")).unwrap();
    assert_eq!((status.holders[0].holder, status.holders[0].token), (holder.session(), guard.token()));
    assert_eq!(block_on(looks.list("")).unwrap(), [status]);
    own.block_on(guard.release()).unwrap();
}
