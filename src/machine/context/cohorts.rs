//! All cohorts of a context, and one table of their timers. An idle cohort costs nothing, however many keys are held.

mod operations;

use alloc::{boxed::Box, vec::Vec};

use super::{
    cohort::{Cohort, Held, Seeking, Twin},
    detector::{Ahead, Neighbour},
    id::RequestId,
    input::Slot,
    key::Key,
    sorted::SortedMap,
    time::{Monotonic, earliest},
    token::Token,
};

/// Why a cohort that was found still exists until the end of the same input.
pub(super) const STAYS: &str = "only `settle` removes cohorts, at the end of an input";

/// The cohorts by slot. Each one that was borrowed mutably is planned again by the next [`settle`](Self::settle).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cohorts {
    by_slot: SortedMap<Slot, Box<Cohort>>,
    by_time: SortedMap<(Monotonic, Slot), ()>,
    /// The indices in `by_slot` of the cohorts that [`settle`](Self::settle) must plan again.
    touched: Vec<usize>,
    /// The slots that wait in a queue.
    waiting: SortedMap<Slot, ()>,
    /// The slots whose lease passes from task to task.
    passed_on: SortedMap<Slot, ()>,
    held: usize,
    lingering: usize,
}

/// The entry of the table for one cohort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    wake: Option<Monotonic>,
    held: bool,
    waits: bool,
    lingers: bool,
}

impl Cohorts {
    pub(super) fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    pub(super) fn get(&self, slot: &Slot) -> Option<&Cohort> {
        self.by_slot.get(slot).map(AsRef::as_ref)
    }

    pub(super) fn held(&self, slot: &Slot) -> Option<&Held> {
        self.get(slot)?.held()
    }

    /// The request under way at a slot: for a lease, or for an upgrade.
    pub(super) fn seeking(&self, slot: &Slot) -> Option<&Seeking> {
        self.get(slot)?.seeking()
    }

    /// The sessions right ahead of the request at a slot.
    pub(super) fn nearest(&self, slot: &Slot) -> &[Neighbour] {
        self.get(slot).map_or(&[][..], |cohort| cohort.ahead.nearest())
    }

    /// Whether the next turn at a slot could share the lease, if no other request queued for the key.
    pub(super) fn waits_for_queue_only(&self, slot: &Slot) -> bool {
        self.get(slot).is_some_and(Cohort::waits_for_queue_only)
    }

    /// Whether any guard of this context holds the key, or any key.
    pub(super) fn is_used(&self, key: Option<&Key>) -> bool {
        !self.pick(key, &|_, cohort| cohort.held().is_some_and(|held| !held.users.is_empty())).is_empty()
    }

    /// Marks the cohort at this index for `settle`. Most calls in a row mark the same one.
    fn touch(&mut self, at: usize) -> &mut Cohort {
        if self.touched.last() != Some(&at) {
            self.touched.reserve_exact(usize::from(self.touched.is_empty()));
            self.touched.push(at);
        }
        self.by_slot.at_mut(at).1
    }

    pub(super) fn change(&mut self, slot: &Slot) -> Option<&mut Cohort> {
        let at = self.by_slot.find(slot).ok()?;
        Some(self.touch(at))
    }

    /// Borrows a cohort for a change that affects no timer. This costs the same however many requests wait.
    pub(super) fn change_untracked(&mut self, slot: &Slot) -> Option<&mut Cohort> {
        self.by_slot.get_mut(slot).map(AsMut::as_mut)
    }

    pub(super) fn change_held(&mut self, slot: &Slot) -> Option<&mut Held> {
        self.change(slot)?.held_mut()
    }

    /// Takes the lease that is held out of its slot.
    pub(super) fn take_held(&mut self, slot: &Slot) -> Option<Held> {
        self.change(slot)?.take_held()
    }

    /// The request under way at a slot, to be changed.
    pub(super) fn change_seeking(&mut self, slot: &Slot) -> Option<&mut Seeking> {
        self.change(slot)?.seeking_mut()
    }

    /// The twin in the way of the request at a slot, to be changed.
    pub(super) fn change_twin(&mut self, slot: &Slot) -> Option<&mut Twin> {
        self.change_seeking(slot)?.twin.as_deref_mut()
    }

    pub(super) fn change_or_make(&mut self, slot: &Slot) -> &mut Cohort {
        let at = self.by_slot.find(slot).unwrap_or_else(|at| {
            let cohort = (slot.clone(), Box::default());
            self.by_slot.insert_at(at, cohort, &mut self.touched)
        });
        self.touch(at)
    }

    /// All slots.
    pub(super) fn slots(&self) -> Vec<Slot> {
        self.pick(None, &|_, _| true)
    }

