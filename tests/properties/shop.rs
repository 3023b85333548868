//! Three kinds of stores under one counter: each keeps its rows as texts, as a table would.

use std::collections::BTreeMap;

use leasehold::machine::{
    Action, Batch, Key, Operation, Record, Records, Reply, Row, Session, SessionId, SessionStep, StoreId, StoreNow, Way,
};

pub(crate) const STORE: StoreId = StoreId(9);

/// All rows of a store.
pub(crate) type Texts = BTreeMap<Row, String>;

/// How a store hands its rows to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It never forgets what it has in memory.
    Memory,
    /// It reads the batch's records and all sessions.
    AllSessions,
    /// It reads the batch's records, and of the sessions those that `sessions_of` names.
    NamedSessions,
}

pub(crate) struct Shop {
    kind: Kind,
    pub(crate) texts: Texts,
    memory: Records,
}

/// What stands in a store, read anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// `None` for what cannot be read.
    pub(crate) records: BTreeMap<Key, Option<Record>>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// How far the tokens of forgotten records got.
    pub(crate) floor: u64,
}

impl Shop {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, texts: Texts::new(), memory: Records::whole(STORE) }
    }

    /// Runs a batch as a store does: what it reads, and that it writes just the rows that changed.
    pub(crate) fn transact(&mut self, batch: &Batch, now: StoreNow) -> Reply {
        if self.kind != Kind::Memory {
            return transact(&mut self.texts, self.kind, batch, now);
        }
        let reply = batch.apply(&mut self.memory, now);
        write(&mut self.texts, &mut self.memory);
        self.memory_says_the_same();
        reply
    }

    /// Deletes the row of a session, blindly.
    pub(crate) fn abandon(&mut self, session: SessionId) {
        if self.kind != Kind::Memory {
            let mut records = Records::new();
            records.abandon(session);
            return write(&mut self.texts, &mut records);
        }
        self.memory.abandon(session);
        write(&mut self.texts, &mut self.memory);
        self.memory_says_the_same();
    }

    /// Somebody else wrote all rows.
    pub(crate) fn rewrite(&mut self, texts: Texts) {
        self.memory = read_all(&texts);
        self.texts = texts;
        // What is in memory forgets in which order the fields stood.
        for (row, text) in self.texts.iter_mut().filter(|_| self.kind == Kind::Memory) {
            *text = self.memory.text(row).unwrap_or_else(|| text.clone());
        }
    }

    /// Nothing is told to nobody: the rows that were written are all that there is.
    fn memory_says_the_same(&self) {
        for (row, text) in self.texts.iter().filter(|(row, _)| !matches!(row, Row::Record(_))) {
            assert_eq!(self.memory.text(row).as_ref(), Some(text), "each change of a row is told");
        }
        let mut records = 0;
        for (row, text) in &self.texts {
            let Row::Record(key) = row else { continue };
            records += 1;
            let readable = self.memory.check(key).is_ok();
            assert!(!readable || self.memory.text(row).as_ref() == Some(text), "each change of a record is told");
        }
        assert_eq!(self.memory.len(), records, "nothing is kept of a key that nobody uses: {:?}", self.memory);
    }

    pub(crate) fn view(&self) -> View {
        let mut view = View::default();
        for (row, text) in &self.texts {
            match row {
                Row::Record(key) => drop(view.records.insert(key.clone(), Record::decode(text).ok())),
                Row::Session(id) => {
                    let (named, session) = Session::decode(text).expect("a session's row is read again");
                    assert_eq!(named, *id, "a row says whose it is");
                    view.sessions.insert(named, session);
                }
                Row::Store => view.floor = number_after(text, "\"floor\":").expect("the store's row has a floor"),
            }
        }
        view
    }
}

pub(crate) fn transact(texts: &mut Texts, kind: Kind, batch: &Batch, now: StoreNow) -> Reply {
    let mut records = read(texts, kind, batch);
    let alone = if needs_no_session(batch, &records) { alone(texts, batch, now) } else { None };
    let reply = batch.apply(&mut records, now);
    write(texts, &mut records);
    if let Some((answered, mut records)) = alone {
        assert_eq!(answered.answers, reply.answers, "the record alone says the same");
        for row in records.take_changed() {
            assert_eq!(records.text(&row).as_ref(), texts.get(&row), "and the same is written: {row}");
        }
    }
    reply
}

/// Rule S17: whether a batch does not depend on its session's row.
fn needs_no_session(batch: &Batch, records: &Records) -> bool {
    let Some(row) = records.session(batch.session) else { return false };
    let is_plain = |operation: &Operation| match &operation.action {
        Action::Acquire(ask) => ask.way == Way::Plain && ask.attempt >= row.floor,
        Action::Release { .. } | Action::Withdraw { .. } => true,
        _ => false,
    };
    let asks_only = batch.step == SessionStep::Stay && batch.ends.is_empty() && batch.forgets.is_empty();
    let is_readable = Session::decode(&records.text(&Row::Session(batch.session)).unwrap_or_default()).is_ok();
    asks_only && is_readable && row.robbed.is_empty() && batch.operations.iter().all(is_plain)
}

fn alone(texts: &Texts, batch: &Batch, now: StoreNow) -> Option<(Reply, Records)> {
    let mut records = Records::new();
    for key in batch.keys() {
        records.load(key.clone(), texts.get(&Row::Record(key)).map(String::as_str));
    }
    batch.apply_alone(&mut records, STORE, now).map(|reply| (reply, records))
}

fn read(texts: &Texts, kind: Kind, batch: &Batch) -> Records {
    let mut records = Records::new();
    let text = |row: Row| texts.get(&row).map(String::as_str);
    records.load_store(text(Row::Store), STORE).expect("the store's row is read");
    for key in batch.keys() {
        records.load(key.clone(), text(Row::Record(key)));
    }
    if kind == Kind::NamedSessions {
        for session in records.sessions_of(batch) {
            records.load_session(session, text(Row::Session(session)));
        }
    } else {
        let rows = texts.iter().filter(|(row, _)| matches!(row, Row::Session(_)));
        records.load_all_sessions(rows.map(|(_, text)| text.as_str())).expect("each row says whose it is");
    }
    records
}

fn read_all(texts: &Texts) -> Records {
    let mut records = Records::whole(STORE);
    for (row, text) in texts {
        match row {
            Row::Record(key) => records.load(key.clone(), Some(text)),
            Row::Session(session) => records.load_session(*session, Some(text)),
            Row::Store => records.load_store(Some(text), STORE).expect("the store's row is read"),
        }
    }
    records
}

fn write(texts: &mut Texts, records: &mut Records) {
    for row in records.take_changed() {
        match records.text(&row) {
            Some(text) => drop(texts.insert(row, text)),
            None => drop(texts.remove(&row)),
        }
    }
}

/// The sessions that a transaction of a store of [`Kind::NamedSessions`] reads.
pub(crate) fn named(texts: &Texts, batch: &Batch) -> Vec<SessionId> {
    let mut records = Records::new();
    for key in batch.keys() {
        let text = texts.get(&Row::Record(key.clone()));
        records.load(key, text.map(String::as_str));
    }
    records.sessions_of(batch)
}

/// The number that stands behind a field's name.
pub(crate) fn number_after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
