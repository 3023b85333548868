//! Watching whoever stands ahead: by beacons where there are some, else by watching them stand still.

use alloc::vec::Vec;

use super::{
    Machine,
    config::silence_ms,
    id::{Beacon, Incarnation, RequestId},
    operation::Action,
    outbox::Outbox,
    place::Place,
    port::{Output, Slot},
    record::{Entry, Sighting},
    sorted::SortedMap,
    time::{Monotonic, earliest},
    token::Token,
};

/// Slots whose sightings are remembered between calls, so that a `try` can judge without waiting.
const REMEMBERED: usize = 256;

/// What was seen at each slot, and since when it stands still: from after it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Observations(SortedMap<Slot, Observation>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observation {
    read_at: Monotonic,
    ahead: Vec<(Sighting, Monotonic)>,
}

impl Observations {
    fn of(&self, slot: &Slot) -> &[(Sighting, Monotonic)] {
        self.0.get(slot).map_or(&[], |observation| &observation.ahead)
    }

    /// When the first of those ahead will have been silent for too long, unless that is being dealt with.
    pub(super) fn next_judgement(&self, slot: &Slot, place: &Place, outbox: &Outbox) -> Option<Monotonic> {
        if !place.waits() || outbox.carries(slot, |action| matches!(action, Action::Evict { .. })) {
            return None;
        }
        let mut next = None;
        for (seen, since) in self.of(slot) {
            next = earliest(&[next, Some(since.plus(silence_ms(seen.lease_ms)))]);
        }
        next
    }

    /// Any change starts the wait anew.
    fn update(&mut self, slot: &Slot, ahead: &[Sighting], now: Monotonic) {
        let old = self.0.remove(slot).map_or_else(Vec::new, |observation| observation.ahead);
        // They seldom change places: each is looked for from where the last one stood.
        let mut next = 0;
        let mut since = |seen: &Sighting| {
            for step in 0..old.len() {
                let at = (next + step) % old.len();
                let (before, since) = &old[at];
                if before.same_beat(seen) {
                    next = at + 1;
                    return *since;
                }
            }
            now
        };
        let mut seen_since = Vec::with_capacity(ahead.len());
        for seen in ahead {
            seen_since.push((*seen, since(seen)));
        }
        if !ahead.is_empty() {
            self.0.insert(slot.clone(), Observation { read_at: now, ahead: seen_since });
        }
    }

    /// Forgets what was read longest ago, of the slots that nobody here wants now.
    fn forget_oldest(&mut self, is_wanted: impl Fn(&Slot) -> bool) {
        let mut oldest: Option<(&Slot, Monotonic)> = None;
        for (slot, seen) in self.0.iter() {
            if !is_wanted(slot) && oldest.is_none_or(|(_, read_at)| seen.read_at < read_at) {
                oldest = Some((slot, seen.read_at));
            }
        }
        if let Some(oldest) = oldest.map(|(slot, _)| slot.clone()) {
            self.0.remove(&oldest);
        }
    }
}

/// A watch, and the very entries that its beacon's absence would condemn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watch {
    id: u64,
    suspects: Vec<(Slot, Sighting)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Watches {
    placed: SortedMap<Beacon, Watch>,
    last_id: u64,
    stale: bool,
}

impl Machine {
    /// Notes who stands before this context, and releases what it left there itself.
    pub(super) fn observe(&mut self, slot: &Slot, ahead: &[Sighting], now: Monotonic) {
        self.observed.update(&self.seen_at(slot), ahead, now);
        if self.observed.0.len() > REMEMBERED {
            self.observed.forget_oldest(|slot| self.places.get(slot).is_some());
        }
        self.watches.stale = true;
        for seen in ahead {
            match seen.entry {
                Entry::Grant(token) if seen.holder == self.me => self.release_if_stray(slot, token, seen.request, now),
                _ => {}
            }
        }
    }

    /// Where sightings are kept: a request of its own that only tries leaves what it saw to the next one.
    fn seen_at(&self, slot: &Slot) -> Slot {
        let tries = self.places.get(slot).and_then(Place::seeking).is_some_and(|seeking| !seeking.wait);
        let mut seen_at = slot.clone();
        seen_at.own = slot.own.filter(|_| !tries);
        seen_at
    }

    /// A grant of its own that this context does not know of belongs to nobody. One that a request under way got may be
    /// told of in the next answer, or by a signal.
    fn release_if_stray(&mut self, slot: &Slot, token: Token, request: RequestId, now: Monotonic) {
        if !self.knows_grant(&slot.key, token) && !self.knows(&slot.key, request) {
            self.outbox.push(slot, Action::Release { token, request }, None, now);
        }
    }

    /// Whether a grant is held here, or on its way to another guard.
    pub(super) fn knows_grant(&self, key: &super::Key, token: Token) -> bool {
        let resumes = |place: &Place| place.seeking().is_some_and(|seeking| seeking.resumes(token));
        self.is_detached(key, token)
            || self.places.slot_of_grant(key, token).is_some()
            || !self.places.pick(Some(key), &|_, place| resumes(place)).is_empty()
    }

