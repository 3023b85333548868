//! Processes take turns on one key.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use leasehold::{AcquireError, LeaseManager, LeaseManagerBuilder, executor::TokioExecutor, signal::DirectorySignals};
use tokio::{runtime::Runtime, task::spawn_blocking};

use crate::{Other, Scratch, directory::DirectoryStore, say, told};

/// Longer than an eviction by a beacon takes, and much shorter than a lease.
const PATIENCE: Duration = Duration::from_secs(2);

fn builder(directory: &Path) -> LeaseManagerBuilder {
    LeaseManager::builder(DirectoryStore::new(directory), TokioExecutor::new())
}

/// The other process: asks for the key that the first one holds.
pub(crate) fn contend(directory: &Path) {
    Runtime::new().unwrap().block_on(async {
        let leases = builder(directory).build().unwrap();
        match leases.lock("k").timeout(PATIENCE).acquire().await {
            Ok(guard) => say(&format!("granted, valid: {}", guard.is_valid())),
            Err(AcquireError::Timeout { .. }) => say("timeout"),
            Err(error) => say(&error.to_string()),
        }
    });
}

/// Nothing is chosen but the store: what a manager gets by itself must be safe.
#[test]
fn a_living_process_keeps_its_lease() {
    let scratch = Scratch::new();
    Runtime::new().unwrap().block_on(async {
        let leases = builder(&scratch.0).build().unwrap();
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut other = Other::start("contestant", &scratch);
        let said = spawn_blocking(move || other.hear()).await.unwrap();
        assert_eq!(said, "timeout", "a process took the lease of a living one");
        assert!(guard.is_valid());
    });
}

/// Long enough that nobody waits here for its end.
const LONG_LEASE: Duration = Duration::from_secs(3_600);
/// Longer than a death takes to be seen, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// Longer than a beacon's file must be missing before that counts.
const MISSING: Duration = Duration::from_secs(5);

fn with_beacons(directory: &Path) -> LeaseManager {
    let store = DirectoryStore::with_signals_in(directory, &beacons(directory));
    let signals = DirectorySignals::new(beacons(directory));
    LeaseManager::builder(store, TokioExecutor::new()).lease(LONG_LEASE).signals(signals).build().unwrap()
}

fn beacons(directory: &Path) -> PathBuf {
    directory.join("beacons")
}

/// The other process: holds the key until it is told to say whether it still does.
pub(crate) fn hold(directory: &Path) {
    let runtime = Runtime::new().unwrap();
    let leases = with_beacons(directory);
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    say("held");
    told().for_each(|_| say(&format!("valid: {}", guard.is_valid())));
}

/// By the beacon alone: no lease ends while this runs.
#[test]
fn a_holder_with_a_beacon_is_replaced_when_its_process_dies_and_not_before() {
    let scratch = Scratch::new();
    let holder = Mutex::new(Other::start("holder", &scratch));
    assert_eq!(holder.lock().unwrap().hear(), "held");
    Runtime::new().unwrap().block_on(async {
        let leases = with_beacons(&scratch.0);
        let early = leases.lock("k").timeout(PATIENCE).acquire().await;
        assert!(matches!(early, Err(AcquireError::Timeout { .. })), "{early:?}");
        assert_eq!(holder.lock().unwrap().ask("still?"), "valid: true");
        holder.lock().unwrap().kill();
        assert!(leases.lock("k").timeout(BUSY).acquire().await.unwrap().is_valid());
    });
}

/// How many files of beacons are there.
fn beacons_in(directory: &Path) -> usize {
    let names = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(".beacon")).count()
}

/// Removes the folder of the beacons. A process may put its beacon back meanwhile.
fn clean_up(scratch: &Path) {
    while let Err(error) = fs::remove_dir_all(beacons(scratch)) {
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty, "{error}");
    }
}

/// Somebody cleans up, once before the waiter looks and once while it waits.
#[test]
fn a_living_process_whose_beacon_is_deleted_keeps_its_lease_until_it_dies() {
    let scratch = Scratch::new();
    let holder = Mutex::new(Other::start("holder", &scratch));
    assert_eq!(holder.lock().unwrap().hear(), "held");
    Runtime::new().unwrap().block_on(async {
        clean_up(&scratch.0);
        let leases = with_beacons(&scratch.0);
        for _ in 0..2 {
            let early = leases.lock("k").timeout(MISSING).acquire().await;
            assert!(matches!(early, Err(AcquireError::Timeout { .. })), "{early:?}");
            assert_eq!(holder.lock().unwrap().ask("still?"), "valid: true");
            clean_up(&scratch.0);
        }
        let waiting = leases.lock("k").timeout(BUSY).acquire();
        let killing = async {
            while beacons_in(&beacons(&scratch.0)) < 2 {
                tokio::task::yield_now().await;
            }
            holder.lock().unwrap().kill();
        };
        let (guard, ()) = tokio::join!(waiting, killing);
        assert!(guard.unwrap().is_valid());
    });
}

/// As on two machines that share a store, each with its own folder: neither sees the other's beacons.
#[test]
fn beacons_in_two_directories_evict_nobody_who_lives() {
    let scratch = Scratch::new();
    let on_machine = |name: &str| {
        let signals = DirectorySignals::new(scratch.0.join(name));
        builder(&scratch.0).lease(LONG_LEASE).signals(signals).build().unwrap()
    };
    Runtime::new().unwrap().block_on(async {
        let (one, other) = (on_machine("one"), on_machine("other"));
        let guard = one.lock("k").acquire().await.unwrap();
        let status = other.status("k").await.unwrap();
        assert!(!status.holders[0].beacon, "a beacon that the other one cannot see");
        let second = other.lock("k").timeout(MISSING).acquire().await;
        assert!(matches!(second, Err(AcquireError::Timeout { .. })), "{second:?}");
        assert!(guard.is_valid());
    });
}
