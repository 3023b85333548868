//! One attempt at a transaction: rows as they were read or are guessed, the records made of them, and what to write.

use std::{
    format,
    string::{String, ToString},
    sync::atomic::AtomicBool,
    vec::Vec,
};

use redis::Value;
use tokio::runtime::Handle;

use super::compare::{Comparison, Snapshot};
use super::link::Link;
use super::listeners::Listeners;
use super::lua::Script;
use super::memory::{Found, Memory, Text};
use crate::machine::{Batch, FORMAT, Key, Peer, Records, Row, SessionId, StoreError, StoreId, StoreNow};
use crate::store::{reserving::Pace, under_way::UnderWay};

/// What an attempt goes by: what one run of the script found, and for all other rows what this process remembers.
pub(super) struct View<'a> {
    memory: &'a Memory,
    snapshot: Snapshot,
}

/// The rows that an attempt rests on.
pub(super) struct Attempt {
    pub(super) records: Records,
    /// Whether all of them stood like this at one moment, so that nothing of it is a guess.
    pub(super) is_certain: bool,
    /// What the store's own row says, if it is there.
    pub(super) store: Option<StoreId>,
    comparison: Comparison,
    /// Whether a new record is made, which starts from the store's floor of tokens.
    needs_floor: bool,
}

impl<'a> View<'a> {
    pub(super) fn new(memory: &'a Memory) -> Self {
        Self { memory, snapshot: Snapshot::new() }
    }

    /// Goes by these rows from now on.
    pub(super) fn found(&mut self, snapshot: Snapshot) {
        for (name, found) in &snapshot {
            self.memory.learn(name, found.clone());
        }
        self.snapshot = snapshot;
    }

    /// Takes note of what a comparison wrote.
    pub(super) fn wrote(&self, comparison: &Comparison) {
        for (name, text) in &comparison.writes {
            self.memory.learn(name, text.as_ref().map(|text| Text::new(text.clone().into_bytes())));
        }
    }

    /// Loads the store's row, the records of these keys, and then the sessions that `sessions` names. If the store has no row
    /// it is a new one, and gets the id `fresh`.
    ///
    /// # Errors
    /// [`StoreError`] if the store's row cannot be used.
    pub(super) fn load(
        &self,
        keys: &[Key],
        fresh: StoreId,
        sessions: impl FnOnce(&Records) -> Vec<SessionId>,
    ) -> Result<Attempt, StoreError> {
        let mut attempt = Attempt {
            records: Records::new(),
            is_certain: true,
            store: None,
            comparison: Comparison::default(),
            needs_floor: false,
        };
        let text = self.read(&Row::Store, &mut attempt);
        if let Err(unreadable) = attempt.records.load_store(text.as_deref(), fresh) {
            // What this process remembers may be out of date: the next transaction reads anew.
            self.memory.learn(&Row::Store.to_string(), None);
            return Err(unreadable.into());
        }
        attempt.store = text.map(|_| attempt.records.store());
        for key in keys {
            let text = self.read(&Row::Record(key.clone()), &mut attempt);
            attempt.needs_floor |= text.is_none();
            attempt.records.load(key.clone(), text.as_deref());
        }
        for session in sessions(&attempt.records) {
            let text = self.read(&Row::Session(session), &mut attempt);
            attempt.records.load_session(session, text.as_deref());
        }
        Ok(attempt)
    }

    fn read(&self, row: &Row, attempt: &mut Attempt) -> Option<String> {
        let name = row.to_string();
        let found: Found = self.snapshot.get(&name).cloned().unwrap_or_else(|| {
            attempt.is_certain = false;
            self.memory.guess(&name)
        });
        let text = found.as_deref().map(Text::text);
        attempt.comparison.read.push((name, found));
        text
    }
}

impl Attempt {
    /// What the script compares and then writes. Forgetting a record changes the store's own row, which would make everybody else begin
    /// anew, so most scripts compare only the id of the store.
    pub(super) fn into_comparison(mut self) -> Comparison {
        let mut writes_store = false;
        for row in self.records.take_changed() {
            let text = self.records.text(&row);
            writes_store |= row == Row::Store;
            self.comparison.writes.push((row.to_string(), text));
        }
        if !writes_store && !self.needs_floor {
            self.comparison.facts.extend(self.store.map(fact_of_store));
        }
        self.comparison
    }

    /// Whether each row that it rests on is there.
    pub(super) fn has_all_rows(&self) -> bool {
        self.comparison.read.iter().all(|(_, found)| found.is_some())
    }

    /// Only what the script is to compare.
    pub(super) fn into_question(self) -> Comparison {
        self.comparison
    }
}

/// What the store's own row must contain: the id of the store.
pub(super) fn fact_of_store(store: StoreId) -> (String, String) {
    (Row::Store.to_string(), format!("{{\"format\":{FORMAT},\"store\":\"{store}\"}}"))
}

/// The other sessions that the script told of, as whoever opened a session is told of them.
pub(super) fn peers_in(told: Value, batch: &Batch, now: StoreNow) -> Vec<Peer> {
    // Ids and texts by turns.
    let told: Vec<Vec<u8>> = redis::from_redis_value(told).unwrap_or_default();
    let mut records = Records::new();
    records.load_session(batch.session, None);
    for pair in told.chunks_exact(2) {
        let [id, text] = [&pair[0], &pair[1]].map(|bytes| String::from_utf8_lossy(bytes));
        if let Some(session) = SessionId::from_digits(&id) {
            records.load_session(session, Some(&text));
        }
    }
    let (operations, ends, forgets) = (Vec::new(), Vec::new(), Vec::new());
    Batch { operations, ends, forgets, session: batch.session, step: batch.step.clone(), sure_ms: 0 }
        .apply(&mut records, now)
        .peers
}

/// The place where a store keeps its rows, shared by its handle and by the scripts of its user.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) link: Link,
    /// The runtime that the store was made in, for calls from outside any runtime.
    pub(super) runtime: Handle,
    pub(super) memory: Memory,
    pub(super) pace: Pace,
    pub(super) listeners: Listeners,
    pub(super) under_way: UnderWay,
    pub(super) prefix: String,
    /// The Redis key that holds all rows, as a hash.
    pub(super) rows: String,
    /// The Redis key that holds the ids of all sessions, as a sorted set.
    sessions: String,
    /// The script that compares and writes.
    pub(super) plain: Script,
    pub(super) has_swept: AtomicBool,
    /// Whether the store has warned that no messages are received.
    pub(super) has_warned: AtomicBool,
}

impl Place {
    pub(super) fn new(link: Link, runtime: Handle, prefix: &str) -> Self {
        let [rows, sessions] = ["rows", "sessions"].map(|name| format!("{{{prefix}}}:{name}"));
        let (memory, listeners, prefix) = (Memory::default(), Listeners::default(), prefix.to_string());
        let (pace, plain, under_way) = (Pace::default(), Script::plain(), UnderWay::new());
        let (has_swept, has_warned) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { link, runtime, memory, pace, listeners, under_way, prefix, rows, sessions, plain, has_swept, has_warned }
    }

    /// The Redis keys that the script works on.
    pub(super) fn keys(&self) -> [&str; 2] {
        [&self.rows, &self.sessions]
    }
}
