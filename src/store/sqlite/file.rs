//! The file of a store.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, ffi};

#[cfg(unix)]
use super::mounted;
use super::{
    beside,
    failure::{self, Trouble},
    identity::{Identity, may_write},
    look::{self, Way},
    room::Room,
    schema::{self, Tables},
    worker,
};
use crate::machine::{StoreError, StoreErrorKind};
use crate::signal::make_directory;
use crate::store::Reach;

/// How often to open a file again that was created or replaced while it was opened.
const ATTEMPTS: usize = 4;
/// What the name of the directory ends with, so that it is never one of SQLite's own beside the file.
const SIGNALS: &str = ".d";
/// How long opening waits for others.
pub(super) const OPENING: Duration = Duration::from_secs(5);
/// How long opening waits until others may use what another user's process has just made beside the file.
const SHARING: Duration = Duration::from_secs(1);
/// If the file lacks more pages than this, it is left as it is. SQLite itself copies the log once the log has 1,000 pages. So more than
/// this are missing only if an application's transactions are larger, or somebody reads the log.
const MOST_GROWTH: u64 = 2_000;
/// The pause between two attempts meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

/// An SQLite file with the tables of the leases.
#[derive(Debug)]
pub(super) struct LeaseFile {
    pub(super) connection: Connection,
    pub(super) tables: Tables,
    /// The path as it was given, but absolute. A link in it may be changed.
    given: PathBuf,
    /// The path without links.
    path: PathBuf,
    identity: Identity,
    /// The write-ahead log and its index, where the file has them. If one is replaced, this connection does not see what others write.
    log: [Option<Identity>; 2],
    prefix: String,
    /// How it was opened, if only to be looked at.
    pub(super) looks: Option<Way>,
}

impl LeaseFile {
    pub(super) fn open(path: &Path, prefix: &str) -> Result<Self, StoreError> {
        at_checked(path, prefix, |path| Self::open_shared(path, prefix).map_err(|error| beside::blame(path, error)))
    }

    /// SQLite makes the files beside the database by the umask, and gives them the rights of the database only then. In between, the
    /// umask may keep out another user who may write to the database.
    fn open_shared(path: &Path, prefix: &str) -> Result<Self, StoreError> {
        let deadline = worker::clock() + SHARING;
        loop {
            match Self::open_certainly(path, prefix) {
                Err(error)
                    if error.kind == StoreErrorKind::Unsupported && may_write(path) && worker::clock() < deadline =>
                {
                    thread::sleep(PAUSE);
                }
                opened => return opened,
            }
        }
    }

    /// Opens the file to look at its leases; `None` if it has none. This changes nothing in the file, and leaves nothing beside it.
    pub(super) fn open_read_only(path: &Path, prefix: &str) -> Result<Option<Self>, StoreError> {
        at_checked(path, prefix, |path| {
            for _ in 0..ATTEMPTS {
                let before = stands_at(path);
                let Some((connection, way)) = look::open(path, &Tables::new("main", prefix))? else { return Ok(None) };
                let file = Self::over(connection, path, prefix)?;
                file.read_first()?;
                if before.is_some() && before == stands_at(path) {
                    // If somebody deletes the log, this connection must close: as long as it is open, others cannot make a new log.
                    let log = if matches!(way, Way::Still(_)) { [None; 2] } else { file.log_beside() };
                    return Ok(Some(Self { looks: Some(way), log, ..file }));
                }
            }
            Err(replaced())
        })
    }

    /// Opens the file, and makes sure that the same file was at the path before and after, because somebody may replace it meanwhile.
    fn open_certainly(path: &Path, prefix: &str) -> Result<Self, StoreError> {
        for _ in 0..ATTEMPTS {
            let before = stands_at(path);
            let mut file = Self::open_at(path, prefix)?;
            if before.is_some() && before == stands_at(path) {
                file.log = file.log_beside();
                file.make_directory()?;
                return Ok(file);
            }
        }
        Err(replaced())
    }

