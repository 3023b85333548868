//! The rows of a store, by statements that are prepared once.

use rusqlite::{
    Connection, OptionalExtension, Params, Row as Found, Statement, Transaction, TransactionBehavior, types::ValueRef,
};

use super::{
    failure::Trouble,
    schema::{Tables, VERSION},
};
use crate::machine::{Batch, Key, Records, Reply, Row, SessionId, StoreId, StoreNow};
use crate::store::idle::is_idle;

/// The statements of one connection.
#[derive(Debug)]
pub(super) struct Rows<'c> {
    connection: &'c Connection,
    looks: bool,
    read_store: Statement<'c>,
    read_record: Statement<'c>,
    read_session: Statement<'c>,
    write_store: Statement<'c>,
    write_record: Statement<'c>,
    write_session: Statement<'c>,
    delete_record: Statement<'c>,
    delete_session: Statement<'c>,
    list: Statement<'c>,
    list_states: Statement<'c>,
    peers: Statement<'c>,
}

impl<'c> Rows<'c> {
    /// A store that only looks does not wait for writers.
    pub(super) fn prepare(connection: &'c Connection, tables: &Tables, looks: bool) -> rusqlite::Result<Self> {
        let Tables { store, record, session, .. } = tables;
        let prepare = |sql: String| connection.prepare(&sql);
        let write = |table, name| {
            prepare(format!(
                "INSERT INTO {table} ({name}, state) VALUES (?1, ?2) ON CONFLICT ({name}) DO UPDATE SET state = excluded.state"
            ))
        };
        Ok(Self {
            connection,
            looks,
            read_store: prepare(format!("SELECT state FROM {store}"))?,
            read_record: prepare(format!("SELECT state FROM {record} WHERE key = ?1"))?,
            read_session: prepare(format!("SELECT state FROM {session} WHERE id = ?1"))?,
            write_store: prepare(format!(
                "INSERT INTO {store} (id, version, state) VALUES (1, {VERSION}, ?1)
                 ON CONFLICT (id) DO UPDATE SET state = excluded.state"
            ))?,
            write_record: write(record, "key")?,
            write_session: write(session, "id")?,
            delete_record: prepare(format!("DELETE FROM {record} WHERE key = ?1"))?,
            delete_session: prepare(format!("DELETE FROM {session} WHERE id = ?1"))?,
            list: prepare(format!("SELECT key FROM {record} WHERE key >= ?1 ORDER BY key"))?,
            list_states: prepare(format!("SELECT key, state FROM {record} WHERE key >= ?1 ORDER BY key"))?,
            peers: prepare(format!("SELECT id FROM {session} WHERE id > ?1 ORDER BY id LIMIT ?2"))?,
        })
    }

    /// Runs a batch in a transaction of its own. If the batch opens a session, the transaction also reads the rows of a few other
    /// sessions, and ends those whose beacon has fallen: a short program does not live long enough to see them silent.
    pub(super) fn transact(
        &mut self,
        batch: &Batch,
        now: StoreNow,
        has_fallen: impl Fn(SessionId) -> bool,
    ) -> Result<Reply, Trouble> {
        let behavior = if self.looks { TransactionBehavior::Deferred } else { TransactionBehavior::Immediate };
        let transaction = Transaction::new_unchecked(self.connection, behavior)?;
        let mut records = Records::new();
        self.load_store(&mut records)?;
        for key in batch.keys() {
            self.load_record(&mut records, key)?;
        }
        for session in records.sessions_of(batch) {
            self.load_session(&mut records, session)?;
        }
        for session in self.peers(batch)? {
            self.load_session(&mut records, session)?;
        }
        let mut ends = records.dead_peers(batch, has_fallen);
        let reply = if ends.is_empty() {
            batch.apply(&mut records, now)
        } else {
            ends.extend_from_slice(&batch.ends);
            Batch { ends, ..batch.clone() }.apply(&mut records, now)
        };
        let written = self.write_changed(&mut records);
        written.map_err(|trouble| if self.looks { Trouble::of_look() } else { trouble })?;
        transaction.commit().map_err(|error| Trouble::of_commit(&error))?;
        Ok(reply)
    }

