//! The statements that nearly every transaction runs. Most of their time goes into parsing and planning. So they are prepared, by SQL's
//! `PREPARE`, on each connection that only this store uses, and are then run by their names.

use std::{string::String, vec::Vec};

use super::{carrier::Round, literal::text, names::Names, rows::SCHEMA};

/// How many transactions a connection must have carried before it is worth preparing them. A program that takes one lease and ends would
/// not gain from it.
const WORTH: u32 = 2;
/// After each refusal, the connection carries this many times more transactions before the next try.
const RARER: u32 = 8;
/// Between two tries, the connection carries at most this many transactions.
const MOST: u32 = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Often {
    /// Waits for these advisory locks, in this order, and keeps them until the transaction ends.
    Lock,
    /// Locks and reads the record of one key.
    Record,
    /// Locks and reads the row of one session.
    Session,
    /// Reads the store's own row.
    Store,
    WriteRecord,
    WriteSession,
    /// Rewrites a record, and returns a row if it did. It does so only if three rows are still as [remembered](super::memory): the record,
    /// the row of the session, and the facts that matter in the store's own row. It locks the record before it looks at the session.
    Rewrite,
}

impl Often {
    const ALL: [Self; 7] =
        [Self::Lock, Self::Record, Self::Session, Self::Store, Self::WriteRecord, Self::WriteSession, Self::Rewrite];

    /// The end of its name, and the types of its values.
    const fn signature(self) -> (&'static str, &'static str) {
        match self {
            Self::Lock => ("lock", "(bigint[])"),
            Self::Record => ("record", "(bytea)"),
            Self::Session => ("session", "(bytea)"),
            Self::Store => ("store", ""),
            Self::WriteRecord => ("write_record", "(bytea, text)"),
            Self::WriteSession => ("write_session", "(bytea, text, text)"),
            Self::Rewrite => ("rewrite", "(bytea, text, text, bytea, text, text)"),
        }
    }

    /// The statement with these values in it.
    fn text(self, names: &Names, values: &[&str]) -> String {
        let value = |at: usize| {
            debug_assert!(at < values.len(), "{self:?} has a value for each of its parameters");
            values.get(at).copied().unwrap_or("NULL")
        };
        let read = |table: &str, column: &str| {
            let (table, value) = (names.table(table), value(0));
            format!("SELECT encode({column}, 'hex'), text FROM {table} WHERE {column} = {value} FOR UPDATE")
        };
        match self {
            Self::Lock => format!("SELECT pg_advisory_xact_lock(number) FROM unnest({}) AS number", value(0)),
            Self::Record => read("record", "key"),
            Self::Session => read("session", "id"),
            Self::Store => format!("SELECT schema, text FROM {}", names.table("store")),
            Self::WriteRecord => names.write_records(&format!("({}, {})", value(0), value(1))),
            Self::WriteSession => names.write_sessions(&format!("({}, {}, {})", value(0), value(1), value(2))),
            Self::Rewrite => {
                let [record, session, store] = ["record", "session", "store"].map(|table| names.table(table));
                let [key, was, becomes, own, beats, facts] = [0, 1, 2, 3, 4, 5].map(value);
                format!(
                    "WITH kept AS MATERIALIZED (SELECT 1 FROM {record} WHERE key = {key} AND text = {was} FOR UPDATE), \
                     own AS MATERIALIZED (SELECT 1 FROM {session} WHERE id = {own} AND text = {beats} \
                     AND EXISTS (SELECT FROM kept) FOR UPDATE) \
                     UPDATE {record} SET text = {becomes} WHERE key = {key} AND text = {was} AND EXISTS (SELECT FROM own) \
                     AND EXISTS (SELECT FROM {store} WHERE schema = {SCHEMA} AND text::jsonb @> {facts}::jsonb) RETURNING true"
                )
            }
        }
    }

    /// The statement that runs it on a connection where it is prepared.
    fn call(self, names: &Names, values: &[&str]) -> String {
        let name = names.prepared(self.signature().0);
        if values.is_empty() { format!("EXECUTE {name}") } else { format!("EXECUTE {name}({})", values.join(", ")) }
    }
}

impl Round {
    /// Adds one of these statements, with literals as its values.
    pub(super) fn run(&mut self, often: Often, names: &Names, values: &[&str]) -> usize {
        let statement = if self.by_name() { often.call(names, values) } else { often.text(names, values) };
        self.add(&statement)
    }
}

/// Adds the settings by which the server plans a statement once, at its first run, and uses the index of the table. Without them, it plans
/// most statements at each run while their table is small, and it may keep a plan that reads the whole table although the table has grown.
/// It takes a plan that it was told to avoid for expensive, and would compile it to machine code at each run: so that is turned off too.
pub(super) fn keep_plans(round: &mut Round) {
    for setting in ["enable_seqscan = off", "jit = off", "plan_cache_mode = force_generic_plan"] {
        round.add(&format!("SET LOCAL {setting}"));
    }
}

impl Names {
    /// Asks which of the statements a connection has prepared: an earlier try may have prepared some.
    pub(super) fn ask_prepared(&self) -> Round {
        let names: Vec<_> = Often::ALL.map(|often| text(&self.prepared(often.signature().0))).into();
        Round::one(&format!("SELECT name FROM pg_prepared_statements WHERE name IN ({})", names.join(", ")))
    }

    /// Adds the statements that prepare all of them. A rollback does not undo that.
    pub(super) fn prepare(&self, round: &mut Round) {
        for often in Often::ALL {
            let (end, types) = often.signature();
            let (name, text) = (self.prepared(end), often.text(self, &["$1", "$2", "$3", "$4", "$5", "$6"]));
            round.add(&format!("PREPARE {name}{types} AS {text}"));
        }
    }
}

/// What a connection has prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prepared {
    is_done: bool,
    /// How many transactions it carried to their ends since it was made, or since the server refused.
    carried: u32,
    /// After how many of them it is time to prepare.
    worth: u32,
}

impl Default for Prepared {
    fn default() -> Self {
        Self { is_done: false, carried: 0, worth: WORTH }
    }
}

impl Prepared {
    /// Counts a transaction that came to its end. One that fails shows rather that there is nothing to prepare: no tables yet.
    pub(super) const fn count(&mut self) {
        self.carried = self.carried.saturating_add(1);
    }

    /// Whether it is time to prepare.
    pub(super) const fn is_due(&self) -> bool {
        !self.is_done && self.carried >= self.worth
    }

    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Notes that all of them are prepared.
    pub(super) const fn done(&mut self) {
        self.is_done = true;
    }

    /// Notes that the server refused to prepare them, or to run one of them. What was in the way may pass, such as a lock on a table. If it
    /// does not, as behind a pooler, each further try costs more than it brings, so the tries get rarer.
    pub(super) fn refused(&mut self) {
        *self = Self { is_done: false, carried: 0, worth: (self.worth * RARER).min(MOST) };
    }

    /// Whether some of them may be there from an earlier try.
    pub(super) const fn may_have_some(&self) -> bool {
        self.worth > WORTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_get_rarer_and_never_end() {
        let mut prepared = Prepared::default();
        for worth in [2, 16, 128, 1_024, 1_024] {
            for _ in 0..worth {
                assert!(!prepared.is_due(), "before {worth}");
                prepared.count();
            }
            assert!(prepared.is_due(), "after {worth}");
            prepared.refused();
        }
    }
}
