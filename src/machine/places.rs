//! All places of a context, and one table of their timers: what is idle costs nothing, however many keys are held.

use alloc::{boxed::Box, vec::Vec};

use super::{key::Key, place::Place, sorted::SortedMap, time::Monotonic};

/// Places by key. Whoever takes one to change it has it planned anew by the next [`settle`](Self::settle).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Places {
    by_key: SortedMap<Key, Box<Place>>,
    by_time: SortedMap<(Monotonic, Key), ()>,
    touched: Vec<Key>,
    beating: usize,
    waiting: usize,
}

/// What the table holds of one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    wake: Option<Monotonic>,
    beats: bool,
    waits: bool,
}

impl Places {
    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Place> {
        self.by_key.get(key).map(AsRef::as_ref)
    }

    pub(super) fn change(&mut self, key: &Key) -> Option<&mut Place> {
        self.touched.push(key.clone());
        self.by_key.get_mut(key).map(AsMut::as_mut)
    }

    pub(super) fn change_or_make(&mut self, key: &Key) -> &mut Place {
        self.touched.push(key.clone());
        self.by_key.or_default(key.clone())
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.by_key.keys().cloned().collect()
    }

    /// The places that wait in a queue.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Key, &Place)> {
        let none_waits = self.waiting == 0;
        let all = self.by_key.iter().map(|(key, place)| (key, place.as_ref()));
        all.filter(move |(_, place)| !none_waits && place.waits())
    }

    /// Whether something in the record is to be kept alive.
    pub(super) fn any_beats(&self) -> bool {
        self.beating > 0
    }

    pub(super) fn next_wake(&self) -> Option<Monotonic> {
        self.by_time.first().map(|((at, _), ())| *at)
    }

    /// The places with something due.
    pub(super) fn due(&self, now: Monotonic) -> Vec<Key> {
        self.by_time.keys().take_while(|(at, _)| *at <= now).map(|(_, key)| key.clone()).collect()
    }

    /// Plans what was touched, and drops what became idle. Whether the set of waiting places changed.
    pub(super) fn settle(&mut self, judgement: impl Fn(&Key, &Place) -> Option<Monotonic>) -> bool {
        let mut changed = false;
        for key in core::mem::take(&mut self.touched) {
            let Some(place) = self.by_key.get_mut(&key) else { continue };
            let wake = [place.next_deadline(), place.belief_ends(), judgement(&key, place)].into_iter().flatten().min();
            let plan = Plan { wake, beats: place.beats(), waits: place.waits() };
            let old = core::mem::replace(&mut place.plan, plan);
            let idle = place.is_idle();
            self.beating = self.beating + usize::from(plan.beats) - usize::from(old.beats);
            self.waiting = self.waiting + usize::from(plan.waits) - usize::from(old.waits);
            changed |= plan.waits != old.waits;
            if idle {
                self.by_key.remove(&key);
            }
            self.move_timer(key, old.wake, wake);
        }
        changed
    }

    fn move_timer(&mut self, key: Key, old: Option<Monotonic>, new: Option<Monotonic>) {
        if old == new {
            return;
        }
        let mut entry = (old.unwrap_or_default(), key);
        if old.is_some() {
            self.by_time.remove(&entry);
        }
        if let Some(new) = new {
            entry.0 = new;
            self.by_time.insert(entry, ());
        }
    }
}