    /// Some other sessions: whoever opens a session looks after those that follow it, and the last after the first.
    fn peers(&mut self, batch: &Batch) -> Result<Vec<SessionId>, Trouble> {
        let (mut peers, wanted) = (Vec::new(), batch.peers());
        for from in [batch.session.to_string(), String::new()] {
            let rest = i64::try_from(wanted.saturating_sub(peers.len())).unwrap_or(i64::MAX);
            let found = self.peers.query_map((from, rest), |row| row.get::<_, String>(0))?;
            peers.extend(found.filter_map(|id| SessionId::from_digits(&id.ok()?)));
        }
        Ok(peers)
    }

    fn load_store(&mut self, records: &mut Records) -> Result<(), Trouble> {
        let stored = text(&mut self.read_store, [])?;
        let fresh = if stored.is_none() { self.random()? } else { StoreId::default() };
        Ok(records.load_store(stored.as_deref(), fresh)?)
    }

    /// Which store this is, if its row is there and can be read.
    pub(super) fn known_store(&mut self, records: &mut Records) -> Result<Option<StoreId>, Trouble> {
        let Some(stored) = text(&mut self.read_store, [])? else { return Ok(None) };
        let is_known = records.load_store(Some(&stored), StoreId::default()).is_ok();
        Ok(is_known.then(|| records.store()))
    }

    pub(super) fn load_record(&mut self, records: &mut Records, key: Key) -> Result<(), Trouble> {
        let stored = text(&mut self.read_record, [key.as_str()])?;
        records.load(key, stored.as_deref());
        Ok(())
    }

    pub(super) fn load_session(&mut self, records: &mut Records, session: SessionId) -> Result<(), Trouble> {
        let stored = text(&mut self.read_session, [session.to_string()])?;
        records.load_session(session, stored.as_deref());
        Ok(())
    }

    /// Writes what a batch changed.
    pub(super) fn write_changed(&mut self, records: &mut Records) -> Result<(), Trouble> {
        for row in records.take_changed() {
            match (&row, records.text(&row)) {
                (Row::Store, state) => self.write_store.execute([state])?,
                (Row::Record(key), Some(state)) => self.write_record.execute([key.as_str(), &state])?,
                (Row::Record(key), None) => self.delete_record.execute([key.as_str()])?,
                (Row::Session(session), Some(state)) => self.write_session.execute([session.to_string(), state])?,
                (Row::Session(session), None) => self.delete_session.execute([session.to_string()])?,
            };
        }
        Ok(())
    }

    /// Up to this many keys, in order, from this name on.
    pub(super) fn keys(&mut self, from: &str, most: usize) -> Result<Vec<Key>, Trouble> {
        let mut keys = Vec::new();
        let mut found = self.list.query([from])?;
        while keys.len() < most
            && let Some(row) = found.next()?
        {
            keys.extend(key(row)?);
        }
        Ok(keys)
    }

    /// The keys with this prefix whose records are in use, or cannot be read, in order. This reads the records of all keys with the
    /// prefix: an index of those in use would be written twice for each turn of a lease.
    pub(super) fn used_keys(&mut self, prefix: &str) -> Result<Vec<Key>, Trouble> {
        let mut keys = Vec::new();
        let mut found = self.list_states.query([prefix])?;
        while let Some(row) = found.next()? {
            let Some(key) = key(row)? else { continue };
            if !key.as_str().starts_with(prefix) {
                break;
            }
            if !row.get_ref(1)?.as_str().is_ok_and(is_idle) {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// The operating system seeds SQLite's random numbers.
    fn random(&self) -> Result<StoreId, Trouble> {
        let bytes: [u8; 16] = self.connection.query_row("SELECT randomblob(16)", [], |row| row.get(0))?;
        Ok(StoreId(u128::from_be_bytes(bytes)))
    }
}

/// The state that a statement finds, if there is one.
fn text(statement: &mut Statement<'_>, named: impl Params) -> rusqlite::Result<Option<String>> {
    statement.query_row(named, state).optional().map(Option::flatten)
}

/// The key in the first column; `None` if that is not text or not a key, because leasehold did not write it.
fn key(found: &Found<'_>) -> rusqlite::Result<Option<Key>> {
    Ok(found.get_ref(0)?.as_str().ok().and_then(|name| Key::new(name).ok()))
}

/// A value that is not text still counts as a row, but as one that cannot be read.
fn state(found: &Found<'_>) -> rusqlite::Result<Option<String>> {
    Ok(match found.get_ref(0)? {
        ValueRef::Null => None,
        other => Some(other.as_str().unwrap_or_default().to_owned()),
    })
}
