//! A beacon: a file that its context keeps locked. What shows life is the lock, and not the file.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use super::{name_of, sessions};
use crate::machine::SessionId;

const KIND: &str = "beacon";
const RISING: &str = "rising";

/// Where the beacon of a session stands.
pub(super) fn path(directory: &Path, session: SessionId) -> PathBuf {
    directory.join(name_of(session, KIND))
}

/// A beacon of this context. Dropping it lowers it.
#[derive(Debug)]
pub(super) struct Beacon {
    /// Open, and locked.
    file: File,
    path: PathBuf,
}

impl Beacon {
    /// Others see it under its name only once it is locked: else they might take it for one that a dead process left.
    pub(super) fn raise(directory: &Path, session: SessionId) -> io::Result<Self> {
        let (rising, path) = (directory.join(name_of(session, RISING)), path(directory, session));
        let file = File::create_new(&rising)?;
        file.try_lock()?;
        fs::rename(&rising, &path)?;
        Ok(Self { file, path })
    }

    /// Whether others still see it. Somebody may have deleted the file, and who looks for it takes us for dead.
    #[cfg(unix)]
    pub(super) fn stands(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        // An error says nothing.
        self.file.metadata().map_or(true, |file| file.nlink() > 0)
    }

    /// Whether others still see it. A file that is open cannot be deleted here.
    #[cfg(not(unix))]
    pub(super) fn stands(&self) -> bool {
        self.file.metadata().is_ok()
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        // The name goes first: with it the session's row is gone, or is to be taken for that of a dead context.
        let _ = fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

/// A beacon that is looked at. It stays open, so that a look costs one call.
#[derive(Debug)]
pub(super) struct Sight {
    path: PathBuf,
    file: Option<File>,
}

impl Sight {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None }
    }

    /// Whether the beacon is gone: there is no such file, or nobody has it locked. What else goes wrong proves nothing.
    pub(super) fn is_gone(&mut self) -> bool {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) => return error.kind() == io::ErrorKind::NotFound,
            }
        }
        // Two who look at once do not disturb each other: the lock is a shared one.
        self.file.as_ref().is_some_and(|file| file.try_lock_shared().is_ok())
    }
}

/// Removes the files of beacons that nobody keeps locked.
pub(super) fn sweep(directory: &Path) {
    for session in sessions(directory, KIND) {
        let path = path(directory, session);
        let is_dead = File::open(&path).is_ok_and(|file| match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
        });
        if is_dead {
            // A session is never used again: nobody else raises a beacon of this name.
            let _ = fs::remove_file(path);
        }
    }
}
