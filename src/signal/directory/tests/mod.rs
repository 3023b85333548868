//! What two processes cannot be made to show: each moment is arranged by hand.

mod beacons;
mod rights;
mod sockets;

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{ffi::OsStrExt, fs::symlink, net::UnixDatagram},
    path::PathBuf,
    process::{self, Command},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use super::{
    DirectorySignals, Ear,
    beacon::{self, Beacon, Sight},
    listener::Listener,
    name_of, names, sentry,
    sweep::{sweep, sweep_some},
};
use crate::executor::{Mutex, Shared};
use crate::machine::SessionId;
use crate::signal::{Beacons, Inbox, Notice, Signals};
use crate::store::Reach;

const OWN: SessionId = SessionId(1);
const OTHER: SessionId = SessionId(2);
/// Longer than anything here takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A directory of its own for each test, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("leasehold-directory-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, session: SessionId, kind: &str) -> PathBuf {
        self.0.join(name_of(session, kind))
    }

    /// As a process leaves it that was killed.
    fn dead_socket(&self, session: SessionId, kind: &str) -> PathBuf {
        drop(UnixDatagram::bind(self.file(session, kind)).unwrap());
        self.file(session, kind)
    }

    /// As it is left by a killed process that was last known to be alive this long ago.
    fn dead_beacon(&self, session: SessionId, age: Duration) -> PathBuf {
        let path = beacon::path(&self.0, session);
        mark(&File::create(&path).unwrap(), age);
        path
    }
}

#[expect(clippy::disallowed_methods, reason = "the times of files are those of the wall clock")]
fn mark(file: &File, age: Duration) {
    file.set_modified(SystemTime::now() - age).unwrap();
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Passes each notice on.
struct Told(Mutex<mpsc::Sender<Notice>>);

impl Inbox for Told {
    fn notice(&self, notice: Notice) {
        drop(self.0.lock().send(notice));
    }
}

fn inbox() -> (Shared<dyn Inbox>, mpsc::Receiver<Notice>) {
    let (sender, notices) = mpsc::channel();
    (Shared::new(Told(Mutex::new(sender))), notices)
}

#[expect(clippy::disallowed_methods, reason = "a moment to count from")]
fn now() -> Instant {
    Instant::now()
}

/// Real time passes: what is waited for is done by a thread.
fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let began = now();
    while !condition() {
        if began.elapsed() > BUSY {
            return false;
        }
        thread::yield_now();
    }
    true
}

#[test]
fn a_lowered_beacon_and_a_closed_ear_leave_nothing() {
    let scratch = Scratch::new();
    drop((Beacon::raise(&scratch.0, OWN).unwrap(), Ear::open(&scratch.0, OWN)));
    assert_eq!(names(&scratch.0).unwrap().count(), 0);
}

#[test]
fn a_sweep_removes_what_the_dead_left_and_nothing_of_the_living() {
    let scratch = Scratch::new();
    let living = (Beacon::raise(&scratch.0, OWN).unwrap(), Ear::open(&scratch.0, OWN));
    let (rising, opening) = (scratch.file(OWN, "rising"), scratch.file(OWN, "opening"));
    let (locked, _bound) = (File::create(&rising).unwrap(), UnixDatagram::bind(&opening).unwrap());
    locked.lock().unwrap();
    mark(&locked, Duration::from_secs(10));
    let about_to_be_locked = scratch.file(SessionId(4), "rising");
    drop(File::create(about_to_be_locked).unwrap());
    let foreign = scratch.0.join("notes.beacon");
    fs::write(&foreign, "").unwrap();
    mark(&File::create(scratch.file(OTHER, "rising")).unwrap(), Duration::from_secs(10));
    scratch.dead_beacon(OTHER, DAY);
    scratch.dead_beacon(SessionId(3), Duration::ZERO);
    for kind in ["socket", "opening"] {
        scratch.dead_socket(OTHER, kind);
    }
    sweep(&scratch.0);
    let mut left: Vec<_> = names(&scratch.0).unwrap().collect();
    left.sort();
    let own = ["beacon", "opening", "rising", "socket"].map(|kind| name_of(OWN, kind));
    let young = [name_of(SessionId(3), "beacon"), name_of(SessionId(4), "rising")];
    assert_eq!(left, [own.as_slice(), &young, &["notes.beacon".into()]].concat());
    drop(living);
}

/// Whoever may write into the directory could put a pipe there. A sweep that opened it would wait for ever.
#[test]
fn a_sweep_does_not_wait_for_a_pipe() {
    let scratch = Scratch::new();
    let pipes = ["rising", "beacon"].map(|kind| scratch.file(OTHER, kind));
    assert!(Command::new("mkfifo").args(&pipes).status().is_ok_and(|made| made.success()));
    let old = Command::new("touch").args(["-d", "2 days ago"]).args(&pipes).status();
    assert!(old.is_ok_and(|touched| touched.success()));
    let (tell, told) = mpsc::channel();
    let directory = scratch.0.clone();
    thread::spawn(move || {
        sweep_some(&directory, OWN);
        sweep(&directory);
        tell.send(())
    });
    let in_time = told.recv_timeout(BUSY);
    assert!(in_time.is_ok() && pipes.iter().all(|pipe| pipe.exists()), "{in_time:?}");
}

