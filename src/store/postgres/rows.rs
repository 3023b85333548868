//! The rows that a transaction reads and writes, and the statements for it.
//!
//! None of them is prepared under a name, so that they work behind a pooler that gives each transaction another connection.

use std::{string::String, vec::Vec};

use tokio_postgres::{
    Client, Error, Row as Found, Transaction,
    types::{ToSql, Type},
};

use super::names::{Names, bytes_of, bytes_of_key};
use crate::machine::{Key, Records, Row, SessionId};

/// The version of the tables that this program knows.
pub(super) const SCHEMA: i32 = 1;

/// What statements are run by: a connection, or a transaction of the user's.
#[derive(Clone, Copy)]
pub(super) enum Runner<'a> {
    Connection(&'a Client),
    Transaction(&'a Transaction<'a>),
}

pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Runner<'_> {
    pub(super) async fn query(self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Found>, Error> {
        match self {
            Self::Connection(client) => client.query_typed(statement, parameters).await,
            Self::Transaction(transaction) => transaction.query_typed(statement, parameters).await,
        }
    }

    /// How many rows it changed.
    async fn change(self, statement: &str, parameters: &[Parameter<'_>]) -> Result<usize, Error> {
        self.query(statement, parameters).await.map(|changed| changed.len())
    }

    pub(super) async fn run(self, statements: &str) -> Result<(), Error> {
        match self {
            Self::Connection(client) => client.batch_execute(statements).await,
            Self::Transaction(transaction) => transaction.batch_execute(statements).await,
        }
    }
}

/// How a row is locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// It may change after this.
    Not,
    /// Others may only read it until the transaction ends.
    Share,
    /// Nobody else may even lock it.
    Update,
}

impl Hold {
    const fn clause(self) -> &'static str {
        match self {
            Self::Not => "",
            Self::Share => " FOR SHARE",
            Self::Update => " FOR UPDATE",
        }
    }
}

/// The tables of a store, for one that runs statements.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) names: &'a Names,
    pub(super) runner: Runner<'a>,
}

/// The store's own row.
pub(super) struct StoreText {
    pub(super) schema: i32,
    /// `None` in a new store.
    pub(super) text: Option<String>,
}

