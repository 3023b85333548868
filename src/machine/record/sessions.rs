//! The session rows that a transaction knows of.

use alloc::vec::Vec;

use super::{
    config::LONGEST_LEASE_MS,
    id::SessionId,
    key::Key,
    operation::{Peer, StoreNow},
    session::{Beat, Session},
    sorted::SortedMap,
    token::Token,
};

/// So many other sessions are named to one that opens.
const PEERS: usize = 16;

/// Session rows by id: `None` for one that was looked for and is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sessions {
    rows: SortedMap<SessionId, Option<Session>>,
    /// Whoever is not among them does not exist. Else nobody knows, and nobody is taken for dead.
    complete: bool,
    changed: Vec<SessionId>,
}

impl Sessions {
    pub(super) const fn new(complete: bool) -> Self {
        Self { rows: SortedMap::new(), complete, changed: Vec::new() }
    }

    pub(super) fn load(&mut self, id: SessionId, row: Option<Session>) {
        self.rows.insert(id, row);
    }

    pub(super) fn are_complete(&mut self) {
        self.complete = true;
    }

    /// A row that is there and can be read.
    pub(super) fn get(&self, id: SessionId) -> Option<&Session> {
        self.rows.get(&id)?.as_ref()
    }

    /// One's own row. One that cannot be read is none: nobody else writes it.
    pub(super) fn own(&self, id: SessionId) -> Option<&Session> {
        self.get(id).filter(|row| !row.unreadable)
    }

    /// Whether a session has ended. Of one whose row was not read, nobody can say so.
    pub(super) fn has_ended(&self, id: SessionId) -> bool {
        match self.rows.get(&id) {
            Some(row) => row.is_none(),
            None => self.complete,
        }
    }

    /// Whether a session is over by a clock that everybody shares.
    pub(super) fn is_over(&self, id: SessionId, now: StoreNow) -> bool {
        self.get(id).is_some_and(|row| now.is_over(row.deadline))
    }

    /// What an onlooker sees of a session: its beat, its beacon, its lease in ms, and whether it is of this instance.
    pub(super) fn sight(&self, id: SessionId, instance: &str) -> (u64, bool, u64, bool) {
        match self.get(id) {
            Some(row) => (row.beat, row.beacon, row.lease_ms, !instance.is_empty() && row.instance == instance),
            None => (0, false, LONGEST_LEASE_MS, false),
        }
    }

    fn note(&mut self, id: SessionId) {
        if !self.changed.contains(&id) {
            self.changed.push(id);
        }
    }

    /// Inserts a row. Only an opening, and a lease that is detached, may do so.
    pub(super) fn open(&mut self, id: SessionId, row: Session) {
        self.rows.insert(id, Some(row));
        self.note(id);
    }

    /// Writes a heartbeat, if the row is there: nothing but an opening brings a session into being.
    pub(super) fn beat(&mut self, id: SessionId, beat: &Beat, now: StoreNow) {
        let row = self.rows.get_mut(&id).and_then(Option::as_mut).filter(|row| !row.unreadable);
        if row.is_some_and(|row| row.take(beat, now.wall, now.deadline(beat.lease_ms))) {
            self.note(id);
        }
    }

    /// Deletes a row. The session has ended.
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

    /// Notes in the victim's row that a grant was stolen from it.
    pub(super) fn rob(&mut self, victim: SessionId, key: &Key, token: Token) {
        if let Some(row) = self.rows.get_mut(&victim).and_then(Option::as_mut).filter(|row| !row.unreadable) {
            row.robbed.push((key.clone(), token));
            self.note(victim);
        }
    }

    /// Whether this grant was stolen from the session.
    pub(super) fn was_robbed(&self, id: SessionId, key: &Key, token: Token) -> bool {
        self.get(id).is_some_and(|row| row.robbed.iter().any(|(known, robbed)| (known, *robbed) == (key, token)))
    }

    /// Some of the other sessions, for whoever opens one to watch: those that nobody ended must go too.
    pub(super) fn peers_of(&self, id: SessionId) -> Vec<Peer> {
        let mut peers = Vec::new();
        for (session, row) in self.rows.iter() {
            if let Some(row) = row.as_ref().filter(|_| *session != id && peers.len() < PEERS) {
                peers.push(Peer { session: *session, beat: row.beat, lease_ms: row.lease_ms });
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
