//! Looks whether a database has leases. It may be another program's, so nothing in it is changed: no table, no journal mode, and no file is
//! left beside it.

use std::{io, path::Path, thread, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{
    beside::{self, Beside},
    failure::{self, Trouble},
    file::{OPENING, told},
    identity::{may_write, read_start},
    schema::Tables,
    worker,
};
use crate::machine::{StoreError, StoreErrorKind};

/// Where the header of a database says which version of SQLite can write it.
const WRITE_VERSION: usize = 18;
/// That version of a database in write-ahead logging.
const WAL: u8 = 2;
/// How often the way to look is chosen again, while others open and close the file.
const ATTEMPTS: usize = 20;
/// Between two attempts: somebody who closes the file needs about as long.
const PAUSE: Duration = Duration::from_millis(5);

/// How a file that exists is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By a user who may write to the file. The connection removes what it makes beside the file.
    Writes,
    /// By a connection that writes nothing.
    Reads,
    /// By a user who may not write to the file. If the user made files beside it, they would lock out those who may.
    Visits,
    /// Without log, index and locks, as on a medium that nobody can write to. What is read counts only if, before and after, nobody had
    /// the file open, and nobody wrote to it meanwhile.
    Still(Beside),
}

impl Way {
    fn open(self, path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let reads = flags | OpenFlags::SQLITE_OPEN_READ_ONLY;
        match self {
            Self::Writes => Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_READ_WRITE),
            Self::Reads => Connection::open_with_flags(path, reads),
            Self::Visits => open_as(path, "readonly_shm=1", reads),
            Self::Still(_) => open_as(path, "immutable=1", reads),
        }
    }

    /// Whether what was read in this way counts.
    pub(super) fn counts(self, path: &Path) -> bool {
        match self {
            Self::Still(before) => before == Beside::of(path),
            Self::Writes | Self::Reads | Self::Visits => true,
        }
    }
}

/// Only a URI can carry this parameter.
fn open_as(path: &Path, parameter: &str, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let path = path.to_string_lossy();
    let root = if path.starts_with('/') { "file://" } else { "file:" };
    let name: String = path
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    Connection::open_with_flags(format!("{root}{name}?{parameter}"), flags | OpenFlags::SQLITE_OPEN_URI)
}

/// A connection that has looked whether there are leases.
struct Seen {
    connection: Connection,
    way: Way,
    has_leases: bool,
}

impl Seen {
    /// Visitors keep the connection: they share the lock of the file by now, so that nobody takes away the log and its index.
    fn kept(self, path: &Path) -> rusqlite::Result<Option<(Connection, Way)>> {
        let way = if self.way == Way::Reads { Way::Writes } else { self.way };
        if !self.has_leases {
            return Ok(None);
        }
        let connection = if way == self.way { self.connection } else { connect(path, way)? };
        Ok(Some((connection, way)))
    }
}

/// Opens the file to see its leases; `None` if the tables are not in it, or were never used.
pub(super) fn open(path: &Path, tables: &Tables) -> Result<Option<(Connection, Way)>, StoreError> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut why = unreadable();
    for _ in 0..ATTEMPTS {
        // Whoever closes the file keeps it locked meanwhile, and on a busy machine that may take long.
        let _anchor = worker::patiently(worker::clock() + OPENING, || anchor(&path)).map_err(Trouble::into_error)?;
        let before = Beside::of(&path);
        why = match first(&path, tables, &ways(&path, before)) {
            Ok(Some(seen)) if seen.way.counts(&path) => {
                return seen.kept(&path).map_err(|error| failure::meaning(&error));
            }
            Ok(Some(_)) => changing(),
            Ok(None) => unreadable(),
            Err(error) if error.kind == StoreErrorKind::Busy || before == Beside::of(&path) => {
                return Err(error);
            }
            Err(error) => error,
        };
        beside::clear(&path, before);
        // It takes a moment to close a file: its index goes first, and then its log.
        thread::sleep(PAUSE);
    }
    Err(why)
}

/// Keeps others from taking away the log and the index while a visitor opens them: SQLite would make them anew, as the visitor's.
///
/// No function of SQLite only locks a file. This connection wants the file for itself, and therefore keeps the shared lock when it fails to
/// get more, which it does before it opens a log. It fails as busy if somebody is taking the log away.
fn anchor(path: &Path) -> Result<Option<Connection>, Trouble> {
    if may_write(path) || !is_in_wal(path).unwrap_or(false) {
        return Ok(None);
    }
    let connection = connect(path, Way::Visits)?;
    connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
    match connection.query_row("PRAGMA schema_version", [], |_| Ok(())) {
        Err(error) if failure::is_busy(&error) => Err(error.into()),
        _ => Ok(Some(connection)),
    }
}

/// What is tried, one after the other. A connection that reads a database in write-ahead logging makes its log and its index.
/// If it may only read, it leaves them behind.
fn ways(path: &Path, beside: Beside) -> Vec<Way> {
    let logs = is_in_wal(path).unwrap_or(false);
    let still = beside.is_whole().then_some(Way::Still(beside));
    match (may_write(path), logs && !beside.is_open()) {
        (true, true) => [Way::Writes].into_iter().chain(still).collect(),
        // Another program died while it wrote: whoever reads next has to roll its transaction back.
        (true, false) => vec![Way::Reads, Way::Writes],
        (false, true) => still.into_iter().collect(),
        (false, false) => vec![Way::Visits],
    }
}

/// The result of the first way in which this user can read the file, if there is one.
fn first(path: &Path, tables: &Tables, ways: &[Way]) -> Result<Option<Seen>, StoreError> {
    for &way in ways {
        let connection = connect(path, way).map_err(|error| failure::meaning(&error))?;
        let look = || match connection.query_row("PRAGMA schema_version", [], |_| Ok(())) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(()) => {
                let _all_at_one_moment = connection.unchecked_transaction()?;
                tables.are_used(&connection).map(Some)
            }
        };
        let found = worker::patiently(worker::clock() + OPENING, look).map_err(|trouble| told(path, trouble))?;
        if let Some(has_leases) = found {
            return Ok(Some(Seen { connection, way, has_leases }));
        }
    }
    Ok(None)
}

fn connect(path: &Path, way: Way) -> rusqlite::Result<Connection> {
    let connection = way.open(path)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.execute_batch("PRAGMA query_only = ON")?;
    Ok(connection)
}

fn is_in_wal(path: &Path) -> io::Result<bool> {
    let mut header = [0; WRITE_VERSION + 1];
    read_start(path, &mut header)?;
    Ok(header[WRITE_VERSION] == WAL)
}

fn unreadable() -> StoreError {
    let sentence = "its leases can be read only by a user who may write to the file and to its directory: a process that ended without \
         closing the file has left changes beside it, or has left the file without its index; run this once as such a user";
    StoreError::permanent(StoreErrorKind::Unsupported, sentence)
}

pub(super) fn changing() -> StoreError {
    StoreError::busy("others opened and closed the SQLite file again and again while it was read; try again")
}
