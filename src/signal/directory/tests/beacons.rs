//! Beacons and how they are looked at.

use std::{
    fs::{self, File},
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use super::{
    super::{
        Ear,
        beacon::{self, Beacon, Sight},
        listener::Listener,
        sweep::sweep,
    },
    BUSY, DirectorySignals, OTHER, OWN, Scratch, inbox, now,
};
use crate::executor::Shared;
use crate::machine::SessionId;
use crate::signal::{Notice, Signals};

/// Shorter than a missing file must be missing.
const TOO_SOON: Duration = Duration::from_millis(2_499);
const LONG_ENOUGH: Duration = Duration::from_millis(2_500);

/// The directory of the database was moved, or its file system unmounted. A new database in a new one would exclude nobody.
#[test]
fn a_directory_whose_parent_is_gone_is_not_made_again() {
    let scratch = Scratch::new();
    let around = scratch.0.join("around");
    let signals = DirectorySignals::new(around.join("leases.db-leasehold.d"));
    let (inbox, _notices) = inbox();
    signals.wake(OWN, true, Shared::downgrade(&inbox));
    assert!(!around.exists());
    fs::create_dir(&around).unwrap();
    assert!(signals.wake(OWN, true, Shared::downgrade(&inbox)) && signals.stands(OWN), "its own directory is made");
}

/// Others find an unlocked file under the name, as a dead context leaves it.
#[test]
fn a_beacon_in_whose_place_another_file_stands_is_raised_again() {
    let scratch = Scratch::new();
    let mut beacon = Beacon::raise(&scratch.0, OWN).unwrap();
    let path = beacon::path(&scratch.0, OWN);
    fs::remove_file(&path).unwrap();
    drop(File::create(&path).unwrap());
    assert!(!beacon.gets_lost());
    assert!(beacon::is_seen(&scratch.0, OWN));
}

#[test]
fn a_beacon_that_is_locked_stands_however_long_one_looks() {
    let scratch = Scratch::new();
    let beacon = Beacon::raise(&scratch.0, OWN).unwrap();
    let mut sight = Sight::new(&beacon::path(&scratch.0, OWN));
    let began = now();
    assert!(!sight.is_gone(began) && !sight.is_gone(began + BUSY));
    drop(beacon);
    assert!(sight.is_gone(began), "whoever has it open sees at once that it is lowered");
}

#[test]
fn a_file_that_nobody_has_locked_is_proof_at_once_for_all_who_look() {
    let scratch = Scratch::new();
    let path = beacon::path(&scratch.0, OWN);
    let another = File::create(&path).unwrap();
    another.lock_shared().unwrap();
    assert!(Sight::new(&path).is_gone(now()), "another one who looks is in nobody's way");
}

/// As when the store is locked by another program while a holder ends.
#[test]
fn the_file_stays_if_the_end_of_a_session_was_not_written_and_is_proof_at_once() {
    let scratch = Scratch::new();
    let (inbox, _notices) = inbox();
    let signals = DirectorySignals::new(&scratch.0);
    assert!(signals.wake(OWN, true, Shared::downgrade(&inbox)));
    let path = beacon::path(&scratch.0, OWN);
    assert!(!Sight::new(&path).is_gone(now()));
    signals.fall();
    assert!(Sight::new(&path).is_gone(now()));
}

/// A file that cannot be opened exists, so a look that meets it ends the time for which the file was missing.
#[test]
fn a_file_that_could_not_be_opened_meanwhile_is_missing_anew() {
    let scratch = Scratch::new();
    let path = beacon::path(&scratch.0, OWN);
    let (mut sight, began) = (Sight::new(&path), now());
    assert!(!sight.is_gone(began));
    fs::create_dir(&path).unwrap();
    assert!(!sight.is_gone(began + TOO_SOON));
    fs::remove_dir(&path).unwrap();
    assert!(!sight.is_gone(began + LONG_ENOUGH), "it has been missing for a moment only");
    assert!(sight.is_gone(began + 2 * LONG_ENOUGH));
}

/// For display: one look, by whoever has no listener.
#[test]
fn one_look_sees_a_beacon_stand_for_as_long_as_it_is_locked() {
    let scratch = Scratch::new();
    let signals = DirectorySignals::new(&scratch.0);
    assert!(!signals.stands(OWN), "nobody raised it");
    let beacon = Beacon::raise(&scratch.0, OWN).unwrap();
    assert!(signals.stands(OWN) && signals.stands(OWN), "a look changes nothing");
    assert!(!signals.stands(OTHER));
    drop(beacon);
    assert!(!signals.stands(OWN));
    // As a process leaves it that was killed.
    File::create(beacon::path(&scratch.0, OWN)).unwrap();
    assert!(!signals.stands(OWN));
}

#[test]
fn a_missing_file_is_proof_only_after_a_while_without_it() {
    let scratch = Scratch::new();
    let path = beacon::path(&scratch.0, OWN);
    let (mut sight, began) = (Sight::new(&path), now());
    assert!(!sight.is_gone(began) && !sight.is_gone(began + TOO_SOON));
    assert!(sight.is_gone(began + LONG_ENOUGH));
    // Seen once in between, it begins anew.
    let mut sight = Sight::new(&path);
    assert!(!sight.is_gone(began));
    let beacon = Beacon::raise(&scratch.0, OWN).unwrap();
    assert!(!sight.is_gone(began + LONG_ENOUGH));
    drop(beacon);
}

#[test]
fn an_error_while_looking_proves_nothing() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    fs::write(&file, "").unwrap();
    let path = beacon::path(&file, OWN);
    assert_ne!(File::open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    let (mut sight, began) = (Sight::new(&path), now());
    assert!(!sight.is_gone(began) && !sight.is_gone(began + BUSY));
    // Nor does it leave a mark: what is there later is seen.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    File::create(&path).unwrap();
    assert!(sight.is_gone(began));
}

#[test]
fn a_beacon_that_cannot_be_looked_at_may_stand() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    fs::write(&file, "").unwrap();
    assert!(DirectorySignals::new(&file).stands(OWN), "its folder is no folder");
}