    /// The slots whose cohorts satisfy the predicate, at one key or at all keys.
    pub(super) fn pick(&self, key: Option<&Key>, is_it: &dyn Fn(&Slot, &Cohort) -> bool) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (slot, cohort) in self.by_slot.from(|slot| key.is_some_and(|key| slot.key < *key)) {
            if key.is_some_and(|key| slot.key != *key) {
                break;
            }
            if is_it(slot, cohort) {
                slots.push(slot.clone());
            }
        }
        slots
    }

    /// The slot at which this request is under way or was granted.
    pub(super) fn slot_of(&self, key: &Key, request: RequestId) -> Option<Slot> {
        self.pick(Some(key), &|_, cohort| cohort.knows(request)).pop()
    }

    /// The slots at which this grant is held, or an earlier one.
    pub(super) fn slots_of_grants_until(&self, key: &Key, grant: Token) -> Vec<Slot> {
        self.pick(Some(key), &|_, cohort| cohort.held().is_some_and(|held| held.grant <= grant))
    }

    /// The sessions ahead of each request.
    pub(super) fn ahead(&self) -> impl Iterator<Item = &Ahead> {
        self.by_slot.values().map(|cohort| &cohort.ahead)
    }

    /// The cohorts that wait in a queue.
    pub(super) fn waiting(&self) -> Vec<Slot> {
        self.waiting.keys().cloned().collect()
    }

    /// Whether any cohort waits in a queue.
    pub(super) fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a cohort waits in a queue.
    pub(super) fn is_waiting(&self, slot: &Slot) -> bool {
        self.waiting.contains_key(slot)
    }

    /// How many cohorts are to be planned again. A cohort may be counted twice.
    pub(super) fn touched(&self) -> usize {
        self.touched.len()
    }

    /// Notes that a lease passed from one task to the next.
    pub(super) fn note_passed_on(&mut self, slot: &Slot) {
        self.passed_on.insert(slot.clone(), ());
    }

    /// The slots whose lease has passed from task to task since the last call.
    pub(super) fn take_passed_on(&mut self) -> Vec<Slot> {
        let slots: Vec<_> = core::mem::take(&mut self.passed_on).keys().cloned().collect();
        for slot in &slots {
            if let Some(held) = self.change_held(slot) {
                held.passed_on = false;
            }
        }
        slots
    }

    /// Whether anything in the store must be kept alive by heartbeats.
    pub(super) fn any_beats(&self) -> bool {
        self.held > 0 || !self.waiting.is_empty()
    }

    /// Whether anything is held.
    pub(super) fn any_held(&self) -> bool {
        self.held > 0
    }

    /// Whether only one lease must be kept alive, and it does not pass from task to task.
    // Protocol: docs/protocol.md#p5.
    pub(super) fn holds_one_only(&self) -> bool {
        self.held == 1 && self.waiting.is_empty() && self.passed_on.is_empty()
    }

    /// Whether an unused lease is kept.
    pub(super) fn any_lingers(&self) -> bool {
        self.lingering > 0
    }

    pub(super) fn next_wake(&self) -> Option<Monotonic> {
        self.by_time.first().map(|((at, _), ())| *at)
    }

    /// The cohorts with something due.
    pub(super) fn due(&self, now: Monotonic) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (_, slot) in self.by_time.keys().take_while(|(at, _)| *at <= now) {
            slots.push(slot.clone());
        }
        slots
    }

    /// Plans the cohorts that were touched, and drops those that became idle. Returns the slots that began or stopped waiting in a queue.
    pub(super) fn settle(&mut self, judgement: impl Fn(&Slot, &Cohort) -> Option<Monotonic>) -> Vec<Slot> {
        let (mut begin_or_end, mut last_idle, mut idle_count) = (Vec::new(), 0, 0);
        let mut touched = core::mem::take(&mut self.touched);
        for &at in &touched {
            let (slot, cohort) = self.by_slot.at_mut(at);
            let wake = earliest(&[cohort.next_event(), judgement(slot, cohort)]);
            let lingers = cohort.held().is_some_and(Held::lingers);
            let plan = Plan { wake, held: cohort.held().is_some(), waits: cohort.waits(), lingers };
            let old = core::mem::replace(&mut cohort.plan, plan);
            self.held = self.held + usize::from(plan.held) - usize::from(old.held);
            self.lingering = self.lingering + usize::from(plan.lingers) - usize::from(old.lingers);
            if plan.waits != old.waits {
                if plan.waits {
                    self.waiting.insert(slot.clone(), ());
                } else {
                    self.waiting.remove(slot);
                }
                begin_or_end.push(slot.clone());
            }
            if cohort.is_idle() {
                self.passed_on.remove(slot);
                (last_idle, idle_count) = (at, idle_count + 1);
            }
            move_timer(&mut self.by_time, slot, old.wake, wake);
        }
        // One transaction may end thousands of cohorts. They are removed together, so that the other cohorts move only once.
        if idle_count > 1 {
            self.by_slot.retain(|_, cohort| !cohort.is_idle());
        } else if idle_count > 0 {
            self.by_slot.remove_at(last_idle);
        }
        // Most inputs touch one cohort.
        touched.clear();
        touched.shrink_to(1);
        self.touched = touched;
        begin_or_end
    }
}

fn move_timer(
    timers: &mut SortedMap<(Monotonic, Slot), ()>,
    slot: &Slot,
    old: Option<Monotonic>,
    new: Option<Monotonic>,
) {
    if old == new {
        return;
    }
    if let Some(old) = old {
        timers.remove_by(|(at, known)| at.cmp(&old).then_with(|| known.cmp(slot)));
    }
    if let Some(new) = new {
        timers.insert((new, slot.clone()), ());
    }
}
