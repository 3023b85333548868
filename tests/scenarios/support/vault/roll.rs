//! What the rows of the sessions went through, seen from outside.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::machine::{Action, Batch, Monotonic, Records, Session, SessionId, SessionStep, StoreClock, Way};

use crate::support::ghost::short;

/// The memory of all sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct Roll {
    there: BTreeMap<SessionId, Seen>,
    ended: BTreeSet<SessionId>,
}

/// A row as the last commit left it.
#[derive(Clone, Debug)]
struct Seen {
    row: Session,
    beaten_at: Monotonic,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// Its own context ended it; or it was that of a detached lease which somebody took over.
    Own,
    /// Somebody had watched it stand still, or its beacon go.
    Evidence,
    /// By a clock that everybody shares.
    Clock,
}

/// When a transaction was applied, and by what kind of clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) at: Monotonic,
    pub(super) clock: StoreClock,
}

impl Roll {
    /// Those whose rows are there.
    pub(super) fn there(&self) -> impl Iterator<Item = SessionId> {
        self.there.keys().copied()
    }

    pub(super) fn is_there(&self, session: SessionId) -> bool {
        self.there.contains_key(&session)
    }

    /// Looks at a row that a commit changed; how it ended, if it did.
    pub(super) fn see(
        &mut self,
        id: SessionId,
        records: &Records,
        batch: &Batch,
        when: When,
    ) -> Result<Option<SessionEnd>, String> {
        let old = self.there.remove(&id);
        let Some(row) = records.session(id) else {
            let Some(old) = old else { return Ok(None) };
            self.ended.insert(id);
            let end = old.ended_by(id, batch, when);
            return end
                .map(Some)
                .ok_or_else(|| format!("the row of {:04x} went without a reason: {batch:?}", short(id)));
        };
        let beaten_at = match &old {
            Some(old) if old.row.beat == row.beat => old.beaten_at,
            _ => when.at,
        };
        let told = match &old {
            Some(old) => old.goes_on(id, row, batch),
            None if self.ended.contains(&id) => Err("came back".to_owned()),
            None if is_opened_by(id, batch) => Ok(()),
            None => Err("was not opened".to_owned()),
        };
        self.there.insert(id, Seen { row: row.clone(), beaten_at });
        told.map(|()| None).map_err(|wrong| format!("the session {:04x} {wrong}: {batch:?}", short(id)))
    }

    /// A row was deleted blindly. Whether it was there.
    pub(super) fn abandon(&mut self, id: SessionId) -> bool {
        self.there.remove(&id).is_some() && self.ended.insert(id)
    }
}

fn is_opened_by(id: SessionId, batch: &Batch) -> bool {
    let detached = |action: &Action| matches!(action, Action::Detach { to, .. } if *to == id);
    (batch.session == id && matches!(batch.step, SessionStep::Open { .. }))
        || batch.operations.iter().any(|operation| detached(&operation.action))
}

impl Seen {
    /// Whether the row may become this: only its own context beats it, and only a thief writes there too.
    fn goes_on(&self, id: SessionId, row: &Session, batch: &Batch) -> Result<(), String> {
        let beats = batch.session == id && batch.beat().is_some();
        if row.beat < self.row.beat || row.floor < self.row.floor {
            return Err(format!("went back from {:?} to {row:?}", self.row));
        }
        let same = (row.beat, row.lease_ms, row.beacon, row.floor)
            == (self.row.beat, self.row.lease_ms, self.row.beacon, self.row.floor);
        if !same && !beats {
            return Err("was beaten by another".to_owned());
        }
        let steals = |action: &Action| matches!(action, Action::Acquire(ask) if ask.way == Way::Steal);
        let robbed = row.robbed.len() > self.row.robbed.len();
        if !row.robbed.starts_with(&self.row.robbed) {
            return Err(format!("forgot that it was robbed: {:?}, {:?}", self.row.robbed, row.robbed));
        }
        if robbed && !batch.operations.iter().any(|operation| steals(&operation.action)) {
            return Err("was robbed by nobody".to_owned());
        }
        Ok(())
    }

    /// Who ends a session names the very beat that it had until this transaction.
    fn ended_by(&self, id: SessionId, batch: &Batch, when: When) -> Option<SessionEnd> {
        let beat = self.row.beat;
        let is_of_asker = id.0 & 0xff == batch.session.0 & 0xff;
        let closes = batch.session == id && batch.step == SessionStep::Close;
        let gives_up = batch.ends.iter().any(|ending| ending.session == id && ending.beat.is_none() && is_of_asker);
        let mut actions = batch.operations.iter().map(|operation| &operation.action);
        let taken_over = actions.any(|action| {
            matches!(action, Action::Acquire(ask) if matches!(ask.way, Way::Resume { from, .. } if from == id))
        });
        if closes || gives_up || taken_over {
            return Some(SessionEnd::Own);
        }
        let mut actions = batch.operations.iter().map(|operation| &operation.action);
        let evident = actions.any(|action| *action == Action::End { target: id, beat })
            || batch.ends.iter().any(|ending| ending.session == id && ending.beat == Some(beat));
        let over = when.clock == StoreClock::Trusted && when.at >= self.beaten_at.plus(self.row.lease_ms);
        if evident { Some(SessionEnd::Evidence) } else { over.then_some(SessionEnd::Clock) }
    }
}