#[test]
fn a_deleted_beacon_is_raised_again_and_whoever_saw_the_old_one_still_sees_it_stand() {
    let scratch = Scratch::new();
    let path = beacon::path(&scratch.0, OWN);
    let mut beacon = Beacon::raise(&scratch.0, OWN).unwrap();
    let (mut sight, began) = (Sight::new(&path), now());
    assert!(!sight.is_gone(began) && beacon.stands());
    fs::remove_file(&path).unwrap();
    assert!(!beacon.stands());
    assert!(!beacon.gets_lost() && beacon.stands());
    fs::rename(&scratch.0, scratch.0.with_extension("moved")).unwrap();
    assert!(!beacon.gets_lost() && beacon.stands(), "the directory is made again, too");
    assert!(!sight.is_gone(began + BUSY) && !Sight::new(&path).is_gone(began));
    drop(beacon);
    assert!(sight.is_gone(began) && !path.exists());
    fs::remove_dir_all(scratch.0.with_extension("moved")).unwrap();
}

#[test]
fn a_beacon_that_cannot_be_raised_again_is_told_lost_once_and_stays_locked() {
    let scratch = Scratch::new();
    let directory = scratch.0.join("a/b");
    fs::create_dir_all(&directory).unwrap();
    let beacon = Beacon::raise(&directory, OWN).unwrap();
    let (inbox, notices) = inbox();
    let ear = Ear::open(&directory, OWN);
    let listener = Listener::new(&directory, OWN, ear, Some(beacon), Shared::downgrade(&inbox));
    let mut sight = Sight::new(&beacon::path(&directory, OWN));
    assert!(!sight.is_gone(now()));
    listener.keep();
    assert!(notices.try_recv().is_err(), "it stands");
    fs::remove_dir_all(scratch.0.join("a")).unwrap();
    listener.keep();
    listener.keep();
    assert_eq!(notices.try_iter().collect::<Vec<_>>(), [Notice::BeaconLost(OWN)]);
    assert!(!sight.is_gone(now()), "its context lives, and has not yet said in the store that it has no beacon");
}

#[test]
fn a_beacon_that_is_deleted_again_and_again_is_given_up() {
    let scratch = Scratch::new();
    let mut beacon = Beacon::raise(&scratch.0, OWN).unwrap();
    let deletions = (0..1_000).position(|_| {
        fs::remove_file(beacon::path(&scratch.0, OWN)).unwrap();
        beacon.gets_lost()
    });
    assert_eq!(deletions, Some(15), "each one costs a file that stays open");
}

#[test]
fn a_beacon_has_its_name_only_once_it_is_locked() {
    let scratch = Scratch::new();
    // In the place of the file that rises.
    fs::create_dir(scratch.file(OWN, "rising")).unwrap();
    Beacon::raise(&scratch.0, OWN).unwrap_err();
    assert!(!beacon::path(&scratch.0, OWN).exists());
}

#[test]
fn a_beacon_that_cannot_be_raised_leaves_nothing() {
    let scratch = Scratch::new();
    fs::create_dir(beacon::path(&scratch.0, OWN)).unwrap();
    Beacon::raise(&scratch.0, OWN).unwrap_err();
    assert!(!scratch.file(OWN, "rising").exists());
}

/// Each process sweeps when it ends. What rises at that moment is neither removed nor locked.
#[test]
fn a_beacon_rises_while_others_sweep() {
    let scratch = Scratch::new();
    let over = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    sweep(&scratch.0);
                }
            });
        }
        let raised = (1..=3_000).map(|id| Beacon::raise(&scratch.0, SessionId(id)));
        let failed = raised.filter(|raised| !raised.as_ref().is_ok_and(Beacon::stands)).count();
        over.store(true, Relaxed);
        failed
    });
    assert_eq!(failed, 0, "of 3,000");
}
