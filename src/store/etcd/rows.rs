//! The rows of a store as keys of etcd.

use std::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    sync::MutexGuard,
    vec::Vec,
};

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, ResponseHeader, TxnOp, TxnOpResponse, TxnResponse};

use crate::executor::Mutex;
use crate::machine::{Key, Row, SessionId};

/// More rows than this are not remembered.
const REMEMBERED: usize = 1_024;
/// A record of this many bytes names some 30 sessions. A longer one is compared by its revision.
const LONGEST_COMPARED: usize = 4_096;

/// What keys are called below a prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) prefix: String,
}

impl Names {
    pub(super) fn of(&self, row: &Row) -> Vec<u8> {
        let prefix = &self.prefix;
        match row {
            Row::Store => format!("{prefix}/store"),
            Row::Record(key) => self.record(key.as_str()),
            Row::Session(session) => self.session(&session.to_string()),
        }
        .into_bytes()
    }

    /// The record of a key, or of all that begin like this.
    pub(super) fn record(&self, key: &str) -> String {
        format!("{}/record/{key}", self.prefix)
    }

    /// The row of a session, or the prefix of all of them.
    fn session(&self, id: &str) -> String {
        format!("{}/session/{id}", self.prefix)
    }

    /// What comes after the rows of all sessions: 0 is the character after the slash.
    fn after_sessions(&self) -> String {
        format!("{}/session0", self.prefix)
    }

    pub(super) fn key_of(&self, name: &[u8]) -> Option<Key> {
        let name = core::str::from_utf8(name).ok()?;
        Key::new(name.strip_prefix(&self.record(""))?).ok()
    }

    /// What reserves the record of a key.
    pub(super) fn reservation(&self, key: &Key) -> String {
        format!("{}/reserved/{key}", self.prefix)
    }

    /// Where messages go: those to a session, or those to all.
    pub(super) fn message(&self, recipient: Option<SessionId>) -> String {
        let recipient = recipient.map_or_else(|| "all".to_string(), |session| session.to_string());
        format!("{}/message/{recipient}", self.prefix)
    }
}

/// A row as it was read: its text, and the revision that last wrote it. A row that is absent has neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) text: Option<String>,
    pub(super) revision: i64,
}

impl Seen {
    fn new(found: &KeyValue) -> Self {
        // What is no text is there all the same, and cannot be read as a record.
        let text = found.value_str().unwrap_or_default().to_string();
        Self { text: Some(text), revision: found.mod_revision() }
    }

    /// That the row is still like this. The revision of an absent row is 0.
    ///
    /// A cluster that was wiped or restored from a backup reuses revision numbers, and may reach the same one with another text. So a
    /// row is compared by its text. A long text is compared by its revision: it would count twice against etcd's limit for a request.
    pub(super) fn compare(&self, row: &Row, name: Vec<u8>) -> Compare {
        match self.text.as_deref().filter(|text| is_compared(row, text)) {
            Some(text) => Compare::value(name, CompareOp::Equal, text),
            None => Compare::mod_revision(name, CompareOp::Equal, self.revision),
        }
    }
}

fn is_compared(row: &Row, text: &str) -> bool {
    !text.is_empty() && (*row == Row::Store || text.len() <= LONGEST_COMPARED)
}

/// The rows that a transaction goes by.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) rows: BTreeMap<Row, Seen>,
    /// From how many moments they are. Rows of one moment need no proof that they belong together.
    moments: usize,
    /// The revision of the latest answer that rows were taken from.
    pub(super) revision: i64,
    /// Other sessions, which a context learns of when it opens its own. No decision depends on them, so they are never compared.
    pub(super) peers: Vec<(SessionId, String)>,
}

impl View {
    pub(super) fn text(&self, row: &Row) -> Option<&str> {
        self.rows.get(row)?.text.as_deref()
    }

    /// Whether comparing the texts of these rows proves that the store is still the one that was read, so that its own row need not be
    /// compared. An absent record takes its tokens from the store's floor.
    pub(super) fn proves_store(&self, rows: &[Row]) -> bool {
        let proves = |row: &Row| self.text(row).is_some_and(|text| is_compared(row, text));
        let mut records = rows.iter().filter(|row| matches!(row, Row::Record(_))).peekable();
        records.peek().is_some() && records.all(proves)
    }

