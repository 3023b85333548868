//! The entries that a request sees ahead of it, with what their sessions show of their life.

use alloc::vec::Vec;

use super::{
    Entry, Sighting, Waiter,
    id::{RequestId, SessionId},
    operation::{Acquire, Outcome, Promotion},
    rank,
    records::NEAREST,
    token::Token,
    transition::Transition,
};

impl Transition<'_> {
    /// The entries that keep a request from being granted at once, if there are any.
    pub(super) fn obstacles(&self, ask: &Acquire) -> Option<Vec<Sighting>> {
        if self.own_grant(ask.request).is_some() {
            return None;
        }
        let ahead = self.ahead_of(ask);
        let queued = ahead.iter().any(|seen| matches!(seen.entry, Entry::Waiter(_)));
        let fits = self.fits(self.holder, ask.mode, ask.upgrades());
        (queued || !fits).then_some(ahead)
    }

    /// Reads the state of all requests of a session. Only the first of them has entries of others right ahead of it.
    pub(super) fn look(&mut self) -> Outcome {
        self.promote();
        for grant in self.record.grants.iter().filter(|grant| grant.holder == self.holder) {
            if self.promoted.iter().all(|promotion| promotion.block != grant.block) {
                self.promoted.push(Promotion::of(self.key, grant));
            }
        }
        let own = |waiter: &Waiter| waiter.holder == self.holder;
        let first = self.record.queue.iter().position(own).map(|place| self.sweep_before(place));
        let (mut requests, mut ahead) = (Vec::new(), Vec::new());
        for waiter in self.record.queue.iter().filter(|waiter| waiter.holder == self.holder) {
            requests.push(waiter.request);
        }
        if let Some(place) = first {
            let upgrades = self.record.queue[place].upgrades;
            self.sight_grants(upgrades, &mut ahead);
        }
        // A holder that is not in the queue asks who keeps its next requests from joining.
        self.sight_waiters(first.unwrap_or(self.record.queue.len()), &mut ahead);
        Outcome::Looked { requests, last_token: self.record.last_token, ahead }
    }

    /// The entries that are ahead of a request, or would be if it queued now: all grants, and the nearest waiters.
    pub(super) fn ahead_of(&self, ask: &Acquire) -> Vec<Sighting> {
        let mut ahead = Vec::new();
        self.sight_grants(ask.upgrades(), &mut ahead);
        let is_own = |waiter: &Waiter| self.is_own_place(waiter, ask.request);
        // Searched from the end, because most requests ask right after they have queued there.
        let own = self.record.queue.iter().rposition(is_own);
        let last = own.unwrap_or_else(|| self.place_of(rank(ask.upgrades(), ask.priority, self.record.revision)));
        self.sight_waiters(last, &mut ahead);
        ahead
    }

    /// Adds all grants, except the one that the request upgrades.
    fn sight_grants(&self, given: Option<Token>, ahead: &mut Vec<Sighting>) {
        for grant in &self.record.grants {
            let first = grant.block.first;
            if grant.holder != self.holder || Some(first) != given {
                ahead.push(self.sight(grant.holder, Entry::Grant(first), grant.request));
            }
        }
    }

    /// Adds the nearest waiters ahead of this position.
    fn sight_waiters(&self, place: usize, ahead: &mut Vec<Sighting>) {
        for waiter in &self.record.queue[place.saturating_sub(NEAREST)..place] {
            ahead.push(self.sight(waiter.holder, Entry::Waiter(waiter.request), waiter.request));
        }
    }

    fn sight(&self, holder: SessionId, entry: Entry, request: RequestId) -> Sighting {
        let instance = self.sessions.own(self.holder).map_or("", |row| &row.instance);
        let (beat, beacon, lease_ms, same_instance) = self.sessions.sight(holder, instance);
        let twin = same_instance && holder != self.holder && matches!(entry, Entry::Grant(_));
        Sighting { holder, entry, request, beat, beacon, lease_ms, twin }
    }
}
