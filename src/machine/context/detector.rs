//! The failure detector. It watches the sessions ahead: by their beacons if they have any, else by whether their heartbeats stop.

use alloc::vec::Vec;
use core::slice;

use super::{
    Entry, Machine, Sighting,
    cohort::Cohort,
    cohorts::Cohorts,
    config::silence_ms,
    id::{RequestId, SessionId},
    input::Slot,
    key::Key,
    pending::PendingOperation,
    record::Action,
    sorted::SortedMap,
    store_queue::Endings,
    time::{Monotonic, earliest},
    token::Token,
};

/// How many sessions, apart from those ahead, are remembered between calls, so that a `try` can judge without waiting.
const REMEMBERED: usize = 256;

/// What was seen of each session, and since when it has not changed, counted from the moment after it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Observations {
    seen: SortedMap<SessionId, Observation>,
    /// Up to this many sessions, none is forgotten, because it takes time to find those that are ahead.
    tolerated: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observation {
    beat: u64,
    lease_ms: u64,
    since: Monotonic,
    read_at: Monotonic,
    /// The key at which it was seen last.
    key: Key,
}

impl Observation {
    /// When the session will have been silent for too long.
    // Protocol: docs/protocol.md#s4.
    fn silent_at(&self) -> Monotonic {
        self.since.plus(silence_ms(self.lease_ms))
    }
}

impl Observations {
    /// When the first of the sessions ahead will have been silent for too long, except those that are already being ended.
    pub(super) fn next_judgement(&self, slot: &Slot, cohort: &Cohort, endings: &Endings<'_>) -> Option<Monotonic> {
        // A request that only tries has no place in the queue, and ends without waiting.
        let waits = cohort.seeking().map_or_else(|| cohort.waits(), |seeking| seeking.queued);
        if !waits || cohort.ahead.is_empty() || endings.include(slot) {
            return None;
        }
        let mut next = None;
        for holder in &cohort.ahead.holders {
            next = earliest(&[next, self.seen.get(holder).map(Observation::silent_at)]);
        }
        next
    }

    /// Any new beat restarts the wait. What was seen of a session at one key counts at every other key.
    // Protocol: docs/protocol.md#s4.
    fn update(&mut self, seen: &Sighting, key: &Key, now: Monotonic) {
        let Sighting { beat, lease_ms, .. } = *seen;
        match self.seen.get_mut(&seen.holder) {
            Some(known) if known.beat == beat => {
                known.read_at = now;
                known.key.clone_from(key);
            }
            _ => self
                .seen
                .insert(seen.holder, Observation { beat, lease_ms, since: now, read_at: now, key: key.clone() }),
        }
    }

    /// Forgets what was seen of a session, because it has ended or sent a heartbeat since, or because the store cannot end it. If it still
    /// exists, a new watch begins.
    pub(super) fn forget(&mut self, target: SessionId) {
        self.seen.remove(&target);
    }

    /// Forgets the sessions that were read longest ago, until at most `most` are left beside those that stand ahead. A session that stands
    /// ahead is kept, because nobody would notice its silence otherwise. The more sessions stand ahead, the longer this takes, and the more
    /// are tolerated until it is done again.
    fn forget_beyond(&mut self, most: usize, cohorts: &Cohorts) {
        self.tolerated = self.tolerated.saturating_sub(1);
        if self.seen.len() <= self.tolerated.max(most) {
            return;
        }
        let mut ahead = SortedMap::<_, ()>::new();
        for each in cohorts.ahead() {
            each.holders.iter().for_each(|session| ahead.insert(*session, ()));
        }
        let mut others = SortedMap::<_, ()>::new();
        for (session, seen) in self.seen.iter().filter(|(session, _)| !ahead.contains_key(session)) {
            others.insert((seen.read_at, *session), ());
        }
        for (_, session) in others.keys().take(others.len().saturating_sub(most)) {
            self.seen.remove(session);
        }
        self.tolerated = most + ahead.len() + ahead.len() / 4;
    }

    /// The sessions ahead that have been silent for too long. Unlike [`silent_at`](Self::silent_at), it looks at nobody else: thousands of
    /// requests may be due at once.
    fn silent_among<'a>(
        &'a self,
        ahead: &'a [SessionId],
        now: Monotonic,
    ) -> impl Iterator<Item = (SessionId, u64)> + 'a {
        ahead.iter().enumerate().filter_map(move |(at, session)| {
            let seen = self.seen.get(session).filter(|seen| seen.silent_at() <= now)?;
            // A session may occur there twice.
            (!ahead[..at].contains(session)).then_some((*session, seen.beat))
        })
    }

    /// The sessions that were seen last at a key, or are ahead there, and have been silent for too long.
    fn silent_at(&self, key: &Key, ahead: &[SessionId], now: Monotonic) -> Vec<(SessionId, u64)> {
        let mut silent = Vec::new();
        // The time is compared first, because most sessions are alive, and a comparison of keys takes longer.
        for (session, seen) in self.seen.iter().filter(|(_, seen)| seen.silent_at() <= now) {
            if seen.key == *key || ahead.contains(session) {
                silent.push((*session, seen.beat));
            }
        }
        silent
    }
}

