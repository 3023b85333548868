//! The content of a store, or the part of it that one transaction has read.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::fmt;

use super::{
    Record,
    codec::{StoreRow, Unreadable},
    id::{SessionId, StoreId},
    key::Key,
    operation::{Action, Batch, Ending, Peer, Way},
    session::Session,
    sessions::Sessions,
    sorted::SortedMap,
};

/// How many waiters at the head of a queue have their sessions read by a transaction, which drops the dead among them.
const HEADS: usize = 4;
/// How many waiters ahead of a request are watched, and have their sessions read by a transaction.
pub(super) const NEAREST: usize = 8;

/// Records by key, sessions by id, and the row of the store itself. A key without a record is unused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records {
    by_key: SortedMap<Key, Stored>,
    pub(super) sessions: Sessions,
    store: StoreRow,
    store_changed: bool,
    changed: SortedMap<Key, ()>,
}

/// What a store has for a key.
type Stored = Result<Box<Kept>, Unreadable>;

/// A record, and whether the store has one for its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    record: Record,
    stored: bool,
}

/// The name of a row in a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Row {
    /// The record of a key.
    Record(Key),
    /// The row of a session.
    Session(SessionId),
    /// The store's own row: its id, and the largest token of all deleted records.
    Store,
}

impl fmt::Display for Row {
    /// A unique name for each row, for stores that keep all rows in one table.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(key) => write!(out, "lease:{key}"),
            Self::Session(session) => write!(out, "session:{session}"),
            Self::Store => out.write_str("store"),
        }
    }
}

impl Records {
    /// An empty set of rows for one transaction, to be filled by [`load_store`](Self::load_store), [`load`](Self::load) and
    /// [`load_session`](Self::load_session).
    pub const fn new() -> Self {
        Self {
            by_key: SortedMap::new(),
            sessions: Sessions::new(false),
            store: StoreRow::new(StoreId(0)),
            store_changed: false,
            changed: SortedMap::new(),
        }
    }

    /// A whole store in memory: a row that is not in it does not exist.
    pub const fn whole(store: StoreId) -> Self {
        Self {
            by_key: SortedMap::new(),
            sessions: Sessions::new(true),
            store: StoreRow::new(store),
            store_changed: false,
            changed: SortedMap::new(),
        }
    }

    /// Adds what the store has as [`Row::Store`]. If it has no such row, the store is new, and gets the id `fresh`.
    ///
    /// # Errors
    /// [`Unreadable`] if the row cannot be read. Then the transaction MUST NOT continue.
    pub fn load_store(&mut self, stored: Option<&str>, fresh: StoreId) -> Result<(), Unreadable> {
        self.store_changed = stored.is_none();
        self.store = stored.map_or_else(|| Ok(StoreRow::new(fresh)), StoreRow::decode)?;
        Ok(())
    }

    /// Adds what the store has as [`Row::Record`] of this key.
    pub fn load(&mut self, key: Key, stored: Option<&str>) {
        if let Some(text) = stored {
            let kept = |record| Box::new(Kept { record, stored: true });
            self.by_key.insert(key, Record::decode(text).map(kept));
        }
    }

    /// Adds what the store has as [`Row::Session`] of this id.
    pub fn load_session(&mut self, session: SessionId, stored: Option<&str>) {
        let row = stored.map(|text| match Session::decode(text) {
            Ok((_, row)) => row,
            Err(unreadable) => Session::unreadable(text, unreadable),
        });
        self.sessions.load(session, row);
    }

