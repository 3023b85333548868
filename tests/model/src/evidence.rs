//! The rows of the sessions, and what each context saw of them: whoever ends a session must have a reason.

use leasehold::machine::{Action, Batch, Operation, Outcome, Records, Reply, SessionId, SessionStep, StoreClock, Way};

use crate::{ledger::Scene, port};

/// The rows of the sessions, and who saw them stand still.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// The rows that are there.
    pub rows: Vec<RowView>,
    /// All sessions that ever had a row.
    pub opened: Vec<SessionId>,
    /// Who read which of those rows.
    pub reads: Vec<Read>,
}

/// The row of a session, as far as the model looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowView {
    /// Whose row it is.
    pub session: SessionId,
    /// Its beat.
    pub beat: u64,
    /// Whether it says that the session's beacon stands.
    pub beacon: bool,
    /// For how long the session may be silent, in ms.
    pub lease_ms: u64,
    /// Since when it stands still.
    pub since_ms: u64,
}

/// A context read a row that still stands as it did then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Read {
    /// Which context.
    pub who: usize,
    /// Whose row.
    pub session: SessionId,
    /// The beat that it read.
    pub beat: u64,
    /// Whether it read that the session's beacon stands.
    pub beacon: bool,
    /// When it read that beat for the first time.
    pub at_ms: u64,
    /// Whether it saw, after that, that the beacon is gone, and it was.
    pub gone: bool,
}

impl Evidence {
    /// Whether every session that a part of a batch ended could be ended by it.
    pub fn justifies(&self, part: &Batch, records: &Records, scene: &Scene<'_>) -> bool {
        let mut ended = self.rows.iter().filter(|row| records.session(row.session).is_none());
        ended.all(|row| {
            let still_ms = scene.now_ms - row.since_ms;
            let over = scene.configuration.clock == StoreClock::Trusted && still_ms >= row.lease_ms;
            over || is_own(part, row, scene.who) || (names(part, row) && self.is_evident(row, scene))
        })
    }

    /// Whether who asks saw that a session is dead or silent: from after it read the row as it stands now.
    fn is_evident(&self, row: &RowView, scene: &Scene<'_>) -> bool {
        let same = |read: &&Read| (read.who, read.session, read.beat) == (scene.who, row.session, row.beat);
        let silence_ms = scene.configuration.silence_ms(row.lease_ms);
        self.reads.iter().find(same).is_some_and(|read| read.gone || scene.now_ms - read.at_ms >= silence_ms)
    }

    /// Notes which rows are there now. Whether none came back.
    pub fn note(&mut self, part: &Batch, records: &Records, now_ms: u64) -> bool {
        let mut fresh = true;
        let old = core::mem::take(&mut self.rows);
        let opens = |session| part.session == session && matches!(part.step, SessionStep::Open { .. });
        let stands = |session| old.iter().any(|known| known.session == session);
        for session in inserted(part).filter(|session| records.session(*session).is_some()) {
            // A detachment that is tried again finds what it did.
            if opens(session) || !stands(session) {
                fresh &= !self.opened.contains(&session);
                self.opened.push(session);
            }
        }
        for &session in &self.opened {
            let Some(row) = records.session(session) else { continue };
            let known = old.iter().find(|known| (known.session, known.beat) == (session, row.beat));
            let since_ms = known.map_or(now_ms, |known| known.since_ms);
            fresh &= stands(session) || inserted(part).any(|new| new == session);
            let (beat, beacon, lease_ms) = (row.beat, row.beacon, row.lease_ms);
            self.rows.push(RowView { session, beat, beacon, lease_ms, since_ms });
        }
        self.forget(records);
        fresh
    }

    /// Forgets rows that are gone, and what was read of rows that stand otherwise now.
    pub fn forget(&mut self, records: &Records) {
        self.rows.retain(|row| records.session(row.session).is_some());
        let rows = &self.rows;
        self.reads.retain(|read| rows.iter().any(|row| (row.session, row.beat) == (read.session, read.beat)));
    }

    /// A context reads an answer.
    pub fn read(&mut self, who: usize, reply: &Reply, at_ms: u64) {
        for answer in &reply.answers {
            let seen = match &answer.outcome {
                Outcome::Waiting { ahead, .. }
                | Outcome::Looked { ahead, .. }
                | Outcome::Busy { ahead }
                | Outcome::UpgradeConflict { ahead } => ahead.clone(),
                Outcome::BusyAll(all) => all.concat(),
                _ => continue,
            };
            for seen in seen {
                self.read_row(Read {
                    who,
                    session: seen.holder,
                    beat: seen.beat,
                    beacon: seen.beacon,
                    at_ms,
                    gone: false,
                });
            }
        }
        for peer in &reply.peers {
            self.read_row(Read { who, session: peer.session, beat: peer.beat, beacon: false, at_ms, gone: false });
        }
    }

    fn read_row(&mut self, read: Read) {
        let same = |known: &&mut Read| (known.who, known.session, known.beat) == (read.who, read.session, read.beat);
        match self.reads.iter_mut().find(same) {
            Some(known) => known.beacon |= read.beacon,
            None if self.rows.iter().any(|row| (row.session, row.beat) == (read.session, read.beat)) => {
                self.reads.push(read);
            }
            None => {}
        }
    }

    /// A context sees that a beacon is gone. That says something only about a row that it read, and that named it.
    pub fn sees_gone(&mut self, who: usize, session: SessionId) {
        let condemned = self.reads.iter_mut().filter(|read| (read.who, read.session) == (who, session) && read.beacon);
        condemned.for_each(|read| read.gone = true);
    }
}

/// Whether a part of a batch ends its own session, an earlier one of the same context, or one that was left for it.
fn is_own(part: &Batch, row: &RowView, who: usize) -> bool {
    let closes = part.step == SessionStep::Close && part.session == row.session;
    let mut ends = part.ends.iter().filter(|ending| ending.session == row.session && ending.beat.is_none());
    let resumes = |operation: &Operation| match &operation.action {
        Action::Acquire(ask) => matches!(ask.way, Way::Resume { from, .. } if from == row.session),
        _ => false,
    };
    closes || (port::number_of(row.session) == who && ends.next().is_some()) || part.operations.iter().any(resumes)
}

/// Whether a part of a batch ends the session by name, with the beat that its row has.
fn names(part: &Batch, row: &RowView) -> bool {
    let ends = part.ends.iter().any(|ending| (ending.session, ending.beat) == (row.session, Some(row.beat)));
    let ends_by = |operation: &Operation| matches!(operation.action, Action::End { target, beat } if (target, beat) == (row.session, row.beat));
    ends || part.operations.iter().any(ends_by)
}

/// The sessions that a part of a batch may bring into being.
fn inserted(part: &Batch) -> impl Iterator<Item = SessionId> {
    let opens = matches!(part.step, SessionStep::Open { .. }).then_some(part.session);
    let detached = part.operations.iter().filter_map(|operation| match operation.action {
        Action::Detach { to, .. } => Some(to),
        _ => None,
    });
    opens.into_iter().chain(detached)
}