/// One that waited is looked for once it is granted the lease, however long after its death that is.
#[test]
fn a_sweep_leaves_the_dead_of_the_last_day_to_be_seen_at_once() {
    let scratch = Scratch::new();
    let path = scratch.dead_beacon(OTHER, DAY - BUSY);
    sweep(&scratch.0);
    assert!(Sight::new(&path).is_gone(now()));
}

#[test]
fn a_sweep_of_more_than_1024_leaves_the_512_youngest_of_the_dead() {
    let scratch = Scratch::new();
    let _living = Beacon::raise(&scratch.0, OWN).unwrap();
    let first = OWN.0 + 1;
    let age = |id: u128| 60 * BUSY - BUSY / 60 * u32::try_from(id).unwrap();
    let all: Vec<_> = (first..first + 1_024).map(|id| scratch.dead_beacon(SessionId(id), age(id))).collect();
    fs::remove_file(&all[0]).unwrap();
    sweep(&scratch.0);
    assert_eq!(all.iter().filter(|path| path.exists()).count(), 1_023, "they are not too many");
    scratch.dead_beacon(SessionId(first), age(first));
    sweep(&scratch.0);
    let (swept, left): (Vec<_>, Vec<_>) = all.iter().partition(|path| !path.exists());
    assert_eq!((swept.len(), left.len()), (512, 512));
    assert_eq!(swept.into_iter().chain(left).collect::<Vec<_>>(), all.iter().collect::<Vec<_>>(), "the oldest go");
}

/// Else nothing would show the death of a context that was awake for days.
#[test]
fn a_context_that_is_awake_marks_its_beacon_every_hour() {
    let scratch = Scratch::new();
    let beacon = Beacon::raise(&scratch.0, OWN).unwrap();
    let file = File::options().write(true).open(beacon::path(&scratch.0, OWN)).unwrap();
    let age = || file.metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default();
    let (inbox, _notices) = inbox();
    let ear = Ear::open(&scratch.0, OWN);
    let listener = Listener::new(&scratch.0, OWN, ear, Some(beacon), Shared::downgrade(&inbox));
    for (was, is) in [(HOUR - BUSY, HOUR - BUSY), (HOUR, Duration::ZERO)] {
        mark(&file, was);
        listener.keep();
        assert!(age() >= is && age() < is + BUSY, "{:?}", age());
    }
}

#[test]
fn the_directory_is_swept_when_a_context_rests() {
    let scratch = Scratch::new();
    let (inbox, _notices) = inbox();
    let signals = DirectorySignals::new(&scratch.0);
    let dead = scratch.dead_beacon(OTHER, DAY);
    assert!(signals.wake(OWN, true, Shared::downgrade(&inbox)));
    assert!(dead.exists(), "whoever waits for the dead one sees it at once by its file");
    signals.rest();
    assert!(!dead.exists(), "it is gone even if the process ends now");
    assert!(comes_true(|| names(&scratch.0).unwrap().count() == 0));
}

/// A program may make a context for each of its jobs.
#[test]
fn contexts_that_come_and_go_in_a_process_sweep_now_and_then() {
    let scratch = Scratch::new();
    let (inbox, _notices) = inbox();
    let signals = DirectorySignals::new(&scratch.0);
    let come_and_go = || {
        assert!(signals.wake(OWN, true, Shared::downgrade(&inbox)));
        signals.rest();
    };
    let first = scratch.dead_beacon(OTHER, DAY);
    come_and_go();
    assert!(!first.exists());
    let second = scratch.dead_beacon(OTHER, DAY);
    (0..10).for_each(|_| come_and_go());
    assert!(second.exists(), "it was swept a moment ago");
}

/// A process that lives for a moment cannot look at all of them.
#[test]
fn each_context_that_ends_sweeps_some_files_from_a_random_start() {
    let scratch = Scratch::new();
    let _living = Beacon::raise(&scratch.0, OWN).unwrap();
    let left = || names(&scratch.0).unwrap().count();
    (2..=300).for_each(|id| drop(scratch.dead_beacon(SessionId(id), DAY)));
    sweep_some(&scratch.0, SessionId(7));
    assert!((300 - 64..300 - 62).contains(&left()), "{} of 300", left());
    (0..100).for_each(|each| sweep_some(&scratch.0, SessionId(each * 37)));
    assert_eq!(left(), 1, "the living one stays");
    (2..=300).for_each(|id| drop(scratch.dead_beacon(SessionId(id), Duration::ZERO)));
    sweep_some(&scratch.0, SessionId(7));
    assert_eq!(left(), 300, "the young ones stay if they are not too many");
    (301..=1_500).for_each(|id| drop(scratch.dead_beacon(SessionId(id), Duration::ZERO)));
    (0..100).for_each(|each| sweep_some(&scratch.0, SessionId(each * 37)));
    assert!(left() <= 1_024, "{} of 1,500", left());
    assert!(beacon::is_seen(&scratch.0, OWN));
}

