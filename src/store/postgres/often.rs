//! The statements that nearly every transaction runs. Most of their time goes into parsing and planning. So they are prepared, by SQL's
//! `PREPARE`, on each connection that only this store uses, and are then run by their names.

use std::{string::String, vec};

use super::{carrier::Round, names::Names};

/// How often a connection must be lent before it is worth preparing them. A program that takes one lease and ends would not gain from it.
const WORTH: u32 = 3;

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
}

impl Often {
    const ALL: [Self; 6] =
        [Self::Lock, Self::Record, Self::Session, Self::Store, Self::WriteRecord, Self::WriteSession];

    /// The end of its name, and the types of its values.
    const fn signature(self) -> (&'static str, &'static str) {
        match self {
            Self::Lock => ("lock", "(bigint[])"),
            Self::Record => ("record", "(bytea)"),
            Self::Session => ("session", "(bytea)"),
            Self::Store => ("store", ""),
            Self::WriteRecord => ("write_record", "(bytea, text)"),
            Self::WriteSession => ("write_session", "(bytea, text)"),
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
        let write = |table: &str, column: &str| {
            let (table, name, text) = (names.table(table), value(0), value(1));
            format!(
                "INSERT INTO {table} ({column}, text) VALUES ({name}, {text}) \
                 ON CONFLICT ({column}) DO UPDATE SET text = excluded.text"
            )
        };
        match self {
            Self::Lock => format!("SELECT pg_advisory_xact_lock(number) FROM unnest({}) AS number", value(0)),
            Self::Record => read("record", "key"),
            Self::Session => read("session", "id"),
            Self::Store => format!("SELECT schema, text FROM {}", names.table("store")),
            Self::WriteRecord => write("record", "key"),
            Self::WriteSession => write("session", "id"),
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

/// Prepares and plans all of them. The tables may still be small, and will grow: so the plans are made to use their indexes. While
/// sequential scans are turned off, the server takes some plans for expensive, and would compile them to machine code at each run: so that
/// is turned off too.
pub(super) fn prepare(names: &Names) -> Round {
    let mut round = Round::default();
    round.add("BEGIN READ ONLY");
    for setting in ["enable_seqscan = off", "jit = off", "plan_cache_mode = force_generic_plan"] {
        round.add(&format!("SET LOCAL {setting}"));
    }
    for often in Often::ALL {
        let (end, types) = often.signature();
        let (name, text) = (names.prepared(end), often.text(names, &["$1", "$2"]));
        round.add(&format!("PREPARE {name}{types} AS {text}"));
        let no_values = vec!["NULL"; types.matches([',', '(']).count()];
        // This plans the statement, and keeps the plan, without running anything.
        round.add(&format!("EXPLAIN {}", often.call(names, &no_values)));
    }
    // A rollback undoes the settings, but not the prepared statements.
    round.add("ROLLBACK");
    round
}

/// What a connection has prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prepared {
    /// Nothing yet. It was lent this often.
    Not {
        lent: u32,
    },
    All,
    /// Nothing, for good: the server refused it.
    Never,
}

impl Default for Prepared {
    fn default() -> Self {
        Self::Not { lent: 0 }
    }
}

impl Prepared {
    /// Counts a loan, and says whether it is time to prepare.
    pub(super) const fn is_due(&mut self) -> bool {
        let Self::Not { lent } = self else { return false };
        *lent += 1;
        *lent >= WORTH
    }
}