    pub(super) fn is_of_one_moment(&self) -> bool {
        self.moments == 1
    }

    /// Drops the rows, which have changed, and keeps the other sessions that the first try found.
    pub(super) fn anew(self) -> Self {
        Self { peers: self.peers, ..Self::default() }
    }

    /// Takes what is remembered of these rows; the others are to be read.
    pub(super) fn recall(&mut self, wanted: &[Row], memory: Option<&Memory>) -> Vec<Row> {
        let mut missing = Vec::new();
        for row in wanted.iter().filter(|row| !self.rows.contains_key(row)).collect::<Vec<_>>() {
            match memory.and_then(|memory| memory.recall(row)) {
                Some(seen) => {
                    self.rows.insert(row.clone(), seen);
                    self.moments += 2;
                }
                None => missing.push(row.clone()),
            }
        }
        missing
    }

    /// Takes the sessions from the answer of a transaction that first requested this many rows, and then `others`.
    pub(super) fn meet(&mut self, names: &Names, asked: usize, wanted: usize, answer: &TxnResponse) {
        for response in answer.op_responses().into_iter().skip(asked) {
            let TxnOpResponse::Get(found) = response else { continue };
            let sessions = found.kvs().iter().filter_map(|found| {
                let id = core::str::from_utf8(found.key()).ok()?.strip_prefix(&names.session(""))?;
                Some((SessionId::from_digits(id)?, found.value_str().ok()?.to_string()))
            });
            self.peers.extend(sessions);
        }
        self.peers.truncate(wanted);
    }

    /// Takes what a transaction answered that asked for these rows.
    pub(super) fn take(&mut self, asked: Vec<Row>, answer: &TxnResponse) {
        self.moments += 1;
        self.revision = answer.header().map_or(0, ResponseHeader::revision);
        self.take_of_same_moment(asked, answer);
    }

    /// Takes the answer of a transaction that asked for these rows at the view's revision.
    pub(super) fn take_of_same_moment(&mut self, asked: Vec<Row>, answer: &TxnResponse) {
        for (row, found) in asked.into_iter().zip(answer.op_responses()) {
            let TxnOpResponse::Get(found) = found else { continue };
            self.rows.insert(row, found.kvs().first().map(Seen::new).unwrap_or_default());
        }
    }
}

/// Requests the given number of sessions that follow this one in the order of their ids, and the first ones of all.
pub(super) fn others(names: &Names, own: SessionId, wanted: usize) -> [TxnOp; 2] {
    let limit = i64::try_from(wanted).unwrap_or(i64::MAX);
    let range = |from: String, to: String| TxnOp::get(from, Some(GetOptions::new().with_range(to).with_limit(limit)));
    let (first, own, end) = (names.session(""), names.session(&own.to_string()), names.after_sessions());
    [range(format!("{own}\0"), end), range(first, own)]
}

/// Asks for each of these rows at a revision.
pub(super) fn gets_at(names: &Names, rows: &[Row], revision: i64) -> Vec<TxnOp> {
    let then = GetOptions::new().with_revision(revision);
    rows.iter().map(|row| TxnOp::get(names.of(row), Some(then.clone()))).collect()
}

/// Asks for each of these rows.
pub(super) fn gets(names: &Names, rows: &[Row]) -> Vec<TxnOp> {
    rows.iter().map(|row| TxnOp::get(names.of(row), None)).collect()
}

/// The rows as this handle last saw them. They are guesses: each transaction has etcd compare what it went by.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<BTreeMap<Row, Seen>>);

impl Memory {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<Row, Seen>> {
        self.0.lock()
    }

    fn recall(&self, row: &Row) -> Option<Seen> {
        self.rows().get(row).cloned()
    }

    pub(super) fn keep(&self, seen: impl IntoIterator<Item = (Row, Seen)>) {
        let mut rows = self.rows();
        if rows.len() > REMEMBERED {
            rows.clear();
        }
        rows.extend(seen);
    }

    pub(super) fn forget(&self) {
        self.rows().clear();
    }
}
