//! A beacon: a file that its context keeps locked. What shows life is the lock, and not the file.

use std::{
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use super::{name_of, rights::Rights};
use crate::executor::{ProcessMark, this_process};
use crate::machine::SessionId;

pub(super) const KIND: &str = "beacon";
pub(super) const RISING: &str = "rising";
/// A file that is missing for this long proves that its context is dead or at rest. A living context whose file somebody deleted
/// raises it again [sooner](super::listener::IDLE).
const MISSING: Duration = Duration::from_millis(2_500);
/// A beacon is raised this often at most. Each time costs a file that stays open.
const MOST_FILES: usize = 16;
/// A context that is awake updates the time of its file this often. Otherwise a context that was awake for days would leave a file that is
/// swept at once.
const MARKED_EVERY: Duration = Duration::from_secs(60 * 60);

/// Where the beacon of a session stands.
pub(in super::super) fn path(directory: &Path, session: SessionId) -> PathBuf {
    directory.join(name_of(session, KIND))
}

/// A beacon of this context. Dropping it lowers it, unless a fork has copied it into another process: the lock is still the parent's.
#[derive(Debug)]
pub(super) struct Beacon {
    process: ProcessMark,
    directory: PathBuf,
    session: SessionId,
    /// The rights of the directory.
    rights: Rights,
    /// All open and locked. The last one has the name. Somebody deleted the others, but whoever has one of them open still looks
    /// at its lock, and would take us for dead if we dropped it.
    files: Vec<File>,
    is_lost: bool,
    leaves_file: bool,
}

impl Beacon {
    pub(super) fn raise(directory: &Path, session: SessionId) -> io::Result<Self> {
        let rights = Rights::of(directory)?;
        let files = vec![lock_file(directory, session, rights)?];
        Ok(Self {
            process: this_process(),
            directory: directory.to_owned(),
            session,
            rights,
            files,
            is_lost: false,
            leaves_file: false,
        })
    }

    /// Raises the beacon again if somebody deleted its file. True once, if that cannot be done: then watchers will take us for dead.
    pub(super) fn gets_lost(&mut self) -> bool {
        if self.is_lost || self.stands() {
            return false;
        }
        self.is_lost = self.raise_again().is_err();
        self.is_lost
    }

    /// The session's row may outlast this context: the file stays, as that of a dead process does.
    pub(super) fn leave_file(&mut self) {
        self.leaves_file = true;
    }

    /// Marks the file as that of an awake context, unless it did so in the last hour.
    #[expect(clippy::disallowed_methods, reason = "the times of files are those of the wall clock")]
    pub(super) fn mark(&self) {
        if let Some(file) = self.files.last().filter(|file| is_unmarked(file)) {
            // Without it, the file is swept sooner.
            let _ = file.set_modified(SystemTime::now());
        }
    }

    fn raise_again(&mut self) -> io::Result<()> {
        if self.files.len() >= MOST_FILES {
            return Err(io::Error::other("somebody deletes the file again and again"));
        }
        // Somebody may have deleted the whole directory. The one around it is not ours to make.
        let _ = self.rights.make_directory(&self.directory);
        self.files.push(lock_file(&self.directory, self.session, self.rights)?);
        Ok(())
    }

    /// Whether a watcher finds this beacon at its path.
    pub(super) fn stands(&self) -> bool {
        let own = self.files.last().and_then(|file| file.metadata().ok());
        match (fs::metadata(path(&self.directory, self.session)), own) {
            (Ok(found), Some(own)) => is_same(&found, &own),
            (Err(error), _) => error.kind() != io::ErrorKind::NotFound,
            // An error says nothing.
            (Ok(_), None) => true,
        }
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        if self.process != this_process() {
            return;
        }
        // The name goes first, for the session's row is gone. Whoever finds a row needs the file, to see that its context is dead.
        if !self.leaves_file {
            let _ = fs::remove_file(path(&self.directory, self.session));
        }
        for file in &self.files {
            let _ = file.unlock();
        }
    }
}

/// Others see the file under its name only once it is locked: else they might take it for one that a dead process left. A sweep
/// of another process may remove it before that, so it is tried twice.
fn lock_file(directory: &Path, session: SessionId, rights: Rights) -> io::Result<File> {
    let attempt = || {
        let rising = directory.join(name_of(session, RISING));
        let file = File::create_new(&rising)?;
        // If this fails, other users may be unable to open it.
        let _ = rights.open_file(&file);
        let risen =
            file.try_lock().map_err(io::Error::from).and_then(|()| fs::rename(&rising, path(directory, session)));
        if risen.is_err() {
            let _ = fs::remove_file(rising);
        }
        risen.map(|()| file)
    };
    attempt().or_else(|_| attempt())
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Files have no number here that Rust's standard library can tell.
#[cfg(not(unix))]
fn is_same(_one: &Metadata, _other: &Metadata) -> bool {
    true
}

/// Opens a regular file. If somebody put a pipe there, opening it would wait until somebody else writes to it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() { File::open(path) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Whether a beacon stands at this moment. It may if its file exists and cannot be opened.
pub(super) fn is_seen(directory: &Path, session: SessionId) -> bool {
    match open(&path(directory, session)) {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(file) => file.try_lock_shared().is_err(),
    }
}

/// A beacon that is looked at. It stays open, so that a look costs one call.
#[derive(Debug)]
pub(super) struct Sight {
    path: PathBuf,
    file: Option<File>,
    missing_since: Option<Instant>,
}

impl Sight {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, missing_since: None }
    }

    /// Whether the beacon is gone: its file is there and nobody has it locked, or it has been missing for long enough. An error
    /// proves nothing, such as that no file can be opened at the moment.
    pub(super) fn is_gone(&mut self, now: Instant) -> bool {
        if self.file.is_none() {
            match open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let since = *self.missing_since.get_or_insert(now);
                    return now.duration_since(since) >= MISSING;
                }
                opened => self.file = opened.ok(),
            }
        }
        self.missing_since = None;
        // Two who look at once do not disturb each other: the lock is a shared one.
        self.file.as_ref().is_some_and(|file| file.try_lock_shared().is_ok())
    }
}

/// Whether the last mark of an open file is so old that it is time for the next one.
fn is_unmarked(file: &File) -> bool {
    file.metadata().is_ok_and(|found| last_marked(&found).elapsed().is_ok_and(|age| age >= MARKED_EVERY))
}

/// The age of a file on a system without file times: old enough to be swept.
pub(super) fn last_marked(found: &Metadata) -> SystemTime {
    found.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::{Beacon, is_seen};
    use crate::machine::SessionId;

    #[test]
    fn a_copy_that_a_forked_child_drops_lowers_nothing() {
        let directory = env::temp_dir().join(format!("leasehold-forked-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut beacon = Beacon::raise(&directory, SessionId(1)).unwrap();
        let _parents = beacon.files[0].try_clone().unwrap();
        beacon.process += 1;
        drop(beacon);
        assert!(is_seen(&directory, SessionId(1)));
        fs::remove_dir_all(&directory).unwrap();
    }
}
