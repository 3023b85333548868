//! Which file stands at a path, and what is read of one without SQLite.

use std::{fs, io, path::Path};

/// Which file stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::from(&metadata))
    }

    /// Windows does not let go of an open file.
    #[cfg(not(unix))]
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|_| Self(0, 0))
    }

    /// Whether another file stands at the path, or none.
    pub(super) fn has_left(self, path: &Path) -> bool {
        match Self::of(path) {
            Ok(found) => found != self,
            Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    /// Whether the file, which this process has open, was moved or deleted although its path is hidden from this user: because its folder was
    /// replaced, or because this process has dropped the rights with which it opened the file. Only Linux tells where an open file is. The
    /// path is one without links.
    #[cfg(unix)]
    pub(super) fn has_left_unseen(self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;

        let is_hidden = Self::of(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        let has_moved = |descriptor: &Path| {
            let file = fs::metadata(descriptor).ok().filter(|file| Self::from(file) == self);
            file.is_some_and(|file| file.nlink() == 0 || fs::read_link(descriptor).is_ok_and(|found| found != path))
        };
        is_hidden
            && fs::read_dir("/proc/self/fd")
                .is_ok_and(|mut descriptors| descriptors.any(|each| each.is_ok_and(|each| has_moved(&each.path()))))
    }

    #[cfg(not(unix))]
    pub(super) fn has_left_unseen(self, _path: &Path) -> bool {
        false
    }
}

#[cfg(unix)]
impl From<&fs::Metadata> for Identity {
    fn from(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(metadata.dev(), metadata.ino())
    }
}

/// Reads the first bytes of a file that SQLite may have open in this process.
#[cfg(unix)]
pub(super) fn read_start(path: &Path, bytes: &mut [u8]) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    kept::with(path, |file, _| file.read_exact_at(bytes, 0))?
}

#[cfg(not(unix))]
pub(super) fn read_start(path: &Path, bytes: &mut [u8]) -> io::Result<()> {
    use std::io::Read;
    fs::File::open(path)?.read_exact(bytes)
}

/// Whether this user may write to a file that SQLite may have open in this process. Only the operating system knows for certain.
#[cfg(unix)]
pub(super) fn may_write(path: &Path) -> bool {
    kept::with(path, |_, writable| writable).unwrap_or(false)
}

/// On Windows, a user who may read the file is taken to be able to write to it.
#[cfg(not(unix))]
pub(super) fn may_write(_path: &Path) -> bool {
    true
}

/// Files that stay open.
///
/// SQLite locks files by [fcntl(2)](https://man7.org/linux/man-pages/man2/fcntl_locking.2.html): as soon as a process closes any descriptor
/// of a file, it loses all such locks on it. So what is opened here stays open until the process ends, one descriptor for each file.
#[cfg(unix)]
mod kept {
    use std::{
        fs::{File, OpenOptions},
        io,
        os::unix::fs::MetadataExt,
        path::Path,
        vec::Vec,
    };

    use super::Identity;
    use crate::executor::Mutex;

    struct Kept {
        identity: Identity,
        file: File,
        writable: bool,
    }

    /// Calls `work` with the file, and with whether this user could open it for writing.
    pub(super) fn with<T>(path: &Path, work: impl FnOnce(&File, bool) -> T) -> io::Result<T> {
        static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

        let mut kept = KEPT.lock();
        let identity = Identity::of(path)?;
        if let Some(known) = kept.iter().find(|known| known.identity == identity) {
            return Ok(work(&known.file, known.writable));
        }
        let (file, writable) = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => (file, true),
            Err(_) => (File::open(path)?, false),
        };
        // The path may lead to another file by now.
        let identity = file.metadata().map_or(identity, |metadata| Identity::from(&metadata));
        let done = work(&file, writable);
        // A program that looks at a file for years may see it replaced often. Nobody else can lock a file that was deleted.
        kept.retain(|known| known.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0));
        kept.push(Kept { identity, file, writable });
        Ok(done)
    }
}