#[test]
fn a_directory_that_cannot_be_made_has_no_beacon_to_expect() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    fs::write(&file, "").unwrap();
    let (inbox, notices) = inbox();
    let signals = DirectorySignals::new(&file);
    assert!(!signals.wake(OWN, true, Shared::downgrade(&inbox)));
    signals.watch(1, OTHER);
    signals.rest();
    assert!(notices.try_recv().is_err());
}

/// What a store says of itself decides whether an absent beacon is proof of a death.
#[test]
fn beacons_count_only_for_a_store_of_this_machine_that_names_their_directory() {
    let machine = |name: &str| Reach::Machine(name.into());
    let cover = |name: &str, reach: &Reach| DirectorySignals::new(name).beacons().cover(reach);
    assert!(cover("/a", &machine("/a")) && cover("/a/", &machine("/a")) && cover("a", &machine("a")));
    let named = Reach::Named("/a".into());
    assert!(
        [machine("/b"), machine("a"), machine(""), named, Reach::Process(1)].iter().all(|reach| !cover("/a", reach))
    );
    let unreadable = DirectorySignals::new(OsStr::from_bytes(b"/\xff"));
    assert_eq!(unreadable.beacons(), Beacons::None);
}

#[test]
fn a_relative_directory_is_that_of_the_moment() {
    assert!(DirectorySignals::new("signals").directory.is_absolute());
}

/// A watch is placed anew at each heartbeat of whoever waits, for days if need be.
#[test]
fn a_watch_that_ends_leaves_no_post_behind() {
    let scratch = Scratch::new();
    let (inbox, _notices) = inbox();
    let beacon = Beacon::raise(&scratch.0, OTHER).unwrap();
    let posts = || sentry::posts_at(&beacon::path(&scratch.0, OTHER));
    let awake = |session| {
        let signals = DirectorySignals::new(&scratch.0);
        assert!(signals.wake(session, true, Shared::downgrade(&inbox)));
        signals
    };
    let (one, two) = (awake(OWN), awake(SessionId(3)));
    // Both give their watches the same number.
    one.watch(1, OTHER);
    two.watch(1, OTHER);
    for watch in 1..100 {
        one.watch(watch + 1, OTHER);
        one.unwatch(watch);
    }
    assert_eq!(posts(), 2, "each of them watches once");
    one.rest();
    assert_eq!(posts(), 1, "who rests watches nothing");
    drop(beacon);
    assert!(comes_true(|| posts() == 0));
}

#[test]
fn a_sentry_that_finds_no_file_leaves_it_to_the_listener_to_look_on() {
    let scratch = Scratch::new();
    let (inbox, notices) = inbox();
    let signals = DirectorySignals::new(&scratch.0);
    assert!(signals.wake(OWN, true, Shared::downgrade(&inbox)));
    assert_eq!(notices.recv_timeout(BUSY), Ok(Notice::BeaconStands(OWN)));
    signals.watch(1, OTHER);
    assert!(comes_true(|| signals.awake.lock().as_ref().is_some_and(|awake| awake.listener.looks())));
    assert!(notices.try_recv().is_err());
}

/// As when no file can be opened for a while: the sentry gives up, and the listener looks again and again.
#[test]
fn a_look_that_failed_is_tried_again() {
    let scratch = Scratch::new();
    let (directory, real, file) = (scratch.0.join("signals"), scratch.0.join("real"), scratch.0.join("file"));
    fs::create_dir(&real).unwrap();
    fs::write(&file, "").unwrap();
    // In one step: the listener would make a directory that is missing.
    let lead_to = |target: &PathBuf| {
        let draft = scratch.0.join("draft");
        symlink(target, &draft).unwrap();
        fs::rename(draft, &directory).unwrap();
    };
    lead_to(&real);
    let (inbox, notices) = inbox();
    let signals = DirectorySignals::new(&directory);
    assert!(signals.wake(OWN, true, Shared::downgrade(&inbox)));
    assert_eq!(notices.recv_timeout(BUSY), Ok(Notice::BeaconStands(OWN)));
    fs::write(directory.join(name_of(OTHER, "beacon")), "").unwrap();
    lead_to(&file);
    signals.watch(1, OTHER);
    assert!(comes_true(|| signals.awake.lock().as_ref().is_some_and(|awake| awake.listener.looks())));
    assert!(notices.try_recv().is_err());
    lead_to(&real);
    assert_eq!(notices.recv_timeout(BUSY), Ok(Notice::BeaconGone { watch: 1 }));
}