    fn open_at(path: &Path, prefix: &str) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|error| told(path, error.into()))?;
        let file = Self::over(connection, path, prefix)?;
        if file.only_reads() {
            return Err(file.error(Trouble::of_reader()));
        }
        worker::patiently(worker::clock() + OPENING, || file.set_up()).map_err(|trouble| file.error(trouble))?;
        Ok(file)
    }

    fn over(connection: Connection, path: &Path, prefix: &str) -> Result<Self, StoreError> {
        let given = path.to_owned();
        let path = fs::canonicalize(path).map_err(|error| StoreError::transient(error.to_string()))?;
        if path.to_str().is_none() {
            return Err(unsupported(format!("its path is {}, which is not UTF-8; move it", path.display())));
        }
        let identity = Identity::of(&path).map_err(|error| StoreError::transient(error.to_string()))?;
        let (tables, prefix) = (Tables::new("main", prefix), prefix.to_owned());
        let file = Self { connection, tables, given, path, identity, log: [None; 2], prefix, looks: None };
        file.check_names()?;
        // Jobs wait by themselves, each as long as it may.
        file.connection.busy_timeout(Duration::ZERO).map_err(|error| failure::meaning(&error))?;
        Ok(file)
    }

    /// Reads once: from then on, no process that closes the file deletes its log and index. While a process closes the file, it is locked.
    fn read_first(&self) -> Result<(), StoreError> {
        let read = || Ok(self.connection.query_row("PRAGMA schema_version", [], |_| Ok(()))?);
        worker::patiently(worker::clock() + OPENING, read).map_err(|trouble| self.error(trouble))
    }

    fn log_beside(&self) -> [Option<Identity>; 2] {
        beside::log(&self.path).map(|path| Identity::of(&path).ok())
    }

    /// The same file, opened anew to look at it.
    pub(super) fn again(&self) -> Result<Self, StoreError> {
        if self.is_gone() {
            return Err(self.gone());
        }
        Self::open_read_only(&self.given, &self.prefix)?.ok_or_else(|| self.gone())
    }

    /// Whether what is read through this connection stands still, whatever others write.
    pub(super) fn is_still(&self) -> bool {
        matches!(self.looks, Some(Way::Still(_)))
    }

    /// Whether what was read through this connection counts.
    pub(super) fn counts(&self) -> bool {
        self.looks.is_none_or(|way| way.counts(&self.path))
    }

    /// A process that opens the file by another name, or in another folder, uses another log and another directory of signals.
    #[cfg(unix)]
    fn check_names(&self) -> Result<(), StoreError> {
        use std::os::unix::fs::MetadataExt;
        let names = fs::metadata(&self.path).map_or(1, |metadata| metadata.nlink());
        if names > 1 {
            let sentence = format!(
                "the file has {names} names (hard links), and must have only one; copy it instead of linking it"
            );
            return Err(unsupported(sentence));
        }
        if mounted::is_alone(&self.path) {
            return Err(unsupported(
                "the file is mounted here without its folder, so nobody outside would see its log and its leases; mount the folder \
                 instead"
                    .into(),
            ));
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn check_names(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether this user may not write to the file. SQLite reports that before it opens the log. At its first read it would make a log and
    /// an index that belong to this user, and lock out the users who may write.
    fn only_reads(&self) -> bool {
        let tried = self.connection.execute_batch("BEGIN; PRAGMA user_version = 0");
        // It fails if nothing was begun. Else it takes back what was not committed.
        let _ = self.connection.execute_batch("ROLLBACK");
        tried.is_err_and(|error| error.sqlite_error().is_some_and(|found| found.extended_code == ffi::SQLITE_READONLY))
    }

    fn set_up(&self) -> Result<(), Trouble> {
        let encoding: String = self.connection.query_row("PRAGMA encoding", [], |row| row.get(0))?;
        if encoding != "UTF-8" {
            let sentence = format!("its text encoding is {encoding}, and leases need UTF-8; use another file");
            return Err(StoreError::permanent(StoreErrorKind::Unsupported, sentence).into());
        }
        // It answers with the mode that the file has then: some file systems admit no other than before.
        self.connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).map_err(|error| {
            if failure::is_busy(&error) { Trouble::Busy(failure::OTHER_JOURNAL) } else { error.into() }
        })?;
        self.connection.execute_batch("PRAGMA synchronous = FULL")?;
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        self.tables.make(&transaction)?;
        transaction.commit().map_err(|error| Trouble::of_commit(&error))
    }

    /// Copies the log into the file, so that the next change is written over the log's beginning. On a full disk the log cannot grow, but
    /// most changes only replace rows. Returns false if somebody still reads a part of the log, or if the file would have to grow, too.
    pub(super) fn begin_log_again(&self) -> bool {
        let copied = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok(row.get::<_, i64>("log")? == row.get::<_, i64>("checkpointed")?)
        });
        copied.unwrap_or(false)
    }

    /// Copies the log into the file if the file is still shorter than the database, so that the file takes its room while the disk still
    /// has some. On a full disk it could not grow, and then [the log could not begin again](Self::begin_log_again) either.
    pub(super) fn grow(&self, room: &mut Room, now: Instant) {
        let missing = self.missing();
        if missing > 0 && room.is_there_for(missing, now, || beside::has_room(&self.path, missing)) {
            self.begin_log_again();
        }
    }

    /// By how many bytes the file is shorter than the database; 0 also if these are too many.
    fn missing(&self) -> u64 {
        let number = |pragma: &str| {
            self.connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
        };
        let (Ok(pages), Ok(page_size)) = (number("page_count"), number("page_size")) else { return 0 };
        let length = fs::metadata(&self.path).map_or(u64::MAX, |metadata| metadata.len());
        let missing = (pages * page_size).saturating_sub(length);
        if missing > MOST_GROWTH * page_size { 0 } else { missing }
    }

    /// The directory of the signals, for the same users as the file.
    fn make_directory(&self) -> Result<(), StoreError> {
        let directory = self.directory();
        if directory.is_symlink() {
            // In a container it may lead to another directory, which is the same as one that is mounted there.
            return Err(unsupported(format!(
                "{}, where all users of the file meet, is a link, which may lead others elsewhere; put a directory in its place",
                directory.display()
            )));
        }
        if directory.is_dir() {
            return check_is_shared(&directory);
        }
        match make_directory(&directory, &self.path) {
            Err(error) if !directory.is_dir() => Err(unsupported(format!(
                "its processes need the directory {}, which cannot be created: {error}",
                directory.display()
            ))),
            _ => Ok(()),
        }
    }

    /// The directory of the signals.
    pub(super) fn directory(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push("-");
        name.push(&self.prefix);
        name.push(SIGNALS);
        name.into()
    }

    /// The contexts that open this file, and these tables in it.
    pub(super) fn reach(&self) -> Reach {
        Reach::Machine(self.directory().to_string_lossy().into_owned())
    }

    /// The error for a caller that waits no longer.
    pub(super) fn error(&self, trouble: Trouble) -> StoreError {
        told(&self.path, trouble)
    }

    /// Whether those who open the path by now get another file, or another log or index: SQLite looks for both beside the file, at its path
    /// without links.
    pub(super) fn is_gone(&self) -> bool {
        self.identity.has_left(&self.path)
            || self.identity.has_left(&self.given)
            || self.identity.has_left_unseen(&self.path)
            || fs::canonicalize(&self.given).is_ok_and(|path| path != self.path)
            || beside::log(&self.path).iter().zip(self.log).any(|(path, log)| log.is_some_and(|log| log.has_left(path)))
    }

    /// The error once it is gone.
    pub(super) fn gone(&self) -> StoreError {
        let message = format!(
            "{}: while it was open, the file was moved, deleted or replaced, its log or the log's index was deleted or replaced, or a \
             link to the file was changed; open it again",
            self.given.display()
        );
        StoreError::permanent(StoreErrorKind::Closed, message)
    }
}