    /// Whether a grant is on its way to another guard.
    pub(super) fn is_detached(&self, key: &super::Key, token: Token) -> bool {
        self.detached_at(key, token).is_some()
    }

    pub(super) fn detached_at(&self, key: &super::Key, token: Token) -> Option<usize> {
        self.detached.iter().position(|(known, detached)| (known, *detached) == (key, token))
    }

    pub(super) fn judge_if_silent(&mut self, slot: &Slot, now: Monotonic) {
        let Some(place) = self.places.get(slot) else { return };
        if self.observed.next_judgement(slot, place, &self.outbox).is_some_and(|at| at <= now) {
            self.evict_silent(slot, now);
            self.ask(slot, now);
        }
    }

    /// Whoever stood still for a whole lease and a margin, by this context's own clock, is taken for dead.
    pub(super) fn evict_silent(&mut self, slot: &Slot, now: Monotonic) {
        let seen_at = self.seen_at(slot);
        let mut silent = Vec::new();
        for (seen, since) in self.observed.of(&seen_at) {
            if now.since(*since) >= silence_ms(seen.lease_ms) {
                silent.push(*seen);
            }
        }
        for seen in &silent {
            self.evict(slot, seen, now);
        }
    }

    fn evict(&mut self, slot: &Slot, seen: &Sighting, now: Monotonic) {
        let evict = Action::Evict { target: seen.holder, entry: seen.entry, beat: seen.beat };
        self.outbox.push(slot, evict, None, now);
    }

    /// A beacon is gone, seen so after the entries were read: its holder is dead.
    pub(super) fn beacon_gone(&mut self, watch: u64, now: Monotonic) {
        let Some(beacon) = self.watches.beacon_of(watch) else { return };
        let Some(watch) = self.watches.placed.remove(&beacon) else { return };
        for (slot, seen) in &watch.suspects {
            self.evict(slot, seen, now);
            self.ask(slot, now);
        }
    }

    /// Somebody left a tombstone: whoever stood right behind asks, and finds it.
    pub(super) fn ask_past(&mut self, gone: Incarnation, now: Monotonic) {
        for slot in &self.places.waiting() {
            if self.nearest(slot).iter().any(|seen| seen.holder == gone) {
                self.ask(slot, now);
            }
        }
    }

    /// Watches the beacons of those ahead. A beat that moved restarts its watch: absence counts only if it was seen
    /// after the very entry that it condemns was read.
    pub(super) fn sync_watches(&mut self, queues_changed: bool) {
        if !core::mem::take(&mut self.watches.stale) && !queues_changed {
            return;
        }
        let wanted = self.wanted_watches();
        let mut unwanted = Vec::new();
        self.watches.placed.retain(|beacon, watch| {
            let is_stale = wanted.get(beacon).map(|wanted| &wanted.suspects) != Some(&watch.suspects);
            if is_stale {
                unwanted.push(watch.id);
            }
            !is_stale
        });
        for watch in unwanted {
            self.emit(Output::Unwatch { watch });
        }
        for (beacon, mut watch) in wanted {
            if !self.watches.placed.contains_key(&beacon) {
                self.watches.last_id += 1;
                watch.id = self.watches.last_id;
                self.emit(Output::Watch { watch: watch.id, beacon });
                self.watches.placed.insert(beacon, watch);
            }
        }
    }

    fn wanted_watches(&self) -> SortedMap<Beacon, Watch> {
        let mut wanted = SortedMap::<_, Watch>::new();
        for slot in &self.places.waiting() {
            for seen in self.nearest(slot) {
                if let Some(beacon) = seen.beacon().filter(|_| seen.holder != self.me) {
                    wanted.or_default(beacon).suspects.push((slot.clone(), seen));
                }
            }
        }
        wanted
    }

    /// The waiter right before, or the grants where there is none: if it dies, whoever stands before it comes into view.
    /// Else each grant that ends would wake everybody who queues. A twin is watched from anywhere.
    fn nearest(&self, slot: &Slot) -> Vec<Sighting> {
        let ahead = self.observed.of(slot);
        let is_grant = |seen: &Sighting| matches!(seen.entry, Entry::Grant(_));
        let first = ahead.iter().all(|(seen, _)| is_grant(seen));
        let mut nearest = Vec::new();
        for (index, (seen, _)) in ahead.iter().enumerate() {
            if seen.twin || if first { is_grant(seen) } else { index + 1 == ahead.len() } {
                nearest.push(*seen);
            }
        }
        nearest
    }
}

impl Watches {
    fn beacon_of(&self, watch: u64) -> Option<Beacon> {
        self.placed.iter().find(|(_, placed)| placed.id == watch).map(|(beacon, _)| *beacon)
    }
}
