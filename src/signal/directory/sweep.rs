//! Removing what processes left behind that died.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
    vec::Vec,
};

use super::{beacon, ear, listener::clock, names, session_in};
use crate::{
    executor::process_wide,
    machine::{SessionId, SortedMap},
};

/// A dead context may stay in the store for long: nobody looks for it until it is to be granted what it waited for. Its file proves
/// its death at once, so a sweep keeps the file for this long after its last mark.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// A context that has not locked its file by then is dead, or gets no processor time.
const RISEN_BY: Duration = Duration::from_secs(10);
/// If there are more files than this, a sweep looks for those of dead contexts, and leaves the youngest. Else processes that die again and
/// again would fill the directory.
const MANY: usize = 1_024;
/// A sweep keeps this many of them.
const MOST_KEPT: usize = 512;
/// A context that ends looks at this many files.
const SOME: usize = 64;
/// A process may make a context for each of its jobs. Contexts that end examine files at most this often.
const SOME_EVERY: Duration = Duration::from_secs(10);

process_wide!(with_looks, SortedMap<PathBuf, Instant>, SortedMap::new());

/// Removes what dead contexts left in the whole directory.
pub(super) fn sweep(directory: &Path) {
    let all: Vec<_> = names(directory).into_iter().flatten().collect();
    let beacons = all.iter().filter(|name| session_in(name, beacon::KIND).is_some()).count();
    remove_dead(directory, all.iter().map(String::as_str), (beacons > MANY).then_some(MOST_KEPT));
}

/// As [`sweep_some`], unless a context of this process has just done it in this directory.
pub(super) fn sweep_some_if_due(directory: &Path, own: SessionId) {
    let is_due = with_looks(|looks| {
        let (mut looks, now) = (looks.lock(), clock());
        looks.retain(|_, began| now.duration_since(*began) < SOME_EVERY);
        let directory = directory.to_owned();
        let is_due = !looks.contains_key(&directory);
        if is_due {
            looks.insert(directory, now);
        }
        is_due
    });
    if is_due {
        sweep_some(directory, own);
    }
}

/// Looks at a few files only, from a random start: so each context usually looks at other files than the one before. A process that lives
/// for a moment has no time for more.
pub(super) fn sweep_some(directory: &Path, own: SessionId) {
    let first: Vec<_> = names(directory).into_iter().flatten().take(MANY + 1).collect();
    // The numbers of sessions are random.
    let start = usize::try_from(own.0 % first.len().max(1) as u128).unwrap_or_default();
    let some = first.iter().cycle().skip(start).take(SOME.min(first.len()));
    remove_dead(directory, some.map(String::as_str), (first.len() > MANY).then_some(SOME / 2));
}

/// Of these files, removes those that never rose or that nobody listens at, and old beacons of the dead; of the younger beacons of the
/// dead, `most` stay, or all.
fn remove_dead<'a>(directory: &Path, names: impl Iterator<Item = &'a str>, most: Option<usize>) {
    let mut beacons = Vec::new();
    for name in names {
        let path = directory.join(name);
        if session_in(name, beacon::RISING).is_some() {
            remove_unrisen(&path);
        } else if session_in(name, beacon::KIND).is_some() {
            let found = fs::metadata(&path).ok();
            beacons.extend(found.map(|found| (beacon::last_marked(&found), path)));
        } else if session_in(name, ear::OPENING).is_some() && path.is_dir() {
            remove_unopened(&path);
        } else {
            ear::remove_dead(directory, name);
        }
    }
    remove_fallen(beacons, most);
}

/// Removes a file that its context never made a beacon.
fn remove_unrisen(path: &Path) {
    let Some(file) = opened(path) else { return };
    // Its context may be about to lock it, and must find it unlocked.
    let is_late = file.metadata().is_ok_and(|found| age_of(&beacon::last_marked(&found)) >= RISEN_BY);
    // The lock is kept until the file is removed: its context must not lock it meanwhile.
    if is_late && file.try_lock().is_ok() {
        let _ = fs::remove_file(path);
    }
}

/// Removes the place of a socket that its context never opened.
fn remove_unopened(place: &Path) {
    let found = fs::symlink_metadata(place).ok().filter(fs::Metadata::is_dir);
    if found.is_some_and(|found| age_of(&beacon::last_marked(&found)) >= RISEN_BY) {
        // Only its owner and root can.
        let _ = fs::remove_dir_all(place);
    }
}

/// Looking at a lock takes longer than reading the time of a file. So files are opened only if they are old, or if not all may stay.
fn remove_fallen(mut beacons: Vec<(SystemTime, PathBuf)>, most: Option<usize>) {
    let is_old = |marked: &SystemTime| age_of(marked) >= KEPT;
    beacons.retain(|(marked, path)| (most.is_some() || is_old(marked)) && has_fallen(path));
    beacons.sort_unstable_by(|one, other| other.cmp(one));
    for (younger, (marked, path)) in beacons.into_iter().enumerate() {
        if most.is_some_and(|most| younger >= most) || is_old(&marked) {
            let _ = fs::remove_file(path);
        }
    }
}

/// A time in the future counts as no age: the clock was set back.
fn age_of(marked: &SystemTime) -> Duration {
    marked.elapsed().unwrap_or_default()
}

/// Whether nobody keeps a beacon locked.
pub(in super::super) fn has_fallen(path: &Path) -> bool {
    // A shared lock: with an exclusive one, whoever looks meanwhile would take the context for a living one.
    opened(path).is_some_and(|file| file.try_lock_shared().is_ok())
}

/// Opens a regular file. Opening a pipe that somebody put there would block until another process opens it for writing.
fn opened(path: &Path) -> Option<File> {
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    File::open(path).ok()
}