/// The sessions that were ahead of a request in its latest answer. Every context that waits stores this, so it holds only what is needed
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ahead {
    holders: Vec<SessionId>,
    /// The sessions right ahead of the request. Their beacons are watched, if they have any.
    nearest: Vec<Neighbour>,
}

/// A session right ahead of a request, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Neighbour {
    pub(super) session: SessionId,
    pub(super) beat: u64,
    pub(super) beacon: bool,
}

impl Ahead {
    /// The nearest are the waiter right ahead, or the grants if there is none. If it dies, those ahead of it become the nearest. If all
    /// were watched, each grant that ends would wake the whole queue. A twin is watched wherever it is.
    fn of(ahead: &[Sighting]) -> Self {
        let is_grant = |seen: &Sighting| matches!(seen.entry, Entry::Grant(_));
        let first = ahead.iter().all(is_grant);
        let (mut holders, mut nearest) = (Vec::with_capacity(ahead.len()), Vec::new());
        for (index, seen) in ahead.iter().enumerate() {
            holders.push(seen.holder);
            if seen.twin || if first { is_grant(seen) } else { index + 1 == ahead.len() } {
                nearest.push(Neighbour { session: seen.holder, beat: seen.beat, beacon: seen.beacon });
            }
        }
        nearest.shrink_to_fit();
        Self { holders, nearest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    pub(super) fn nearest(&self) -> &[Neighbour] {
        &self.nearest
    }
}

impl Machine {
    /// Notes which sessions are ahead of this context, and releases its own stray grants among them.
    pub(super) fn observe(&mut self, slot: &Slot, ahead: &[Sighting], now: Monotonic) {
        let me = self.session.id();
        for seen in ahead.iter().filter(|seen| seen.holder != me) {
            self.observed.update(seen, &slot.key, now);
        }
        if let Some(cohort) = self.cohorts.change(slot) {
            cohort.ahead = Ahead::of(ahead);
        }
        self.observed.forget_beyond(REMEMBERED.max(ahead.len()), &self.cohorts);
        self.watches.neighbours_changed(slot);
        for seen in ahead.iter().filter(|seen| seen.holder == me) {
            if let Entry::Grant(token) = seen.entry {
                self.release_if_stray(slot, token, seen.request, now);
            }
        }
    }

    /// Releases a grant of this session that no request here knows. But the next answer or a message may still report the grant of a
    /// request under way.
    // Protocol: docs/protocol.md#s11.
    fn release_if_stray(&mut self, slot: &Slot, token: Token, request: RequestId, now: Monotonic) {
        if !self.knows_grant(&slot.key, token) && !self.knows(&slot.key, request) {
            self.store_queue.push(slot, Action::Release { token, request }, None, now);
        }
    }

    /// Whether a grant is held here, or on its way to another guard.
    pub(super) fn knows_grant(&self, key: &Key, token: Token) -> bool {
        let resumes = |cohort: &Cohort| cohort.seeking().is_some_and(|seeking| seeking.resumes(token));
        let holds = |cohort: &Cohort| cohort.held().is_some_and(|held| held.grant == token);
        self.detached_at(key, token).is_some()
            || !self.cohorts.pick(Some(key), &|_, cohort| holds(cohort) || resumes(cohort)).is_empty()
    }

    pub(super) fn detached_at(&self, key: &Key, token: Token) -> Option<usize> {
        self.detached.iter().position(|detached| (&detached.key, detached.token) == (key, token))
    }

    pub(super) fn judge_silent(&mut self, slots: &[Slot], now: Monotonic) {
        if slots.is_empty() {
            return;
        }
        let endings = self.store_queue.endings(slots.len());
        let (mut silent, mut ends) = (Vec::new(), Vec::new());
        for slot in slots {
            let Some(cohort) = self.cohorts.get(slot) else { continue };
            if self.observed.next_judgement(slot, cohort, &endings).is_none_or(|at| at > now) {
                continue;
            }
            silent.push(slot.clone());
            // No session is being ended for this slot yet, so the queue need not be searched.
            for (target, beat) in self.observed.silent_among(&cohort.ahead.holders, now) {
                ends.push(PendingOperation::new(slot, Action::End { target, beat }, None, now));
            }
        }
        self.store_queue.put_first(ends);
        self.look_at_each(&silent, now);
    }

    /// Ends the sessions ahead of a slot that count as dead, because they have been silent for a lease and a margin by this context's own
    /// clock.
    pub(super) fn end_silent(&mut self, slot: &Slot, now: Monotonic) {
        let ahead = self.cohorts.get(slot).map_or(&[][..], |cohort| &cohort.ahead.holders);
        for (target, beat) in self.observed.silent_at(&slot.key, ahead, now) {
            self.store_queue.end_session(slice::from_ref(slot), target, beat, now);
        }
    }

    /// These sessions have ended themselves. The requests right behind them look, and find them gone.
    // Protocol: docs/protocol.md#s14.
    pub(super) fn look_past(&mut self, gone: &[SessionId], now: Monotonic) {
        if !gone.is_empty() {
            let is_behind = |cohort: &Cohort| cohort.ahead.nearest().iter().any(|near| gone.contains(&near.session));
            let slots = self.cohorts.pick(None, &|_, cohort| cohort.waits() && is_behind(cohort));
            self.look_at_each(&slots, now);
        }
    }
}
