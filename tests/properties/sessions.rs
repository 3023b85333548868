//! Sessions as the protocol tells of them: what the rows must be, kept apart from the code under test.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::machine::{
    Action, Answer, Batch, Beat, Key, Monotonic, Outcome, Session, SessionId, SessionStep, StoreNow, Token, Way,
};

use crate::shop::View;

/// A row, as it must be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) beat: u64,
    beacon: bool,
    lease_ms: u64,
    instance: String,
    pub(crate) floor: u64,
    heard_at: u64,
    pub(crate) robbed: Vec<(Key, Token)>,
    deadline: Option<Monotonic>,
}

/// All rows, as they must be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    rows: BTreeMap<SessionId, Row>,
    inserted: BTreeSet<SessionId>,
}

impl Row {
    fn take(&mut self, beat: &Beat, now: StoreNow) {
        self.floor = self.floor.max(beat.floor);
        // S13: an older beat is ignored.
        if beat.beat > self.beat {
            (self.beat, self.beacon, self.lease_ms) = (beat.beat, beat.beacon, beat.lease_ms);
            self.heard_at = now.wall.as_ms();
            self.deadline = now.trusted.map(|trusted| trusted.plus(beat.lease_ms));
        }
    }

    fn is_over(&self, now: StoreNow) -> bool {
        matches!((now.trusted, self.deadline), (Some(now), Some(deadline)) if deadline <= now)
    }
}

impl Rows {
    pub(crate) fn get(&self, session: SessionId) -> Option<&Row> {
        self.rows.get(&session)
    }

    pub(crate) fn end(&mut self, session: SessionId) {
        self.rows.remove(&session);
    }

    /// Whether a session counts for nothing to whoever asks.
    pub(crate) fn has_ended(&self, session: SessionId, asker: SessionId, now: StoreNow) -> bool {
        self.rows.get(&session).is_none_or(|row| session != asker && row.is_over(now))
    }

    fn insert(&mut self, session: SessionId, row: Row) {
        assert!(self.inserted.insert(session), "S1: a session is brought into being once: {session}");
        self.rows.insert(session, row);
    }

    /// What a batch does to the rows before its operations.
    pub(crate) fn begin(&mut self, batch: &Batch, now: StoreNow) {
        for ending in &batch.ends {
            let moved = |row: &Row| ending.beat.is_some_and(|beat| beat != row.beat);
            if !self.rows.get(&ending.session).is_some_and(moved) {
                self.end(ending.session);
            }
        }
        match &batch.step {
            SessionStep::Open { beat, instance } => {
                let mut row = Row { instance: instance.clone(), ..Row::default() };
                row.take(beat, now);
                self.insert(batch.session, row);
            }
            // S2: nothing but an opening inserts.
            SessionStep::Beat(beat) => drop(self.rows.get_mut(&batch.session).map(|row| row.take(beat, now))),
            SessionStep::Stay | SessionStep::Close => {}
        }
    }

    /// What an operation does to the rows.
    pub(crate) fn operate(&mut self, batch: &Batch, answer: &Answer, before: &View, now: StoreNow) {
        let operation = &batch.operations[0];
        let holds = |holder: SessionId, token: Token| {
            let record = before.records.get(&operation.key).and_then(Option::as_ref);
            record.is_some_and(|record| {
                record.grants.iter().any(|grant| (grant.holder, grant.block.first) == (holder, token))
            })
        };
        match (&operation.action, &answer.outcome) {
            (Action::End { target, .. }, Outcome::Ended) => self.end(*target),
            (Action::Detach { token, to, lease_ms, .. }, Outcome::Detached) if !holds(*to, *token) => {
                let instance = self.get(batch.session).map_or_else(String::new, |row| row.instance.clone());
                let mut row = Row { instance, ..Row::default() };
                row.take(&Beat { beat: 1, beacon: false, lease_ms: *lease_ms, floor: 0 }, now);
                self.insert(*to, row);
            }
            (Action::Acquire(ask), Outcome::Granted(_)) => match ask.way {
                Way::Resume { from, token, .. } if holds(from, token) => self.end(from),
                _ => {}
            },
            _ => {}
        }
        for (victim, token) in &answer.robbed {
            // S8: the list is never cut.
            if let Some(row) = self.rows.get_mut(victim) {
                row.robbed.push((operation.key.clone(), *token));
            }
        }
    }

    /// What a batch does to the rows after its operations, and what a trusted clock did meanwhile.
    pub(crate) fn finish(&mut self, batch: &Batch, after: &View, now: StoreNow) {
        self.rows.retain(|session, row| {
            after.sessions.contains_key(session) || *session == batch.session || !row.is_over(now)
        });
        if batch.step == SessionStep::Close {
            self.end(batch.session);
        }
        self.stand_in(after);
    }

    /// Panics unless the rows of a store are these.
    pub(crate) fn stand_in(&self, view: &View) {
        let ids = |view: &View| view.sessions.keys().copied().collect::<Vec<_>>();
        assert_eq!(ids(view), self.rows.keys().copied().collect::<Vec<_>>(), "just these sessions are not ended");
        for (session, row) in &self.rows {
            assert_eq!(seen(&view.sessions[session]), Row { deadline: None, ..row.clone() }, "the row of {session}");
        }
    }
}

fn seen(session: &Session) -> Row {
    Row {
        beat: session.beat,
        beacon: session.beacon,
        lease_ms: session.lease_ms,
        instance: session.instance.clone(),
        floor: session.floor,
        heard_at: session.heard_at.as_ms(),
        robbed: session.robbed(),
        deadline: None,
    }
}
