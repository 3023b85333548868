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
}

#[cfg(unix)]
impl From<&fs::Metadata> for Identity {
    fn from(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(metadata.dev(), metadata.ino())
    }
}

/// Reads the first bytes of a file that SQLite may have open in this process.
///
/// SQLite locks files by [fcntl(2)](https://man7.org/linux/man-pages/man2/fcntl_locking.2.html): as soon as a process closes any descriptor
/// of a file, it loses all such locks on it. So what is opened here stays open until the process ends, one descriptor for each file.
#[cfg(unix)]
pub(super) fn read_start(path: &Path, bytes: &mut [u8]) -> io::Result<()> {
    use std::{
        fs::File,
        os::unix::fs::FileExt,
        sync::{Mutex, PoisonError},
        vec::Vec,
    };
    static OPENED: Mutex<Vec<(Identity, File)>> = Mutex::new(Vec::new());

    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let identity = Identity::of(path)?;
    if let Some((_, file)) = opened.iter().find(|(known, _)| *known == identity) {
        return file.read_exact_at(bytes, 0);
    }
    let file = File::open(path)?;
    let read = file.read_exact_at(bytes, 0);
    // The path may lead to another file by now.
    let identity = file.metadata().map_or(identity, |metadata| Identity::from(&metadata));
    opened.push((identity, file));
    read
}

#[cfg(not(unix))]
pub(super) fn read_start(path: &Path, bytes: &mut [u8]) -> io::Result<()> {
    use std::io::Read;
    fs::File::open(path)?.read_exact(bytes)
}