impl Tables<'_> {
    /// Waits for these advisory locks, in this order, and keeps them until the transaction ends.
    pub(super) async fn lock(&self, numbers: &[i64]) -> Result<(), Error> {
        let statement = "SELECT pg_advisory_xact_lock(number) FROM unnest($1) AS number";
        self.runner.query(statement, &[(&numbers, Type::INT8_ARRAY)]).await.map(drop)
    }

    /// Waits for these advisory locks, and shares them with other fences until the transaction ends. A row that is locked `FOR SHARE` can
    /// be shared by ever more transactions while another one waits to change it. With this lock they queue behind that one.
    pub(super) async fn lock_shared(&self, numbers: &[i64]) -> Result<(), Error> {
        let statement = "SELECT pg_advisory_xact_lock_shared(number) FROM unnest($1) AS number";
        self.runner.query(statement, &[(&numbers, Type::INT8_ARRAY)]).await.map(drop)
    }

    /// The records of these keys, locked in their order.
    pub(super) async fn records(&self, keys: &[Key], hold: Hold) -> Result<Vec<Found>, Error> {
        let keys: Vec<_> = keys.iter().map(bytes_of_key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.texts("record", "key", &keys, hold).await
    }

    /// The rows of these sessions, locked in their order.
    pub(super) async fn sessions(&self, sessions: &[SessionId], hold: Hold) -> Result<Vec<Found>, Error> {
        let ids: Vec<_> = sessions.iter().copied().map(bytes_of).collect();
        let ids: Vec<&[u8]> = ids.iter().map(<[u8; 16]>::as_slice).collect();
        self.texts("session", "id", &ids, hold).await
    }

    /// Up to so many sessions that follow this one, and the first of all after the last. They are not locked: whoever ends one of them
    /// looks at it again.
    pub(super) async fn peers(&self, session: SessionId, wanted: usize) -> Result<Vec<Found>, Error> {
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let table = self.names.table("session");
        let statement = format!(
            "(SELECT id, text FROM {table} WHERE id > $1 ORDER BY id LIMIT $2) \
             UNION ALL (SELECT id, text FROM {table} WHERE id < $1 ORDER BY id LIMIT $2) LIMIT $2"
        );
        let (id, limit) = (bytes_of(session), i64::try_from(wanted).unwrap_or(i64::MAX));
        let id: &[u8] = &id;
        self.runner.query(&statement, &[(&id, Type::BYTEA), (&limit, Type::INT8)]).await
    }

    async fn texts(&self, table: &str, column: &str, wanted: &[&[u8]], hold: Hold) -> Result<Vec<Found>, Error> {
        let (table, clause) = (self.names.table(table), hold.clause());
        let statement =
            format!("SELECT {column}, text FROM {table} WHERE {column} = ANY($1) ORDER BY {column}{clause}");
        self.runner.query(&statement, &[(&wanted, Type::BYTEA_ARRAY)]).await
    }

    /// The store's own row, `None` if somebody deleted it.
    pub(super) async fn store(&self, hold: Hold) -> Result<Option<StoreText>, Error> {
        let statement = format!("SELECT schema, text FROM {}{}", self.names.table("store"), hold.clause());
        let found = self.runner.query(&statement, &[]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        Ok(Some(StoreText { schema: row.try_get(0)?, text: row.try_get(1)? }))
    }

    /// Writes the store's own row if it is still what was read. Whether it was.
    pub(super) async fn write_store(&self, read: Option<&str>, text: &str) -> Result<bool, Error> {
        let table = self.names.table("store");
        let statement = format!("UPDATE {table} SET text = $1 WHERE text IS NOT DISTINCT FROM $2 RETURNING true");
        self.runner.change(&statement, &[(&text, Type::TEXT), (&read, Type::TEXT)]).await.map(|rows| rows > 0)
    }

    /// Writes or deletes rows of records and sessions, each table's in one statement.
    pub(super) async fn write(&self, changed: &Changed) -> Result<(), Error> {
        let [records, sessions] = [("record", "key", &changed.records), ("session", "id", &changed.sessions)]
            .map(|(table, column, rows)| self.write_rows(table, column, rows));
        // Both are sent before the first is answered, as all that is polled together.
        let (records, sessions) = futures::future::join(records, sessions).await;
        records.and(sessions)
    }

    async fn write_rows(&self, table: &str, column: &str, rows: &Rows) -> Result<(), Error> {
        let table = self.names.table(table);
        let writes = async {
            if rows.written.is_empty() {
                return Ok(());
            }
            let names: Vec<&[u8]> = rows.written.iter().map(|(name, _)| name.as_slice()).collect();
            let texts: Vec<&str> = rows.written.iter().map(|(_, text)| text.as_str()).collect();
            let statement = format!(
                "INSERT INTO {table} ({column}, text) SELECT * FROM unnest($1, $2) \
                 ON CONFLICT ({column}) DO UPDATE SET text = excluded.text"
            );
            let parameters: [Parameter<'_>; 2] = [(&names, Type::BYTEA_ARRAY), (&texts, Type::TEXT_ARRAY)];
            self.runner.query(&statement, &parameters).await.map(drop)
        };
        let deletes = async {
            if rows.deleted.is_empty() {
                return Ok(());
            }
            let statement = format!("DELETE FROM {table} WHERE {column} = ANY($1)");
            self.runner.query(&statement, &[(&rows.deleted, Type::BYTEA_ARRAY)]).await.map(drop)
        };
        let (written, deleted) = futures::future::join(writes, deletes).await;
        written.and(deleted)
    }
}

/// The rows of one table that a batch changed.
#[derive(Default)]
pub(super) struct Rows {
    written: Vec<(Vec<u8>, String)>,
    deleted: Vec<Vec<u8>>,
}

impl Rows {
    fn note(&mut self, name: &[u8], text: Option<String>) {
        match text {
            Some(text) => self.written.push((name.to_owned(), text)),
            None => self.deleted.push(name.to_owned()),
        }
    }

    const fn is_empty(&self) -> bool {
        self.written.is_empty() && self.deleted.is_empty()
    }
}

/// What a batch changed.
#[derive(Default)]
pub(super) struct Changed {
    records: Rows,
    sessions: Rows,
    pub(super) store: Option<String>,
}

impl Changed {
    pub(super) fn take(records: &mut Records) -> Self {
        let mut changed = Self::default();
        for row in records.take_changed() {
            let text = records.text(&row);
            match row {
                Row::Record(key) => changed.records.note(&bytes_of_key(&key), text),
                Row::Session(session) => changed.sessions.note(&bytes_of(session), text),
                Row::Store => changed.store = text,
            }
        }
        changed
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.records.is_empty() && self.sessions.is_empty() && self.store.is_none()
    }
}

/// Puts into `records` what the table of records had, or had not, under these keys.
pub(super) fn load_records(records: &mut Records, keys: &[Key], found: &[Found]) -> Result<(), Error> {
    for key in keys {
        records.load(key.clone(), text_of(found, &bytes_of_key(key))?);
    }
    Ok(())
}

/// Puts into `records` what the table of sessions had, or had not, under these ids.
pub(super) fn load_sessions(records: &mut Records, sessions: &[SessionId], found: &[Found]) -> Result<(), Error> {
    for session in sessions {
        records.load_session(*session, text_of(found, &bytes_of(*session))?);
    }
    Ok(())
}

/// Puts in what [`Tables::peers`] found, but for those that are in it already.
pub(super) fn load_peers(records: &mut Records, known: &[SessionId], found: &[Found]) -> Result<(), Error> {
    for row in found {
        let Ok(id) = <[u8; 16]>::try_from(row.try_get::<_, &[u8]>(0)?) else { continue };
        let session = SessionId(u128::from_be_bytes(id));
        if !known.contains(&session) {
            records.load_session(session, row.try_get(1)?);
        }
    }
    Ok(())
}

/// The text beside a name, which is the first column. The rows stand in the order of their names.
fn text_of<'a>(found: &'a [Found], name: &[u8]) -> Result<Option<&'a str>, Error> {
    let place = found.binary_search_by(|row| row.try_get::<_, &[u8]>(0).unwrap_or_default().cmp(name));
    place.ok().map(|place| found[place].try_get(1)).transpose()
}
