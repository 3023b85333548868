//! What SQLite's errors mean for a lease.

use std::io;

use rusqlite::{Error, ErrorCode, ffi};

use crate::machine::{Applied, StoreError, StoreErrorKind, Unreadable};

const WRITES: &str = "another connection held the write lock of the SQLite file until the time limit; end its transaction; if it has \
     set PRAGMA locking_mode = exclusive, close it";
/// Why a file cannot be switched to write-ahead logging.
pub(super) const OTHER_JOURNAL: &str = "the SQLite file is not yet in journal mode WAL, and another connection has it open; close that \
    connection, or set PRAGMA journal_mode = WAL on it";

/// Why a file cannot be read for a moment.
const RECOVERS: &str =
    "another process was rebuilding the index of the SQLite file's log (-shm) until the time limit; try again";

const FULL: &str = "there is no room left on the disk of the SQLite file; free some space";
const QUOTA: &str = "a disk quota of this user, of a group or of a folder is used up where the SQLite file is; free some space, or raise \
    the quota";
const MOUNTED: &str = "the file system of the SQLite file is read-only, and a process that takes leases must write to it; mount it for \
    writing, or see the system's log if it was: a disk error makes it read-only";
const LIMITED: &str = "the SQLite file or one beside it cannot grow: the size of the files that this process writes is limited; raise \
    the limit with ulimit -f";
const READ_ONLY: &str = "the SQLite file cannot be written, and a process that takes leases must write to it; let this user write to the \
    file, to its directory, and to the files beside it whose names end in -wal and -shm, or run the program as a user who may";

/// Why a transaction gave no reply.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another connection is in the way, as the sentence says. Nothing was written; it can be tried again at once.
    Busy(&'static str),
    /// The file could not be written or read. SQLite does not say why: [`LeaseFile::error`](super::file::LeaseFile::error) does.
    Disk(StoreError),
    /// Another failure.
    Failed(StoreError),
}

/// Before the commit, nothing counts.
impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error.sqlite_error().map(|found| found.extended_code) {
            Some(ffi::SQLITE_READONLY_RECOVERY | ffi::SQLITE_READONLY_CANTLOCK | ffi::SQLITE_BUSY_RECOVERY) => {
                Self::Busy(RECOVERS)
            }
            _ if is_busy(&error) => Self::Busy(WRITES),
            _ => Self::of(&error, meaning(&error)),
        }
    }
}

impl From<Unreadable> for Trouble {
    fn from(unreadable: Unreadable) -> Self {
        Self::Failed(unreadable.into())
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Trouble {
    /// A commit failed. That it found no lock or no room is certain; after a failure of the disk nobody knows.
    pub(super) fn of_commit(error: &Error) -> Self {
        if is_busy(error) {
            return Self::Busy(WRITES);
        }
        let meaning = meaning(error);
        Self::of(error, if is_refused_write(error) { meaning } else { StoreError::unknown(meaning.message) })
    }

    fn of(error: &Error, meaning: StoreError) -> Self {
        let is_of_disk = matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen)
        );
        if is_of_disk { Self::Disk(meaning) } else { Self::Failed(meaning) }
    }

    /// This user may not write to the file.
    pub(super) fn of_reader() -> Self {
        Self::Disk(StoreError::permanent(StoreErrorKind::Unsupported, READ_ONLY))
    }

    /// A store that was opened only to look was asked to write.
    pub(super) fn of_look() -> Self {
        let sentence =
            "this store was opened only to look at leases, and grants none; open the file with SqliteStore::open";
        Self::Failed(StoreError::permanent(StoreErrorKind::Unsupported, sentence))
    }

    /// Whether nothing was written, and the disk may be full: a quota that is used up is an I/O error to SQLite, like any other.
    pub(super) fn may_be_full(&self) -> bool {
        matches!(self, Self::Disk(error) if error.retry && error.applied == Applied::No)
    }

    /// The error for a caller that waits no longer.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Busy(sentence) => StoreError::busy(sentence),
            Self::Disk(error) | Self::Failed(error) => error,
        }
    }
}

/// Whether another connection is in the way, and nothing was written.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether the disk was full, so that the last page of a commit is not written.
fn is_refused_write(error: &Error) -> bool {
    let code = error.sqlite_error().map(|found| found.extended_code);
    matches!(code, Some(ffi::SQLITE_FULL | ffi::SQLITE_IOERR_WRITE))
}

/// The error, with the cause that the system gave for another file beside the database.
pub(super) fn explained(said: io::ErrorKind, error: StoreError) -> StoreError {
    let (sentence, has_no_room) = match said {
        io::ErrorKind::StorageFull => (FULL, true),
        io::ErrorKind::QuotaExceeded => (QUOTA, true),
        io::ErrorKind::ReadOnlyFilesystem => (MOUNTED, false),
        io::ErrorKind::FileTooLarge => (LIMITED, false),
        _ => return error,
    };
    let told = error.message.rfind(" (SQLite: ").map_or("", |at| &error.message[at..]);
    let message = format!("{sentence}{told}");
    if has_no_room {
        return StoreError { kind: StoreErrorKind::Quota, retry: true, message, ..error };
    }
    StoreError { message, ..error }
}

/// What an error means as long as nothing was committed.
pub(super) fn meaning(error: &Error) -> StoreError {
    let because = |sentence: &str| format!("{sentence} (SQLite: {error})");
    let unsupported = |sentence: &str| StoreError::permanent(StoreErrorKind::Unsupported, because(sentence));
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError { kind: StoreErrorKind::Quota, ..StoreError::transient(because(FULL)) },
        Some(ErrorCode::ReadOnly) => unsupported(READ_ONLY),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => unsupported(
            "the SQLite file cannot be opened; its directory must exist, this user must be allowed to write both, and the process \
             must not have too many files open",
        ),
        Some(ErrorCode::NotADatabase) => {
            unsupported("the file is not an SQLite database, or an encrypted one; choose another file")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            unsupported("the SQLite file is damaged; restore it, or delete it while nobody has it open")
        }
        Some(ErrorCode::Unknown) if error.to_string().contains("no such") => {
            unsupported("the tables of the leases were changed or dropped while the file was open; open it again")
        }
        _ => StoreError::transient(because("the SQLite file did not answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> Error {
        Error::SqliteFailure(ffi::Error::new(code), None)
    }

    /// After a failed sync, the commit may be in the log all the same.
    #[test]
    fn a_commit_that_failed_may_have_been_written_unless_its_write_was_refused() {
        for refused in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_BUSY] {
            assert_eq!(Trouble::of_commit(&error(refused)).into_error().applied, Applied::No, "{refused}");
        }
        for unknown in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR, ffi::SQLITE_CORRUPT] {
            assert_eq!(Trouble::of_commit(&error(unknown)).into_error().applied, Applied::Unknown, "{unknown}");
        }
    }

    #[test]
    fn a_log_whose_index_another_process_rebuilds_is_waited_for() {
        for code in [ffi::SQLITE_READONLY_RECOVERY, ffi::SQLITE_READONLY_CANTLOCK, ffi::SQLITE_BUSY_RECOVERY] {
            assert!(matches!(Trouble::from(error(code)), Trouble::Busy(RECOVERS)), "{code}");
        }
        assert!(matches!(Trouble::from(error(ffi::SQLITE_READONLY)), Trouble::Disk(_)));
    }
}
