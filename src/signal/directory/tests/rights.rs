//! Who may use the files of a directory.

use std::{
    fs::{self, DirBuilder, Permissions},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
    process::Command,
    sync::mpsc,
    thread,
};

use super::{
    super::{
        DirectorySignals, Ear,
        beacon::{self, Beacon, Sight},
        ear, names,
        rights::Rights,
        sweep::sweep,
    },
    BUSY, HOUR, OTHER, OWN, Scratch, inbox, mark, now,
};
use crate::executor::Shared;
use crate::signal::Signals;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Whether this process can give files to other users.
fn is_root(scratch: &Scratch) -> bool {
    fs::metadata(&scratch.0).unwrap().uid() == 0
}

/// The umask takes the others' right to write away from what this process makes.
#[test]
fn who_may_make_files_in_the_directory_may_send_and_look_and_nobody_else() {
    for (directory, files) in [(0o700, 0o600), (0o755, 0o644), (0o770, 0o660), (0o777, 0o666)] {
        let scratch = Scratch::new();
        set_mode(&scratch.0, directory);
        let _ear = Ear::open(&scratch.0, OWN);
        let _beacon = Beacon::raise(&scratch.0, OWN).unwrap();
        for kind in ["socket", "beacon"] {
            assert_eq!(mode(&scratch.file(OWN, kind)), files, "the {kind} in a directory of {directory:o}");
        }
        assert_eq!(names(&scratch.0).unwrap().count(), 2);
    }
}

#[test]
fn root_gives_what_it_makes_to_the_users_of_the_directory() {
    let scratch = Scratch::new();
    if !is_root(&scratch) {
        return;
    }
    chown(&scratch.0, Some(1_001), Some(1_003)).unwrap();
    set_mode(&scratch.0, 0o770);
    let _ear = Ear::open(&scratch.0, OWN);
    let _beacon = Beacon::raise(&scratch.0, OWN).unwrap();
    for kind in ["socket", "beacon"] {
        let made = fs::metadata(scratch.file(OWN, kind)).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (1_001, 1_003, 0o660), "{kind}");
    }
}

#[test]
fn a_directory_that_somebody_deleted_is_made_anew_for_the_same_users() {
    let scratch = Scratch::new();
    set_mode(&scratch.0, 0o777);
    let signals = DirectorySignals::new(&scratch.0);
    let (inbox, _notices) = inbox();
    fs::remove_dir_all(&scratch.0).unwrap();
    assert!(signals.wake(OWN, true, Shared::downgrade(&inbox)));
    assert_eq!(mode(&scratch.0), 0o777, "although this context did not see it go");
    fs::remove_dir_all(&scratch.0).unwrap();
    signals.with_listener(|listener| listener.keep());
    assert_eq!(mode(&scratch.0), 0o777);
    assert_eq!(mode(&scratch.file(OWN, "socket")), 0o666);
}

#[test]
fn a_directory_of_which_only_the_files_were_deleted_stays_the_same() {
    let scratch = Scratch::new();
    set_mode(&scratch.0, 0o1777);
    let before = fs::metadata(&scratch.0).unwrap().ino();
    let mut beacon = Beacon::raise(&scratch.0, OWN).unwrap();
    fs::remove_file(scratch.file(OWN, "beacon")).unwrap();
    assert!(!beacon.gets_lost());
    assert_eq!((fs::metadata(&scratch.0).unwrap().ino(), mode(&scratch.0)), (before, 0o1777));
}

/// Else whoever may write to the directory could have a user grant its own files to all others.
#[test]
fn what_a_link_leads_to_keeps_its_rights() {
    let scratch = Scratch::new();
    set_mode(&scratch.0, 0o777);
    let own = scratch.0.join("own");
    DirBuilder::new().mode(0o700).create(&own).unwrap();
    for kind in ["opening", "rising"] {
        symlink(&own, scratch.file(OWN, kind)).unwrap();
    }
    let _ear = Ear::open(&scratch.0, OWN);
    Beacon::raise(&scratch.0, OWN).unwrap_err();
    Rights::of(&scratch.0).unwrap().make_directory(&scratch.file(OWN, "rising")).unwrap_err();
    assert_eq!(mode(&own), 0o700);
    assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
}

/// As it is left by a process that was killed while it opened its socket.
#[test]
fn the_place_of_a_socket_that_was_never_opened_is_swept_once_it_is_old() {
    let scratch = Scratch::new();
    let [young, old] = [OWN, OTHER].map(|session| scratch.file(session, "opening"));
    for place in [&young, &old] {
        fs::create_dir(place).unwrap();
        fs::write(place.join("made"), "").unwrap();
    }
    mark(&fs::File::open(&old).unwrap(), HOUR);
    sweep(&scratch.0);
    assert!(young.exists() && !old.exists());
    assert!(!ear::tell(&scratch.0, OWN, "hello"));
}

/// Opening a pipe would wait until somebody writes to it.
#[test]
fn a_pipe_in_the_place_of_a_beacon_holds_nobody_up() {
    let scratch = Scratch::new();
    let path = beacon::path(&scratch.0, OWN);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (sender, looked) = mpsc::channel();
    let directory = scratch.0.clone();
    thread::spawn(move || {
        let mut sight = Sight::new(&beacon::path(&directory, OWN));
        sender.send((sight.is_gone(now()), beacon::is_seen(&directory, OWN))).unwrap();
    });
    assert_eq!(looked.recv_timeout(BUSY), Ok((false, true)), "it proves nothing");
}
