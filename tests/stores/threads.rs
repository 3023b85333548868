//! Calls from a thread without a runtime, or from a runtime that lacks something.

use std::time::{Duration, Instant};

use futures::executor::block_on;
use leasehold::{
    AcquireError, LeaseManager, LeaseManagerBuilder, StoreError, executor::TokioExecutor, machine::StoreErrorKind,
};
use tokio::runtime::{Builder, Runtime};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// The managers were made in the runtime, which lives, and ends later.
pub(crate) fn calls_from_a_plain_thread(runtime: Runtime, [leases, third, other]: [LeaseManager; 3]) {
    let guard = block_on(leases.lock("on a thread").timeout(BUSY).acquire()).unwrap();
    let listed = block_on(leases.list("")).unwrap();
    assert!(listed.iter().any(|status| status.key.as_str() == "on a thread"), "{listed:?}");
    assert!(block_on(guard.verify()).unwrap());
    block_on(guard.release()).unwrap();
    block_on(leases.close());
    // Tokio's timers panic in a runtime that has none.
    let bare = Builder::new_current_thread().build().unwrap();
    bare.block_on(third.close());
    drop(runtime);
    let listed = block_on(other.list(""));
    assert!(listed.unwrap_err().to_string().contains("runtime"), "it tells that the runtime has ended");
    let since = Instant::now();
    block_on(other.close());
    assert!(since.elapsed() < BUSY, "nobody waits for a runtime that has ended");
}

/// Tokio tells only by a panic that a runtime lacks something.
pub(crate) fn a_runtime_that_lacks_something(url: &str, connects: impl AsyncFn() -> Result<(), StoreError>) {
    for (runtime, lacks) in [
        (Builder::new_current_thread().build(), "timers"),
        (Builder::new_current_thread().enable_io().build(), "timers"),
        (Builder::new_current_thread().enable_time().build(), "I/O"),
    ] {
        let runtime = runtime.unwrap();
        let by_url = runtime.block_on(LeaseManager::from_url(url, TokioExecutor::new()));
        let connected = runtime.block_on(connects()).map_err(AcquireError::from);
        for refused in [by_url.map(drop), connected] {
            let Err(AcquireError::Unsupported(error)) = refused else { panic!("{refused:?}") };
            assert!(error.message.contains(lacks) && error.message.contains("enable_all()"), "{error}");
            assert_eq!((error.kind, error.retry), (StoreErrorKind::Unsupported, false), "{error}");
        }
    }
}

/// Much longer than the test may take, so that the test does not pass because a time limit ran out.
const TOO_LONG: Duration = Duration::from_secs(600);

/// The leases are given back, although the manager is closed in a runtime without timers.
pub(crate) fn closing_in_a_runtime_without_timers(runtime: Runtime, managers: [LeaseManagerBuilder; 2]) {
    let [leases, other] = managers.map(|builder| builder.lease(TOO_LONG * 4).store_timeout(TOO_LONG).build().unwrap());
    let guard = runtime.block_on(leases.lock("kept").acquire()).unwrap();
    let bare = Builder::new_current_thread().build().unwrap();
    let since = Instant::now();
    bare.block_on(leases.close());
    assert!(runtime.block_on(other.lock("kept").try_acquire()).unwrap().is_some(), "it was given back");
    drop((guard, runtime));
    bare.block_on(leases.close());
    bare.block_on(other.close());
    assert!(since.elapsed() < BUSY, "{:?}", since.elapsed());
}