/// The error that describes a failure of this file.
pub(super) fn told(path: &Path, trouble: Trouble) -> StoreError {
    match trouble {
        Trouble::Disk(error) => beside::blame_disk(path, error),
        other => other.into_error(),
    }
}

/// Which file stands at a path, and when it was made: a file that is removed may leave its number to the next one.
fn stands_at(path: &Path) -> Option<(Identity, Option<SystemTime>)> {
    let made = fs::metadata(path).ok()?.created().ok();
    Some((Identity::of(path).ok()?, made))
}

/// A process that has another directory there cannot find the beacons of the other processes, and takes these for dead.
#[cfg(unix)]
fn check_is_shared(directory: &Path) -> Result<(), StoreError> {
    if !mounted::is_alone(directory) {
        return Ok(());
    }
    let shown = directory.display();
    Err(unsupported(format!(
        "another directory is mounted here over {shown}, which all users of the file must share; unmount it"
    )))
}

#[cfg(not(unix))]
fn check_is_shared(_directory: &Path) -> Result<(), StoreError> {
    Ok(())
}

fn replaced() -> StoreError {
    StoreError::transient("the file was replaced again and again while it was opened; try again")
}

/// Opens a file whose path and prefix are such as can be opened.
fn at_checked<T>(
    path: &Path,
    prefix: &str,
    open: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    check_names(path, prefix)?;
    if path.is_dir() {
        return Err(refused(path, "this is a directory; name a file in it"));
    }
    if path.exists() && !path.is_file() {
        return Err(refused(path, "this is not a regular file; name one, or a path where there is no file yet"));
    }
    // Absolute, or SQLite might read a URI in it.
    let opened = std::path::absolute(path)
        .map_err(|error| {
            unsupported(format!(
                "the current directory is not known: {error}; change to one that exists, or give an absolute path"
            ))
        })
        .and_then(|path| open(&path));
    opened.map_err(|error| StoreError { message: format!("{}: {}", path.display(), error.message), ..error })
}

