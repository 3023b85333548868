//! A store whose transactions are several statements, as in SQL. A transaction locks its records and the row of its own session, and then
//! reads the rows of other sessions, which it does not lock. Until it commits, others may commit what does not need its locks.

use leasehold::machine::{Batch, Records, Row, SessionId};

use crate::{
    rows,
    state::{State, Transaction},
};

/// What a transaction has read without a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    rows: Vec<(Row, Option<String>)>,
    /// Whether it has locked its records and the row of its own session.
    has_locks: bool,
}

impl Reading {
    /// Reads for a batch, whose records are locked by now.
    pub(crate) fn of(batch: &Batch, records: &Records) -> Self {
        let others = rows::sessions_of(batch, records).into_iter().filter(|session| *session != batch.session);
        let rows = others.map(Row::Session).chain([Row::Store]);
        Self { rows: rows.map(|row| (row.clone(), records.text(&row))).collect(), has_locks: true }
    }

    /// What a store reads that takes the rows of all sessions from one snapshot, and locks the records only after that.
    pub(crate) fn before_the_lock(opened: &[SessionId], records: &Records) -> Self {
        let rows = opened.iter().map(|session| Row::Session(*session)).chain([Row::Store]);
        Self { rows: rows.map(|row| (row.clone(), records.text(&row))).collect(), has_locks: false }
    }

    /// The store as the transaction sees it.
    pub(crate) fn seen_in(&self, records: &Records, opened: &[SessionId]) -> Records {
        let mut seen = records.clone();
        if !self.has_locks {
            // Who opened its session after the snapshot is not in it.
            opened.iter().for_each(|session| set(&mut seen, &Row::Session(*session), None));
        }
        self.rows.iter().for_each(|(row, text)| set(&mut seen, row, text.as_deref()));
        seen
    }

    /// Whether somebody else wrote what the transaction is about to write, or has locked it. Then it is rolled back.
    pub(crate) fn is_overtaken(&self, written: &[Row], records: &Records, locked: &[SessionId]) -> bool {
        let is_locked = |row: &Row| matches!(row, Row::Session(session) if locked.contains(session));
        let has_changed = |row: &Row| self.rows.iter().any(|(read, text)| read == row && *text != records.text(row));
        written.iter().any(|row| is_locked(row) || has_changed(row))
    }

    /// The store after the commit: `applied` as the transaction left it, with what others wrote meanwhile.
    pub(crate) fn commit(written: &[Row], mut applied: Records, records: &Records, opened: &[SessionId]) -> Records {
        let others = opened.iter().map(|session| Row::Session(*session)).filter(|row| !written.contains(row));
        others.for_each(|row| set(&mut applied, &row, records.text(&row).as_deref()));
        if !written.contains(&Row::Store) {
            set(&mut applied, &Row::Store, records.text(&Row::Store).as_deref());
        }
        applied
    }
}

fn set(records: &mut Records, row: &Row, text: Option<&str>) {
    match (row, text) {
        (Row::Session(session), Some(text)) => records.load_session(*session, Some(text)),
        (Row::Session(session), None) => records.abandon(*session),
        (Row::Store, text) => records.load_store(text, records.store()).expect("it was encoded by this very code"),
        (Row::Record(_), _) => debug_assert!(false, "records are locked"),
    }
    records.take_changed();
}

impl State {
    /// Whether no other transaction has locked what this one needs.
    pub(crate) fn may_apply(&self, at: usize) -> bool {
        let sent = &self.transactions[at];
        sent.is_open() || !self.transactions.iter().any(|other| other.is_open() && other.is_in_the_way_of(sent))
    }

    /// The sessions whose rows transactions have locked.
    pub(crate) fn locked(&self) -> Vec<SessionId> {
        let open = self.transactions.iter().filter(|sent| sent.is_open());
        open.map(|sent| sent.batch.session).collect()
    }

    /// The first transaction that can go on: one that has locks, if there is one.
    pub(crate) fn first_to_go_on(&self) -> Option<usize> {
        let open = self.transactions.iter().position(|sent| sent.is_open());
        open.or_else(|| (!self.transactions.is_empty()).then_some(0))
    }
}

impl Transaction {
    /// Whether it has locks, and has not committed.
    fn is_open(&self) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.has_locks)
    }

    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let keys = other.batch.keys();
        self.batch.session == other.batch.session || self.batch.keys().iter().any(|key| keys.contains(key))
    }
}
