//! The files that SQLite keeps beside a database: they show who may read it, and why a write fails.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{
    failure,
    identity::{Identity, may_write},
};
use crate::machine::{StoreError, StoreErrorKind};

const LOG: &str = "-wal";
const INDEX: &str = "-shm";
const JOURNAL: &str = "-journal";
/// A file that exists for a moment, after a write has failed, or before the database grows.
const PROBE: &str = "-leasehold-probe";
/// Its length: more than SQLite adds to its files at once.
const PROBED: usize = 65_536;

/// A database and the files beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beside {
    /// Which file it is, how long, and when it was last written.
    file: Option<(Identity, u64, Option<SystemTime>)>,
    /// Each with its length.
    log: Option<(Identity, u64)>,
    index: Option<Identity>,
    journal: Option<u64>,
}

impl Beside {
    pub(super) fn of(path: &Path) -> Self {
        let found = |end| {
            let path = beside(path, end);
            Some((Identity::of(&path).ok()?, fs::metadata(&path).ok()?.len()))
        };
        let identity = Identity::of(path).ok();
        let file = identity
            .zip(fs::metadata(path).ok())
            .map(|(identity, metadata)| (identity, metadata.len(), metadata.modified().ok()));
        Self {
            file,
            log: found(LOG),
            index: found(INDEX).map(|(identity, _)| identity),
            journal: found(JOURNAL).map(|(_, length)| length),
        }
    }

    /// Whether somebody may have the file open in write-ahead logging, or ended without closing it.
    pub(super) fn is_open(self) -> bool {
        self.log.is_some() && self.index.is_some()
    }

    /// Whether all that was committed stands in the file itself.
    pub(super) fn is_whole(self) -> bool {
        self.log.is_none_or(|(_, length)| length == 0) && self.journal.is_none_or(|length| length == 0)
    }
}

/// The path of a file beside a database.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(end);
    name.into()
}

/// Where SQLite keeps the write-ahead log, and its index.
pub(super) fn log(path: &Path) -> [PathBuf; 2] {
    [LOG, INDEX].map(|end| beside(path, end))
}

/// Takes away an empty log that a user who may not write to the file has made, because all others closed the file at that moment.
/// If this user may write to the log, this user made it.
pub(super) fn clear(path: &Path, before: Beside) {
    let Some((identity, 0)) = Beside::of(path).log else { return };
    let log = beside(path, LOG);
    if !may_write(path) && before.log.is_none_or(|(known, _)| known != identity) && may_write(&log) {
        drop(fs::remove_file(log));
    }
}

/// If nothing can be written to the disk of this database, returns an error that says why. SQLite does not say it.
pub(super) fn blame_disk(path: &Path, error: StoreError) -> StoreError {
    if error.kind == StoreErrorKind::Quota {
        return error;
    }
    match probe(path, PROBED) {
        Ok(()) => error,
        Err(said) => failure::explained(said.kind(), error),
    }
}

/// Whether the database may take that many bytes more on its disk, and its log still has room. What an application has written to the same
/// database may be more than the disk holds: copying a part of that would only take the room of the log.
pub(super) fn has_room(path: &Path, growth: u64) -> bool {
    usize::try_from(growth).is_ok_and(|growth| probe(path, growth + PROBED).is_ok())
}

/// Writes this many bytes beside the database, and takes them away again.
fn probe(path: &Path, length: usize) -> io::Result<()> {
    let probe = beside(path, PROBE);
    // A process that was killed here may have left one.
    drop(fs::remove_file(&probe));
    let written = fs::File::create_new(&probe).and_then(|mut file| file.write_all(&vec![0; length]));
    drop(fs::remove_file(&probe));
    written
}

/// Whether Linux may refuse to open a file as SQLite opens it, even if its rights let this user write to it: in a directory like `/tmp`, in
/// which many users have files, and none may remove those of others
/// ([`fs.protected_regular`](https://docs.kernel.org/admin-guide/sysctl/fs.html#protected-regular)).
#[cfg(unix)]
fn may_be_protected(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let of = |path: &Path| fs::metadata(path).ok();
    let (Some(directory), Some(file), Some(me)) = (file.parent().and_then(of), of(file), of(Path::new("/proc/self")))
    else {
        return false;
    };
    let is_for_all = directory.mode() & 0o1000 != 0 && directory.mode() & 0o022 != 0;
    is_for_all && ![directory.uid(), me.uid()].contains(&file.uid())
}

#[cfg(not(unix))]
fn may_be_protected(_file: &Path) -> bool {
    false
}

fn protected_by(file: &Path, error: &StoreError) -> StoreError {
    let message = format!(
        "{}; perhaps because another user made {}: in a directory like /tmp, Linux may let nobody else write to it (fs.protected_regular); \
         move the database to a directory of its users",
        error.message,
        file.display()
    );
    StoreError { message, ..error.clone() }
}

/// Says which files beside the database keep this user from writing to it, if any do.
pub(super) fn blame(path: &Path, error: StoreError) -> StoreError {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_locked_out = error.kind == StoreErrorKind::Unsupported && may_write(&path);
    let in_the_way = |end: &&str| {
        let file = beside(&path, end);
        file.exists() && !may_write(&file)
    };
    let found: Vec<_> = [LOG, INDEX].into_iter().filter(|_| is_locked_out).filter(in_the_way).collect();
    if found.is_empty() {
        let files = [path.clone(), beside(&path, LOG), beside(&path, INDEX)];
        let protected = files.iter().filter(|_| is_locked_out).find(|file| may_be_protected(file));
        return protected.map_or_else(|| error.clone(), |file| protected_by(file, &error));
    }
    let names: Vec<_> = found.iter().map(|end| beside(&path, end).display().to_string()).collect();
    let remedy = if Beside::of(&path).log.is_some_and(|(_, length)| length > 0) {
        "make them this user's (by chown) while no process uses the database; do not delete them, as the log holds changes"
    } else {
        "delete them while no process uses the database"
    };
    let sentence = format!(
        "this user may write to the SQLite file, but not to what SQLite keeps beside it: {}; another user made that; {remedy}",
        names.join(" and ")
    );
    StoreError { message: sentence, ..error }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    /// Whether the kernel refuses depends on a setting of the machine.
    #[test]
    fn who_cannot_open_the_file_of_another_user_in_a_sticky_directory_is_told_to_move_it() {
        let directory = std::env::temp_dir().join(format!("leasehold-beside-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("leases.db");
        fs::write(&path, "").unwrap();
        let told = |mode| {
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            blame(&path, StoreError::permanent(StoreErrorKind::Unsupported, "it cannot be written")).message
        };
        let own = told(0o1777);
        // Only root may give a file away, and only Linux has this rule.
        let is_there = Path::new("/proc/self").exists() && chown(&path, Some(65_534), None).is_ok();
        let of_another = is_there.then(|| [0o1777, 0o1755, 0o777].map(told));
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(own, "it cannot be written");
        let Some([sticky, others @ ..]) = of_another else { return };
        assert!(sticky.starts_with("it cannot be written; ") && sticky.contains("fs.protected_regular"), "{sticky}");
        assert_eq!(others, ["it cannot be written"; 2], "nobody else makes files there, or anybody may remove them");
    }
}
