//! Whom a request sees before it, and what they show of their life.

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
    /// Who keeps a request from being granted at once, if anybody does.
    pub(super) fn obstacles(&self, ask: &Acquire) -> Option<Vec<Sighting>> {
        if self.own_grant(ask.request).is_some() {
            return None;
        }
        let ahead = self.ahead_of(ask);
        let queued = ahead.iter().any(|seen| matches!(seen.entry, Entry::Waiter(_)));
        let fits = self.fits(self.holder, ask.mode, ask.upgrades());
        (queued || !fits).then_some(ahead)
    }

    /// One look for all requests of a session: only the foremost has somebody else before it.
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
        // A holder without a place looks for those who keep its next requests from joining.
        self.sight_waiters(first.unwrap_or(self.record.queue.len()), &mut ahead);
        Outcome::Looked { requests, last_token: self.record.last_token, ahead }
    }

    /// Who stands before a request, or would if it queued now: all who hold the key, and the nearest who wait.
    pub(super) fn ahead_of(&self, ask: &Acquire) -> Vec<Sighting> {
        let mut ahead = Vec::new();
        self.sight_grants(ask.upgrades(), &mut ahead);
        let is_own = |waiter: &Waiter| self.is_own_place(waiter, ask.request);
        // A place is asked for mostly when it was just taken: at the end.
        let own = self.record.queue.iter().rposition(is_own);
        let last = own.unwrap_or_else(|| self.place_of(rank(ask.upgrades(), ask.priority, self.record.revision)));
        self.sight_waiters(last, &mut ahead);
        ahead
    }

    /// Sees who holds the key, but for the grant that its own holder gives for another.
    fn sight_grants(&self, given: Option<Token>, ahead: &mut Vec<Sighting>) {
        for grant in &self.record.grants {
            let first = grant.block.first;
            if grant.holder != self.holder || Some(first) != given {
                ahead.push(self.sight(grant.holder, Entry::Grant(first), grant.request));
            }
        }
    }

    /// Sees the nearest who wait before this place.
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