/// Whether there can be such a store, whatever files there are.
pub(super) fn check_names(path: &Path, prefix: &str) -> Result<(), StoreError> {
    if !schema::is_prefix(prefix) {
        let why = format!(
            "{prefix:?} cannot begin the name of a table; use 1 to 40 lower-case letters, digits and underscores, \
             no digit first, and not sqlite, which SQLite keeps for itself"
        );
        return Err(refused(path, &why));
    }
    if path.to_str().is_none() {
        return Err(refused(path, "this path is not UTF-8; choose another one"));
    }
    if matches!(path.to_str(), Some("" | ":memory:")) {
        return Err(refused(path, "no other process could open this database; name a file, or use a MemoryStore"));
    }
    check_is_no_url(path)?;
    // SQLite would make a file of this name without its end.
    if path.to_str().is_some_and(|path| path.ends_with('/') || path.ends_with("/.")) {
        return Err(refused(path, "this path names a directory; name a file in it"));
    }
    Ok(())
}

/// Refuses a URL. A program that took it for a path would share no lease with programs that open the URL.
fn check_is_no_url(path: &Path) -> Result<(), StoreError> {
    let is = |scheme| path.to_str().is_some_and(|path| path.starts_with(scheme));
    let why = match () {
        () if is("sqlite:") => "this is a URL; open it by store::from_url, or write the path alone",
        () if is("file:") => "this is a URI; write the path alone",
        () => return Ok(()),
    };
    Err(refused(path, &format!("{why}; for a file of this name, write ./ before it")))
}

fn refused(path: &Path, why: &str) -> StoreError {
    unsupported(format!("{}: {why}", path.display()))
}

/// The prefix of the tables that a directory of signals stands for, if it stands for tables of this file.
pub(super) fn prefix_of<'a>(directory: &'a str, file: &Path) -> Option<&'a str> {
    let prefix = directory.strip_prefix(file.to_str()?)?.strip_prefix('-')?.strip_suffix(SIGNALS)?;
    schema::is_prefix(prefix).then_some(prefix)
}

/// The file that has this directory of signals, whatever the prefix is.
pub(super) fn kept_by(directory: &str) -> Option<&str> {
    Some(directory.strip_suffix(SIGNALS)?.rsplit_once('-')?.0)
}

fn unsupported(sentence: String) -> StoreError {
    StoreError::permanent(StoreErrorKind::Unsupported, sentence)
}

#[cfg(all(test, unix))]
mod tests {
    use std::{env, process};

    use super::*;

    /// With less, a power failure may undo the latest commits, and with them the latest tokens.
    #[test]
    fn each_commit_is_synced_to_the_disk() {
        let folder = env::temp_dir().join(format!("leasehold-synced-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = LeaseFile::open(&folder.join("leases.db"), "leasehold").unwrap();
        let setting =
            |name| file.connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap();
        const FULL: i64 = 2;
        assert_eq!(setting("synchronous"), FULL);
        drop(file);
        fs::remove_dir_all(&folder).unwrap();
    }
}
