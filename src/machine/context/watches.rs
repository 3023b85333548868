//! Which beacons this context watches, and for which requests. The absence of a beacon is evidence only against rows that were read before.

use alloc::vec::Vec;
use core::mem;

use super::{
    Machine,
    cohorts::Cohorts,
    detector::Neighbour,
    id::SessionId,
    input::Slot,
    output::{Command, Output},
    sorted::SortedMap,
    time::Monotonic,
};

/// One watch for each session that is right ahead of a request, however many requests it is ahead of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Watches {
    placed: SortedMap<SessionId, Watch>,
    /// The sessions whose beacons are watched for each slot.
    by_slot: SortedMap<Slot, Vec<SessionId>>,
    /// The slots to check: other sessions may be right ahead of their requests now, or the requests wait no longer.
    changed: Vec<Slot>,
    last_id: u64,
}

/// A watch for the beacon of a session, and the beat against which the absence of this beacon is evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Watch {
    /// 0 if it is not placed yet.
    id: u64,
    beat: u64,
    slots: SortedMap<Slot, ()>,
}

impl Watches {
    /// The sessions right before the request at this slot may have changed.
    pub(super) fn neighbours_changed(&mut self, slot: &Slot) {
        self.changed.reserve_exact(usize::from(self.changed.is_empty()));
        self.changed.push(slot.clone());
    }

    /// Notes that a slot needs these sessions watched, and no others. Adds to `affected` each session whose watch must be placed or ended.
    // Protocol: docs/protocol.md#s4.
    fn watch_for(&mut self, slot: &Slot, wanted: &[Neighbour], affected: &mut SortedMap<SessionId, ()>) {
        let watched = self.by_slot.get_mut(slot).map(mem::take).unwrap_or_default();
        for session in watched {
            let stays = wanted.iter().any(|neighbour| neighbour.session == session);
            if !stays && let Some(watch) = self.placed.get_mut(&session) {
                watch.slots.remove(slot);
                if watch.slots.is_empty() {
                    affected.insert(session, ());
                }
            }
        }
        for neighbour in wanted {
            let watch = self.placed.or_default(&neighbour.session);
            if watch.id == 0 || watch.beat != neighbour.beat {
                watch.beat = neighbour.beat;
                affected.insert(neighbour.session, ());
            }
            watch.slots.insert(slot.clone(), ());
        }
        if wanted.is_empty() {
            self.by_slot.remove(slot);
        } else {
            *self.by_slot.or_default(slot) = wanted.iter().map(|neighbour| neighbour.session).collect();
        }
    }

    /// Takes out the watch of this number, with the session that it is for.
    fn take(&mut self, id: u64) -> Option<(SessionId, Watch)> {
        let session = self.placed.iter().find(|(_, placed)| placed.id == id).map(|(session, _)| *session)?;
        Some((session, self.placed.remove(&session)?))
    }

    /// Forgets all watches, because the signals have ended them together with the session. These slots wait for new ones.
    pub(super) fn forget(&mut self, waiting: Vec<Slot>) {
        self.placed.clear();
        self.by_slot.clear();
        self.changed = waiting;
    }

    /// Watches the beacons of the sessions right ahead of this context's requests. A new beat restarts the watch, because an absence counts
    /// against a row only if it was seen after that row was read.
    pub(super) fn sync(&mut self, cohorts: &Cohorts, own: SessionId, outputs: &mut Vec<Output>) {
        if self.changed.is_empty() {
            return;
        }
        let mut affected = SortedMap::new();
        for slot in &mem::take(&mut self.changed) {
            self.watch_for(slot, &wanted_watches(cohorts, slot, own), &mut affected);
        }
        for session in affected.keys() {
            if let Some(watch) = self.placed.get(session).map(|watch| watch.id).filter(|id| *id > 0) {
                outputs.push(Command::Unwatch { watch }.into());
            }
        }
        for session in affected.keys() {
            self.place(*session, outputs);
        }
    }

    /// Places the watch for a session again, or forgets it if no slot needs it any more.
    fn place(&mut self, session: SessionId, outputs: &mut Vec<Output>) {
        let Some(watch) = self.placed.get_mut(&session) else {
            return debug_assert!(false, "whoever is affected has a watch");
        };
        if watch.slots.is_empty() {
            self.placed.remove(&session);
            return;
        }
        self.last_id += 1;
        watch.id = self.last_id;
        outputs.push(Command::Watch { watch: self.last_id, session }.into());
    }
}

impl Machine {
    /// A beacon was found gone after the row was read, so its context is dead.
    pub(super) fn beacon_gone(&mut self, watch: u64, now: Monotonic) {
        let Some((session, watch)) = self.watches.take(watch) else { return };
        let slots: Vec<_> = watch.slots.keys().cloned().collect();
        slots.iter().for_each(|slot| self.twin_died(slot, session, now));
        self.store_queue.end_session(&slots, session, watch.beat, now);
        self.look_at_each(&slots, now);
    }
}

// Protocol: docs/protocol.md#s4.
fn wanted_watches(cohorts: &Cohorts, slot: &Slot, own: SessionId) -> Vec<Neighbour> {
    let mut wanted = Vec::new();
    if cohorts.is_waiting(slot) {
        for neighbour in cohorts.nearest(slot) {
            if neighbour.beacon && neighbour.session != own {
                wanted.push(*neighbour);
            }
        }
    }
    wanted
}
