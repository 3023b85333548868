//! Watching whoever stands ahead: by beacons where there are some, else by watching them stand still.

use alloc::vec::Vec;

use super::{
    Machine,
    config::silence_ms,
    id::{Beacon, RequestId},
    key::Key,
    operation::Action,
    outbox::Outbox,
    place::Place,
    port::Output,
    record::{Entry, Sighting},
    sorted::SortedMap,
    time::Monotonic,
};

/// Keys whose sightings are remembered between calls, so that a `try` can judge without waiting.
const REMEMBERED: usize = 256;

/// What was seen of each key, and since when it stands still: from after it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Observations(SortedMap<Key, Observation>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observation {
    read_at: Monotonic,
    ahead: Vec<(Sighting, Monotonic)>,
}

impl Observations {
    fn of(&self, key: &Key) -> &[(Sighting, Monotonic)] {
        self.0.get(key).map_or(&[], |observation| &observation.ahead)
    }

    /// When the first of those ahead will have been silent for too long, unless that is being dealt with.
    pub(super) fn next_judgement(&self, key: &Key, place: &Place, outbox: &Outbox) -> Option<Monotonic> {
        if !place.waits() || outbox.carries(key, |action| matches!(action, Action::Evict { .. })) {
            return None;
        }
        self.of(key).iter().map(|(seen, since)| since.plus(silence_ms(seen.lease_ms))).min()
    }

    /// Any change starts the wait anew.
    fn update(&mut self, key: &Key, ahead: &[Sighting], now: Monotonic) {
        let old = self.0.remove(key).map_or_else(Vec::new, |observation| observation.ahead);
        let since =
            |seen: &Sighting| old.iter().find(|(before, _)| before.same_beat(seen)).map_or(now, |(_, since)| *since);
        let ahead: Vec<_> = ahead.iter().map(|seen| (*seen, since(seen))).collect();
        if !ahead.is_empty() {
            self.0.insert(key.clone(), Observation { read_at: now, ahead });
        }
    }

    /// Forgets what was read longest ago, of the keys that nobody here wants now.
    fn forget_oldest(&mut self, is_wanted: impl Fn(&Key) -> bool) {
        let unwanted = self.0.iter().filter(|(key, _)| !is_wanted(key));
        let oldest = unwanted.min_by_key(|(_, observation)| observation.read_at);
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            self.0.remove(&oldest);
        }
    }
}

/// A watch, and the very entries that its beacon's absence would condemn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Watch {
    id: u64,
    suspects: Vec<(Key, Sighting)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Watches {
    placed: SortedMap<Beacon, Watch>,
    last_id: u64,
    stale: bool,
}

impl Machine {
    /// Notes who stands before this context, and releases what it left there itself.
    pub(super) fn observe(&mut self, key: &Key, ahead: &[Sighting], now: Monotonic) {
        self.observed.update(key, ahead, now);
        if self.observed.0.len() > REMEMBERED {
            self.observed.forget_oldest(|key| self.places.get(key).is_some());
        }
        self.watches.stale = true;
        for seen in ahead.iter().filter(|seen| seen.holder == self.me) {
            let Entry::Grant(token) = seen.entry else { continue };
            let is_release =
                |action: &Action| matches!(action, Action::Release { token: released, .. } if *released == token);
            if !self.outbox.carries(key, is_release) {
                let release = Action::Release { token, request: RequestId(0) };
                self.outbox.push(key, release, None, now);
            }
        }
    }

    pub(super) fn judge_if_silent(&mut self, key: &Key, now: Monotonic) {
        let Some(place) = self.places.get(key) else { return };
        if self.observed.next_judgement(key, place, &self.outbox).is_some_and(|at| at <= now) {
            self.evict_silent(key, now);
            self.ask(key, now);
        }
    }

    /// Whoever stood still for a whole lease and a margin, by this context's own clock, is taken for dead.
    pub(super) fn evict_silent(&mut self, key: &Key, now: Monotonic) {
        let silent =
            self.observed.of(key).iter().filter(|(seen, since)| now.since(*since) >= silence_ms(seen.lease_ms));
        let silent: Vec<_> = silent.map(|(seen, _)| *seen).collect();
        for seen in silent {
            self.evict(key, &seen, now);
        }
    }

    fn evict(&mut self, key: &Key, seen: &Sighting, now: Monotonic) {
        let evict = Action::Evict { target: seen.holder, entry: seen.entry, beat: seen.beat };
        self.outbox.push(key, evict, None, now);
    }

    /// A beacon is gone, seen so after the entries were read: its holder is dead.
    pub(super) fn beacon_gone(&mut self, watch: u64, now: Monotonic) {
        let Some(beacon) = self.watches.beacon_of(watch) else { return };
        let Some(watch) = self.watches.placed.remove(&beacon) else { return };
        for (key, seen) in watch.suspects {
            self.evict(&key, &seen, now);
            self.ask(&key, now);
        }
    }

    /// Watches the beacons of those ahead. A beat that moved restarts its watch: absence counts only if it was seen
    /// after the very entry that it condemns was read.
    pub(super) fn sync_watches(&mut self, queues_changed: bool) {
        if !core::mem::take(&mut self.watches.stale) && !queues_changed {
            return;
        }
        let wanted = self.wanted_watches();
        let unwanted: Vec<_> = (self.watches.placed.iter())
            .filter(|(beacon, watch)| wanted.get(beacon) != Some(&watch.suspects))
            .map(|(beacon, watch)| (*beacon, watch.id))
            .collect();
        for (beacon, watch) in unwanted {
            self.watches.placed.remove(&beacon);
            self.emit(Output::Unwatch { watch });
        }
        for (beacon, suspects) in wanted {
            if !self.watches.placed.contains_key(&beacon) {
                self.watches.last_id += 1;
                let id = self.watches.last_id;
                self.watches.placed.insert(beacon, Watch { id, suspects });
                self.emit(Output::Watch { watch: id, beacon });
            }
        }
    }

    /// The grants, and the waiter right before: if it dies, whoever stands before it comes into view.
    fn wanted_watches(&self) -> SortedMap<Beacon, Vec<(Key, Sighting)>> {
        let mut wanted: SortedMap<_, Vec<_>> = SortedMap::new();
        for (key, _) in self.places.waiting() {
            let ahead = self.observed.of(key);
            for (index, (seen, _)) in ahead.iter().enumerate() {
                let near = matches!(seen.entry, Entry::Grant(_)) || index + 1 == ahead.len();
                if let Some(beacon) = seen.beacon().filter(|_| near && seen.holder != self.me) {
                    wanted.or_default(beacon).push((key.clone(), *seen));
                }
            }
        }
        wanted
    }
}

impl Watches {
    fn beacon_of(&self, watch: u64) -> Option<Beacon> {
        self.placed.iter().find(|(_, placed)| placed.id == watch).map(|(beacon, _)| *beacon)
    }
}
