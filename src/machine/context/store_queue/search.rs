//! Searches of the queue.

use alloc::vec::Vec;

use super::super::{
    id::RequestId, input::Slot, key::Key, pending::PendingOperation, record::Action, sorted::HAS_MANY_KEYS,
    token::Token,
};
use super::StoreQueue;

/// For up to this many slots, the queue is searched once for each; for more, once for all of them.
const FEW: usize = 8;

/// The slots for which the store is being asked to end a session.
pub(in super::super) struct Endings<'a> {
    store_queue: &'a StoreQueue,
    /// All of them, sorted, if many will be looked up.
    slots: Option<Vec<Slot>>,
}

impl Endings<'_> {
    pub(in super::super) fn include(&self, slot: &Slot) -> bool {
        match &self.slots {
            Some(slots) if HAS_MANY_KEYS => slots.binary_search(slot).is_ok(),
            _ => self.store_queue.is_ending(slot, u32::MAX),
        }
    }
}

impl StoreQueue {
    pub(in super::super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.later.is_empty() && self.transaction.is_none()
    }

    /// Whether no transaction is in flight, and the end of the session would do everything that waits.
    pub(in super::super) fn is_done_by_session_end(&self) -> bool {
        self.later.iter().all(PendingOperation::may_go_unsent)
            && self.transaction.is_none()
            && self.waiting.iter().all(PendingOperation::is_done_by_session_end)
    }

    /// Whether the session need not continue for anything in the queue.
    pub(in super::super) fn is_idle(&self) -> bool {
        !any(&self.lists(), &|operation| !operation.may_go_unsent()) && !self.carries_beat()
    }

    /// Whether something failed and must be tried again, even if the manager and all guards have gone.
    pub(in super::super) fn retries(&self) -> bool {
        self.later.iter().any(|operation| !operation.is_late)
    }

    /// A key for which something of the session is still under way.
    pub(in super::super) fn any_key(&self) -> Option<&Key> {
        let mut operations = self.lists().into_iter().flatten();
        operations.find(|operation| operation.is_of_session()).map(|operation| &operation.slot.key)
    }

    /// Whether a heartbeat is on its way.
    pub(in super::super) fn carries_beat(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.lease_ms.is_some())
    }

    pub(in super::super) fn carries(&self, slot: &Slot, is_it: impl Fn(&Action) -> bool) -> bool {
        any(&self.lists(), &|operation| is_it(&operation.action) && operation.concerns(slot))
    }

    /// Whether something for the key is still to be sent, whatever its slot.
    pub(in super::super) fn will_send_for(&self, key: &Key, is_it: impl Fn(&Action) -> bool) -> bool {
        any(&self.unsent_lists(), &|operation| is_it(&operation.action) && operation.slot.key == *key)
    }

    /// Whether the transaction in flight releases this grant.
    pub(in super::super) fn releases(&self, key: &Key, token: Token, request: RequestId) -> bool {
        let release = Action::Release { token, request };
        any(&[self.in_flight_operations()], &|operation| operation.action == release && operation.slot.key == *key)
    }

    /// Whether the store is being asked to end a session that stands in the way of this slot, and has failed fewer than `failures` times.
    pub(in super::super) fn is_ending(&self, slot: &Slot, failures: u32) -> bool {
        let is_it = |operation: &PendingOperation| {
            matches!(operation.action, Action::End { .. }) && operation.slot == *slot && operation.attempts < failures
        };
        any(&self.lists(), &is_it)
    }

    /// The slots for which the store is being asked to end a session. The caller will look up `sought` slots.
    #[inline]
    pub(in super::super) fn endings(&self, sought: usize) -> Endings<'_> {
        let is_end = |operation: &PendingOperation| matches!(operation.action, Action::End { .. });
        // Nearly every input touches one cohort.
        let slots = (HAS_MANY_KEYS && sought > FEW).then(|| sorted_slots(&self.lists(), &is_end));
        Endings { store_queue: self, slots }
    }

    /// The slots at the keys of `sought` for which such an operation is still to be sent; if many are sought, those at all keys. They are
    /// sorted, so that a caller with thousands of slots finds each quickly. A caller with one slot copies no others.
    pub(in super::super) fn unsent(&self, sought: &[Slot], is_it: impl Fn(&Action) -> bool) -> Vec<Slot> {
        let is_all = !HAS_MANY_KEYS || sought.len() > FEW;
        let is_sought = |slot: &Slot| is_all || sought.iter().any(|sought| sought.key == slot.key);
        sorted_slots(&self.unsent_lists(), &|operation| is_it(&operation.action) && is_sought(&operation.slot))
    }

    fn lists(&self) -> [&[PendingOperation]; 3] {
        [&self.waiting, &self.later, self.in_flight_operations()]
    }

    fn unsent_lists(&self) -> [&[PendingOperation]; 2] {
        [&self.waiting, &self.later]
    }

    pub(super) fn in_flight_operations(&self) -> &[PendingOperation] {
        self.transaction.as_ref().map_or(&[], |transaction| &transaction.operations)
    }
}

/// The slots of the operations that satisfy the predicate, sorted.
pub(super) fn sorted_slots(lists: &[&[PendingOperation]], is_it: &dyn Fn(&PendingOperation) -> bool) -> Vec<Slot> {
    let operations = lists.iter().copied().flatten().filter(|operation| is_it(operation));
    let mut slots: Vec<_> = operations.map(|operation| operation.slot.clone()).collect();
    slots.sort_unstable();
    slots
}

fn any(lists: &[&[PendingOperation]], is_it: &dyn Fn(&PendingOperation) -> bool) -> bool {
    lists.iter().any(|list| list.iter().any(is_it))
}
