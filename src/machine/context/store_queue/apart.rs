//! Operations that are sent separately: those that the store refused for good, and those that need a locked key.

use alloc::vec::Vec;

use super::super::{
    failure::KEYS_MAY_BE_LOCKED, key::Key, pending::PendingOperation, sorted::SortedMap, time::Monotonic,
};
use super::{StoreQueue, take};

impl StoreQueue {
    /// Collects the operations that are due. Those that the store refused for good are sent one at a time. Returns whether some of these
    /// stay.
    pub(in super::super) fn collect_due(&mut self, now: Monotonic) -> bool {
        if self.retry_at.is_none_or(|at| at > now) {
            return false;
        }
        self.retry_at = None;
        if KEYS_MAY_BE_LOCKED {
            self.later.iter_mut().for_each(|operation| operation.is_hurried = false);
        }
        let mut refused = take(&mut self.later, &|operation| operation.is_refused()).into_iter();
        if KEYS_MAY_BE_LOCKED {
            // Otherwise a request that came meanwhile would find its key taken by its own context.
            let returns = take(&mut self.later, &|operation| operation.gives_back() && !operation.holds_up());
            self.put_first(returns);
        }
        self.waiting.append(&mut self.later);
        self.waiting.extend(refused.next());
        self.later.extend(refused);
        !self.later.is_empty()
    }

    /// The store has now answered an operation that it had refused for good. So the next such operation is sent at once. Operations that
    /// failed for another reason keep waiting: otherwise they would use up their attempts.
    pub(in super::super) fn retry_next(&mut self) {
        if let Some(at) = self.later.iter().position(PendingOperation::is_refused) {
            self.waiting.push(self.later.remove(at));
        }
    }

    /// Operations that need a locked key are sent only after everything else.
    pub(in super::super) fn defer_locked(&mut self) {
        self.went_alone = true;
    }

    /// Takes the operations that wait. A release or withdrawal that waits to be tried again goes right before a request for its key.
    /// Otherwise the request would find the key taken by its own context. This happens only once, so that a store that refuses it at once
    /// is not asked without end.
    pub(super) fn take_waiting(&mut self) -> Vec<PendingOperation> {
        let waiting = core::mem::take(&mut self.waiting);
        let may_hurry = |operation: &PendingOperation| operation.gives_back() && !operation.is_hurried;
        if !KEYS_MAY_BE_LOCKED || !self.later.iter().any(may_hurry) {
            return waiting;
        }
        let requests = waiting.iter().filter(|operation| operation.acquires());
        let mut wanted: Vec<_> = requests.flat_map(PendingOperation::keys).cloned().collect();
        wanted.sort_unstable();
        let mut earlier = SortedMap::<Key, Vec<_>>::new();
        let is_wanted = |operation: &PendingOperation| wanted.binary_search(&operation.slot.key).is_ok();
        for mut operation in take(&mut self.later, &|operation| may_hurry(operation) && is_wanted(operation)) {
            operation.is_hurried = true;
            earlier.or_default(&operation.slot.key.clone()).push(operation);
        }
        let mut pending = Vec::with_capacity(waiting.len() + earlier.len());
        for operation in waiting {
            if operation.acquires() {
                operation.keys().filter_map(|key| earlier.remove(key)).for_each(|mut first| pending.append(&mut first));
            }
            pending.push(operation);
        }
        pending
    }

    /// Takes the operations that would hold up the rest, and all others that need a locked key.
    // Protocol: docs/protocol.md#p6.
    pub(super) fn take_apart(&self, pending: &mut Vec<PendingOperation>) -> Vec<PendingOperation> {
        let locked = self.locked_keys(pending);
        take(pending, &|operation| operation.goes_apart(&locked))
    }

    /// The keys that were found locked, of operations that wait or are to be tried again. They are sorted.
    pub(super) fn locked_keys(&self, waiting: &[PendingOperation]) -> Vec<Key> {
        if !KEYS_MAY_BE_LOCKED {
            return Vec::new();
        }
        let locked = waiting.iter().chain(&self.later).filter(|operation| operation.is_locked());
        let mut keys: Vec<_> = locked.map(|operation| operation.slot.key.clone()).collect();
        keys.sort_unstable();
        keys
    }
}

/// The index of the operation that is to be sent alone next. A request for several keys waits until its own context has given back those
/// of them that it still has. Otherwise the request would find them taken.
// Protocol: docs/protocol.md#i14.
pub(super) fn next_apart(apart: &[PendingOperation], others: &[PendingOperation]) -> Option<usize> {
    if !KEYS_MAY_BE_LOCKED {
        return (!apart.is_empty()).then_some(0);
    }
    let returned = |key: &Key| {
        let returns = |operation: &PendingOperation| operation.gives_back() && operation.slot.key == *key;
        apart.iter().chain(others).any(returns)
    };
    apart.iter().position(|operation| operation.all.is_empty() || !operation.keys().any(returned))
}

/// Takes the first operation that is sent separately, and all that need the same locked key and no other, in their order.
pub(super) fn take_first(apart: &mut Vec<PendingOperation>) -> Vec<PendingOperation> {
    let first = apart.remove(0);
    if !KEYS_MAY_BE_LOCKED {
        return Vec::from([first]);
    }
    let mut together = take(apart, &|operation| operation.goes_apart_with(&first));
    together.insert(0, first);
    together.sort_by_key(|operation| operation.since);
    together
}