    /// Adds all session rows that the store has. Any session that is not among them has ended.
    ///
    /// # Errors
    /// [`Unreadable`] if a row has no session id, because it may belong to a session that would then count as ended. The transaction MUST
    /// NOT continue.
    pub fn load_all_sessions<'a>(&mut self, stored: impl IntoIterator<Item = &'a str>) -> Result<(), Unreadable> {
        for text in stored {
            let (session, row) = match Session::decode(text) {
                Ok(read) => read,
                Err(why) => (Session::id_of(text).ok_or(Unreadable::Corrupt)?, Session::unreadable(text, why)),
            };
            self.sessions.load(session, Some(row));
        }
        self.sessions.are_complete();
        Ok(())
    }

    /// Adds all rows that the store has except its records, for a store that reads them at once: all session rows, followed by
    /// [`Row::Store`]. If that one is missing, the store is new, and gets the id `fresh`.
    ///
    /// # Errors
    /// As for [`load_store`](Self::load_store) and [`load_all_sessions`](Self::load_all_sessions).
    pub fn load_beside_records(
        &mut self,
        stored: &[String],
        fresh: impl FnOnce() -> StoreId,
    ) -> Result<(), Unreadable> {
        // Only a session's row has a session id.
        let (store, sessions) = match stored.split_last() {
            Some((last, sessions)) if Session::id_of(last).is_none() => (Some(last.as_str()), sessions),
            _ => (None, stored),
        };
        let fresh = if store.is_none() { fresh() } else { StoreId::default() };
        self.load_store(store, fresh)?;
        self.load_all_sessions(sessions.iter().map(String::as_str))
    }

    /// The sessions whose rows a batch needs. Call this when the records of the batch are loaded, then [load](Self::load_session) each of
    /// these rows. A store that locks rows locks them in this order.
    pub fn sessions_of(&self, batch: &Batch) -> Vec<SessionId> {
        let mut named = SortedMap::new();
        named.insert(batch.session, ());
        for ending in &batch.ends {
            named.insert(ending.session, ());
        }
        for operation in &batch.operations {
            match &operation.action {
                Action::End { target, .. } => named.insert(*target, ()),
                Action::Detach { to, .. } => named.insert(*to, ()),
                Action::Acquire(ask) => ask.way.givers().into_iter().for_each(|giver| named.insert(giver, ())),
                Action::AcquireAll(_)
                | Action::Verify { .. }
                | Action::Downgrade { .. }
                | Action::Release { .. }
                | Action::Withdraw { .. }
                | Action::Look
                | Action::Inspect
                | Action::Fence { .. } => {}
            }
        }
        for key in batch.keys() {
            let Some(record) = self.peek(&key) else { continue };
            record.grants.iter().for_each(|grant| named.insert(grant.holder, ()));
            let own = record.queue.iter().position(|waiter| waiter.holder == batch.session);
            let end = own.unwrap_or(record.queue.len());
            let nearest = end.saturating_sub(NEAREST)..end;
            let needs_all = needs_all_waiters(batch, &key);
            for (at, waiter) in record.queue.iter().enumerate() {
                if needs_all || at < HEADS || nearest.contains(&at) {
                    named.insert(waiter.holder, ());
                }
            }
        }
        named.keys().copied().collect()
    }

    /// The [ends](Batch::ends) for the dead among the [peers](Batch::peers) of a batch, whose rows must be loaded. A peer is dead if its
    /// row says that it has a beacon and `is_gone` finds that this beacon is gone. A store that can see beacons adds these ends to the
    /// batch, so sessions of dead contexts end even if no other context lives long enough to see them silent.
    pub fn dead_peers(&self, batch: &Batch, is_gone: impl Fn(SessionId) -> bool) -> Vec<Ending> {
        let mut dead = Vec::new();
        if batch.peers() > 0 {
            for Peer { session, beat, .. } in self.sessions.peers_of(batch.session) {
                if self.sessions.get(session).is_some_and(|row| row.beacon) && is_gone(session) {
                    dead.push(Ending { session, beat: Some(beat) });
                }
            }
        }
        dead
    }

    /// Deletes the row of a session.
    pub fn abandon(&mut self, session: SessionId) {
        self.sessions.end(session);
    }

    /// The store's id.
    pub fn store(&self) -> StoreId {
        self.store.id
    }

    /// Checks that the record of a key can be read.
    ///
    /// # Errors
    /// [`Unreadable`] if it cannot be read.
    pub fn check(&self, key: &Key) -> Result<(), Unreadable> {
        match self.by_key.get(key) {
            Some(Err(unreadable)) => Err(*unreadable),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// The record of a key, which is created if there is none, and all sessions.
    pub(super) fn open(&mut self, key: &Key) -> Result<(&mut Record, &mut Sessions), Unreadable> {
        // Most keys are known, so this looks first, and clones only a new key.
        if !self.by_key.contains_key(key) {
            let kept = Kept { record: Record::starting_at(self.store.floor), stored: false };
            self.by_key.insert(key.clone(), Ok(kept.into()));
        }
        match self.by_key.get_mut(key) {
            Some(Ok(kept)) => Ok((&mut kept.record, &mut self.sessions)),
            Some(Err(unreadable)) => Err(*unreadable),
            None => Err(Unreadable::Corrupt),
        }
    }

    /// Whether each key of the batch has a record, and only the batch's session has grants or queue entries in these records.
    // Protocol: docs/protocol.md#s17.
    pub fn concern_only_sender_of(&self, batch: &Batch) -> bool {
        let is_own = |holder: SessionId| holder == batch.session;
        let concern_only_sender = self.by_key.iter().all(|(_, stored)| {
            stored.as_ref().is_ok_and(|kept| {
                let record = &kept.record;
                record.grants.iter().all(|grant| is_own(grant.holder))
                    && record.queue.iter().all(|waiter| is_own(waiter.holder))
            })
        });
        concern_only_sender && self.sessions.is_unread() && self.len() == batch.keys().len()
    }

    /// Assumes that the session's row exists, as the sender says, and that the store has this id.
    pub(super) fn rely_on(&mut self, session: SessionId, store: StoreId) {
        self.store = StoreRow::new(store);
        self.sessions.load(session, Some(Session::default()));
    }

    /// Ends an operation. `before` is the record's revision before it. A record that was created for the operation and did not change is
    /// dropped.
    pub(super) fn settle(&mut self, key: &Key, before: u64) {
        let Some(Ok(kept)) = self.by_key.get_mut(key) else { return };
        if kept.record.revision != before {
            kept.stored = true;
            self.note(key);
        } else if !kept.stored {
            self.by_key.remove(key);
        }
    }

    /// Deletes a record that nobody uses but ended sessions. The store's row remembers the record's last token.
    pub(super) fn forget(&mut self, key: &Key) {
        let Some(last_token) = self.unused(key).map(|record| record.last_token) else { return };
        if last_token > self.store.floor {
            self.store.floor = last_token;
            self.store_changed = true;
        }
        self.note(key);
        self.by_key.remove(key);
    }

    /// Whether the key has a record, and this record could be deleted.
    pub fn is_unused(&self, key: &Key) -> bool {
        self.unused(key).is_some()
    }

    fn unused(&self, key: &Key) -> Option<&Record> {
        let record = self.peek(key)?;
        let has_ended = |session| self.sessions.has_ended(session);
        let is_used = record.grants.iter().any(|grant| !has_ended(grant.holder))
            || record.queue.iter().any(|one| !has_ended(one.holder));
        // The store's floor would leave every other key without tokens.
        (!is_used && !record.last_token.is_near_the_end()).then_some(record)
    }

    /// Deletes all records that nobody uses.
    pub(crate) fn forget_unused(&mut self) {
        let keys: Vec<Key> = self.by_key.keys().cloned().collect();
        keys.iter().for_each(|key| self.forget(key));
    }

    fn note(&mut self, key: &Key) {
        self.changed.insert(key.clone(), ());
    }

    /// The current record of a key, if it exists and can be read.
    pub fn peek(&self, key: &Key) -> Option<&Record> {
        self.by_key.get(key)?.as_ref().ok().map(|kept| &kept.record)
    }

    /// The row of a session, if it exists.
    pub fn session(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(session)
    }

    /// The keys with this prefix that somebody holds or waits for, in order.
    pub fn keys(&self, prefix: &str) -> Vec<Key> {
        let mut keys = Vec::new();
        for (key, stored) in self.by_key.from(|key| key.as_str() < prefix) {
            if !key.as_str().starts_with(prefix) {
                break;
            }
            if stored.as_ref().is_ok_and(|kept| !kept.record.is_idle()) {
                keys.push(key.clone());
            }
        }
        keys
    }

    /// The number of records, used and idle.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows that must be written or deleted, each once: see [`text`](Self::text).
    pub fn take_changed(&mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (key, ()) in core::mem::take(&mut self.changed) {
            rows.push(Row::Record(key));
        }
        for session in self.sessions.take_changed() {
            rows.push(Row::Session(session));
        }
        if core::mem::take(&mut self.store_changed) {
            rows.push(Row::Store);
        }
        rows
    }

    /// Forgets which rows changed, because these records are the store itself.
    pub(crate) fn forget_changes(&mut self) {
        self.changed.clear();
        self.sessions.forget_changes();
        self.store_changed = false;
    }

    /// The text to write for a row; `None` if the row is to be deleted.
    pub fn text(&self, row: &Row) -> Option<String> {
        match row {
            Row::Record(key) => self.peek(key).map(Record::encode),
            Row::Session(session) => self.sessions.get(*session).map(|row| row.encode(*session)),
            Row::Store => Some(self.store.encode()),
        }
    }
}

/// Whether a batch needs the sessions of all waiters for a key. An inspection returns them all. A theft may rob a waiter to whom an earlier
/// operation of the same batch granted the lease, and the loss must be noted in that waiter's row.
fn needs_all_waiters(batch: &Batch, key: &Key) -> bool {
    batch.operations.iter().filter(|operation| operation.key == *key).any(|operation| match &operation.action {
        Action::Inspect => true,
        Action::Acquire(ask) => ask.way == Way::Steal && batch.operations.len() > 1,
        _ => false,
    })
}
