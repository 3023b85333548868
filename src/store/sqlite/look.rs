//! Looks whether a database has leases. It may be another program's, so nothing in it is changed: no table, no journal mode, and no file
//! beside it.

use std::{io, path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{
    failure::{self, Trouble},
    file::OPENING,
    identity::read_start,
    schema::Tables,
    worker,
};
use crate::machine::StoreError;

/// Where the header of a database says which version of SQLite can write it.
const WRITE_VERSION: usize = 18;
/// That version of a database in write-ahead logging.
const WAL: u8 = 2;

/// How a file that exists is opened.
pub(super) fn flags(writes: bool) -> OpenFlags {
    let access = if writes { OpenFlags::SQLITE_OPEN_READ_WRITE } else { OpenFlags::SQLITE_OPEN_READ_ONLY };
    access | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Whether the tables are in the file, and were used.
pub(super) fn has_leases(path: &Path, tables: &Tables) -> Result<bool, StoreError> {
    let writes = would_leave_a_log(path);
    let found = match attempt(path, tables, writes)? {
        // Another program died while it wrote: whoever reads next has to roll its transaction back.
        None if !writes => attempt(path, tables, true)?,
        found => found,
    };
    Ok(found.unwrap_or(false))
}

/// `None` if this connection may not even read.
fn attempt(path: &Path, tables: &Tables, writes: bool) -> Result<Option<bool>, StoreError> {
    let connection = connect(path, writes).map_err(|error| failure::meaning(&error))?;
    let look = || match connection.query_row("PRAGMA schema_version", [], |_| Ok(())) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(()) => tables.are_used(&connection).map(Some),
    };
    worker::patiently(worker::clock() + OPENING, look).map_err(Trouble::into_error)
}

fn connect(path: &Path, writes: bool) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags(writes))?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.execute_batch("PRAGMA query_only = ON")?;
    Ok(connection)
}

/// A connection that reads a database in write-ahead logging makes its log and its index. If it may only read, it leaves them behind.
fn would_leave_a_log(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut log = path.clone().into_os_string();
    log.push("-wal");
    !Path::new(&log).exists() && is_in_wal(&path).unwrap_or(false)
}

fn is_in_wal(path: &Path) -> io::Result<bool> {
    let mut header = [0; WRITE_VERSION + 1];
    read_start(path, &mut header)?;
    Ok(header[WRITE_VERSION] == WAL)
}
