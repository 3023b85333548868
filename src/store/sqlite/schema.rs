//! The tables of the leases in a database, which may have others.

use rusqlite::{Connection, OptionalExtension};

use super::failure::Trouble;
use crate::machine::{StoreError, StoreErrorKind};

/// The format of the tables.
pub(super) const VERSION: i64 = 1;
/// The longest prefix, in bytes.
const LONGEST_PREFIX: usize = 40;

/// The tables by what follows their prefix, and their columns.
const COLUMNS: [(&str, &str); 3] = [("store", "id,version,state"), ("record", "key,state"), ("session", "id,state")];

/// The names of the tables, quoted for SQL.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// `main`, or the name under which the file is attached.
    schema: String,
    prefix: String,
    pub(super) store: String,
    pub(super) record: String,
    pub(super) session: String,
}

impl Tables {
    pub(super) fn new(schema: &str, prefix: &str) -> Self {
        let schema = quoted(schema);
        let table = |name| format!("{schema}.{prefix}_{name}");
        let (store, record, session) = (table("store"), table("record"), table("session"));
        Self { schema, prefix: prefix.to_owned(), store, record, session }
    }

    /// Finds the tables in a transaction, or makes them.
    pub(super) fn make(&self, connection: &Connection) -> Result<(), Trouble> {
        self.are_there(connection)?;
        connection.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {} (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, state TEXT);
             CREATE TABLE IF NOT EXISTS {} (key TEXT PRIMARY KEY NOT NULL, state TEXT NOT NULL);
             CREATE TABLE IF NOT EXISTS {} (id TEXT PRIMARY KEY NOT NULL, state TEXT NOT NULL);
             INSERT OR IGNORE INTO {} (id, version) VALUES (1, {VERSION});",
            self.store, self.record, self.session, self.store
        ))?;
        let version = format!("SELECT version FROM {}", self.store);
        is_known(connection.query_row(&version, [], |row| row.get(0))?)
    }

    /// Whether the tables are there. If only some are, somebody dropped the others: with new tables, a key would seem free although its
    /// holder still relies on its session.
    fn are_there(&self, connection: &Connection) -> Result<bool, Trouble> {
        let mut missing = Vec::new();
        for (name, columns) in COLUMNS {
            if !self.check(connection, name, columns)? {
                missing.push(format!("{}_{name}", self.prefix));
            }
        }
        if (1..COLUMNS.len()).contains(&missing.len()) {
            return Err(refused(format!(
                "it lacks {}, but has other tables of the same leases, so nobody knows who holds which lease; end all programs that use \
                 these tables, drop the others, too, and open it again",
                missing.join(" and ")
            )));
        }
        Ok(missing.is_empty())
    }

    /// Whether the tables are there, and a context has used them. This only reads. Call it in a transaction: another program may be making
    /// the tables.
    pub(super) fn are_used(&self, connection: &Connection) -> Result<bool, Trouble> {
        if !self.are_there(connection)? {
            return Ok(false);
        }
        // The first transaction of a context gives the store a state.
        let version = format!("SELECT version FROM {} WHERE state IS NOT NULL", self.store);
        let Some(version) = connection.query_row(&version, [], |row| row.get(0)).optional()? else { return Ok(false) };
        is_known(version).map(|()| true)
    }

    /// Whether a table is there. One of this name may be another program's.
    fn check(&self, connection: &Connection, name: &str, ours: &str) -> Result<bool, Trouble> {
        let Self { schema, prefix, .. } = self;
        let sql = format!("SELECT type FROM {schema}.sqlite_master WHERE name = '{prefix}_{name}' COLLATE NOCASE");
        let Some(kind) = connection.query_row(&sql, [], |row| row.get::<_, String>(0)).optional()? else {
            return Ok(false);
        };
        let mut columns = connection.prepare(&format!("PRAGMA {schema}.table_info({prefix}_{name})"))?;
        let names = columns.query_map([], |row| row.get::<_, String>("name"))?.collect::<Result<Vec<_>, _>>()?;
        let names = names.join(",");
        if kind == "table" && names == ours {
            return Ok(true);
        }
        Err(refused(format!(
            "its {kind} {prefix}_{name} ({names}) is another program's; choose another prefix, by ?prefix= in a URL or by \
             SqliteStore::open_with_prefix"
        )))
    }
}

fn is_known(version: i64) -> Result<(), Trouble> {
    if version == VERSION {
        return Ok(());
    }
    Err(refused(format!(
        "the leases in it have the format {version}, and this program knows {VERSION}; update the program"
    )))
}

fn refused(sentence: String) -> Trouble {
    Trouble::Failed(StoreError::permanent(StoreErrorKind::Unsupported, sentence))
}

/// A name quoted for SQL, whatever characters it has.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether tables can begin like this in every SQL. Capitals are refused: to SQL they make no difference, and to files they do.
pub(super) fn is_prefix(prefix: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    (1..=LONGEST_PREFIX).contains(&prefix.len())
        && prefix.chars().all(plain)
        && !prefix.starts_with(|first: char| first.is_ascii_digit())
        && prefix != "sqlite"
        && !prefix.starts_with("sqlite_")
}
