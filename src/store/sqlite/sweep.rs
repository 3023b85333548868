//! Idle records stay, so that a context can tell who held a key last. If there are very many, they are deleted.

use std::time::Duration;

use super::{
    failure::Trouble,
    rows::Rows,
    worker::{clock, patiently},
};
use crate::machine::{Batch, Key, SessionId, StoreNow};

/// Only a store with more records than this is swept.
const MANY: usize = 512;
/// How many records one transaction examines, while others wait for it.
const AT_ONCE: usize = 128;

/// How long a sweep waits for the write lock each time, while jobs wait.
const PATIENCE: Duration = Duration::from_millis(20);

/// How far a store was looked through: once, after its first transaction.
#[derive(Debug, Default)]
pub(super) enum Sweep {
    /// There was no transaction yet.
    #[default]
    Unbegun,
    /// It continues from this key, in the name of this session.
    From {
        key: String,
        session: SessionId,
        now: StoreNow,
    },
    Done,
}

impl Sweep {
    pub(super) fn is_due(&self) -> bool {
        matches!(self, Self::From { .. })
    }

    /// Call this after each transaction. The first one shows whether there are many records.
    pub(super) fn begin(&mut self, rows: &mut Rows<'_>, session: SessionId, now: StoreNow) {
        if matches!(self, Self::Unbegun) {
            let many = rows.keys("", MANY + 1).is_ok_and(|keys| keys.len() > MANY);
            *self = if many { Self::From { key: String::new(), session, now } } else { Self::Done };
        }
    }

    /// Forgets some. If that fails, they stay until the file is opened again.
    pub(super) fn go_on(&mut self, rows: &mut Rows<'_>) {
        let Self::From { key, session, now } = std::mem::replace(self, Self::Done) else { return };
        let key = match patiently(clock() + PATIENCE, || forget(rows, &key, session, now)) {
            Ok(Some(last)) => format!("{last}\0"),
            // Somebody else writes, so this tries again later.
            Err(Trouble::Busy(_)) => key,
            Ok(None) | Err(Trouble::Disk(_) | Trouble::Failed(_)) => return,
        };
        *self = Self::From { key, session, now };
    }
}

/// Forgets the unused among the next records, and says which was the last, if there are more.
fn forget(rows: &mut Rows<'_>, from: &str, session: SessionId, now: StoreNow) -> Result<Option<Key>, Trouble> {
    let keys = rows.keys(from, AT_ONCE)?;
    let last = keys.last().cloned();
    let mut batch = Batch::new(session, Vec::new());
    batch.forgets = keys;
    rows.transact(&batch, now, |_| false)?;
    Ok(last)
}
