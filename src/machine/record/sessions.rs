//! The session rows that a transaction has read.

use alloc::vec::Vec;

use super::{
    codec::Unreadable,
    config::LONGEST_SILENCE_MS,
    id::{RequestId, SessionId},
    key::Key,
    operation::{Peer, StoreNow},
    session::{Beat, Session, Stolen},
    sorted::SortedMap,
    token::Token,
};

/// How many other sessions the answer names to a session that opens.
pub(super) const PEERS: usize = 4;

/// Session rows by id: `None` for a row that was looked for and does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sessions {
    rows: SortedMap<SessionId, Option<Session>>,
    /// Whether these are all rows of the store, so that any other session has ended. If not, a session whose row was not read may be alive.
    complete: bool,
    changed: Vec<SessionId>,
}

impl Sessions {
    pub(super) const fn new(complete: bool) -> Self {
        Self { rows: SortedMap::new(), complete, changed: Vec::new() }
    }

    /// Whether no row has been read.
    pub(super) fn is_unread(&self) -> bool {
        self.rows.is_empty() && !self.complete
    }

    pub(super) fn load(&mut self, id: SessionId, row: Option<Session>) {
        self.rows.insert(id, row);
    }

    pub(super) fn are_complete(&mut self) {
        self.complete = true;
    }

    /// The row of a session, if it exists, even if it cannot be read.
    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        self.rows.get(&id)?.as_ref()
    }

    /// The sender's own row, if it exists and can be read.
    pub(super) fn own(&self, id: SessionId) -> Option<&Session> {
        self.get(id).filter(|row| row.unreadable.is_none())
    }

    /// Whether a session has certainly ended. It may be alive if its row was not read.
    // Protocol: docs/protocol.md#s16.
    pub(super) fn has_ended(&self, id: SessionId) -> bool {
        match self.rows.get(&id) {
            Some(row) => row.is_none(),
            None => self.complete,
        }
    }

    /// Whether a session has expired by a trusted clock.
    pub(super) fn is_over(&self, id: SessionId, now: StoreNow) -> bool {
        self.get(id).is_some_and(|row| now.is_over(row.deadline))
    }

    /// What others see of a session: its beat, its beacon, its lease in ms, and whether it has this instance name.
    pub(super) fn sight(&self, id: SessionId, instance: &str) -> (u64, bool, u64, bool) {
        match self.get(id) {
            Some(row) => (row.beat, row.beacon, row.lease_ms, !instance.is_empty() && row.instance == instance),
            None => (0, false, LONGEST_SILENCE_MS, false),
        }
    }

    fn note(&mut self, id: SessionId) {
        if !self.changed.contains(&id) {
            self.changed.push(id);
        }
    }

    /// Inserts a row. Only the opening of a session and the detaching of a lease may do so.
    pub(super) fn open(&mut self, id: SessionId, row: Session) {
        self.rows.insert(id, Some(row));
        self.note(id);
    }

    /// Writes a heartbeat if the row exists. It never creates the row.
    // Protocol: docs/protocol.md#s2.
    pub(super) fn beat(&mut self, id: SessionId, beat: &Beat, now: StoreNow) {
        let row = self.readable_mut(id);
        if row.is_some_and(|row| row.take(beat, now.wall, now.deadline(beat.lease_ms))) {
            self.note(id);
        }
    }

    /// Deletes a row, which ends the session.
    pub(super) fn end(&mut self, id: SessionId) {
        if self.has_ended(id) {
            return;
        }
        if self.complete {
            self.rows.remove(&id);
        } else {
            self.rows.insert(id, None);
        }
        self.note(id);
    }

    fn readable_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.rows.get_mut(&id).and_then(Option::as_mut).filter(|row| row.unreadable.is_none())
    }

    /// Why a session's row cannot be written, if it cannot be read.
    pub(super) fn unreadable(&self, id: SessionId) -> Option<Unreadable> {
        match self.get(id) {
            Some(row) => row.unreadable,
            None => (!self.has_ended(id)).then_some(Unreadable::Corrupt),
        }
    }

    /// Notes in the victim's row that a grant was stolen from it.
    pub(super) fn rob(&mut self, victim: SessionId, stolen: Stolen) {
        if let Some(row) = self.readable_mut(victim) {
            row.robbed.push(stolen);
            self.note(victim);
        }
    }

    /// Whether this grant was stolen from the session.
    pub(super) fn was_robbed(&self, id: SessionId, key: &Key, token: Token) -> bool {
        self.stolen_from(id, key).any(|stolen| stolen.token == token)
    }

    /// Whether the grant of this request was stolen from the session.
    pub(super) fn was_robbed_of(&self, id: SessionId, key: &Key, request: RequestId) -> bool {
        self.stolen_from(id, key).any(|stolen| stolen.request == request)
    }

    fn stolen_from(&self, id: SessionId, key: &Key) -> impl Iterator<Item = &Stolen> {
        let robbed = self.get(id).map_or(&[][..], |row| &row.robbed);
        robbed.iter().filter(move |stolen| stolen.key == *key)
    }

    /// Some of the other sessions, for a session that opens to watch, so that dead ones end even if they block nobody. They are those whose
    /// ids follow its own, so that each session is watched by some other one.
    // Protocol: docs/protocol.md#s3.
    pub(super) fn peers_of(&self, id: SessionId) -> Vec<Peer> {
        let mut peers = Vec::new();
        let following = self.rows.from(|session| *session <= id).map(|(session, row)| (session, row));
        for (session, row) in following.chain(self.rows.iter().take_while(|(session, _)| **session <= id)) {
            let Some(row) = row.as_ref().filter(|row| *session != id && row.unreadable.is_none()) else { continue };
            peers.push(Peer { session: *session, beat: row.beat, lease_ms: row.lease_ms });
            if peers.len() == PEERS {
                break;
            }
        }
        peers
    }

    pub(super) fn forget_changes(&mut self) {
        self.changed.clear();
    }

    pub(super) fn take_changed(&mut self) -> Vec<SessionId> {
        core::mem::take(&mut self.changed)
    }
}
