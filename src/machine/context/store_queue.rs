//! Operations on their way: one transaction in flight per context, the rest waits and goes together.

mod room;
mod sending;

use alloc::vec::Vec;

use super::{
    failure::KEYS_MAY_BE_LOCKED,
    id::RequestId,
    input::{Slot, TurnId},
    key::Key,
    pending::{Company, PendingOperation, Sent, Transaction},
    record::Action,
    sorted::{HAS_MANY_KEYS, SortedMap},
    time::{Monotonic, earliest},
    token::Token,
};
use room::Room;

/// For up to so many slots, the queue is searched once for each; for more, once for all of them.
const FEW: usize = 8;

/// A queue that is longer is not searched for each request that was given up.
const LONG: usize = 64;

/// Late answers of so many transactions are still looked at.
const REMEMBERED: usize = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct StoreQueue {
    waiting: Vec<PendingOperation>,
    /// What failed goes again together, or every operation would be a transaction of its own.
    later: Vec<PendingOperation>,
    retry_at: Option<Monotonic>,
    transaction: Option<Transaction>,
    /// Transactions that did not answer in time.
    overdue: Vec<Transaction>,
    last_id: u64,
    /// Whether the last transaction carried nothing but what had been refused.
    went_alone: bool,
    /// Whether the last transaction was a heartbeat that was sent alone, before everything that waited.
    beat_alone: bool,
    /// How many requests that were given up may still be in the queue.
    obsolete: u32,
    /// What one transaction may carry, once the store has refused a larger one.
    room: Room,
}

impl StoreQueue {
    /// Whether nothing is under way, and nothing waits but what the end of the session does as well.
    pub(super) fn ends_with_session(&self) -> bool {
        let is_over = |operation: &PendingOperation| operation.holds_up() && operation.ends_with_session();
        self.later.iter().all(is_over)
            && self.transaction.is_none()
            && self.waiting.iter().all(PendingOperation::ends_with_session)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.later.is_empty() && self.transaction.is_none()
    }

    /// Whether there is nothing for which the session must go on.
    pub(super) fn is_idle(&self) -> bool {
        let lists: [&[PendingOperation]; 3] = [&self.waiting, &self.later, self.in_flight_operations()];
        !any(&lists, &|operation| !(operation.holds_up() && operation.ends_with_session())) && !self.carries_beat()
    }

    /// Gives up everything.
    pub(super) fn drain(&mut self) -> Vec<PendingOperation> {
        let overdue = core::mem::take(&mut self.overdue);
        let next = Self { last_id: self.last_id, overdue, room: self.room, ..Self::default() };
        let mut given_up = core::mem::replace(self, next);
        let mut operations = given_up.waiting;
        operations.append(&mut given_up.later);
        if let Some(transaction) = given_up.transaction {
            operations.extend_from_slice(&transaction.operations);
            self.remember(transaction);
        }
        operations
    }

    /// Whether a session is being opened.
    pub(super) fn opens(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.opens)
    }

    fn remember(&mut self, transaction: Transaction) {
        self.overdue.push(transaction);
        if self.overdue.len() > REMEMBERED {
            self.overdue.remove(0);
        }
    }

    pub(super) fn push(
        &mut self,
        slot: &Slot,
        action: Action,
        turn: Option<TurnId>,
        now: Monotonic,
    ) -> &mut PendingOperation {
        let last = self.waiting.len();
        // Mostly it goes alone.
        self.waiting.reserve_exact(usize::from(last == 0));
        self.waiting.push(PendingOperation {
            slot: slot.clone(),
            all: Vec::new(),
            action,
            turn,
            attempts: 0,
            since: now,
            believed_until: Monotonic::default(),
            maybe_released: false,
            tells: None,
            looked: false,
            is_late: false,
            contended: false,
            company: Company::default(),
            is_hurried: false,
        });
        &mut self.waiting[last]
    }

    /// The transaction that was sent last.
    pub(super) fn last_transaction(&self) -> u64 {
        self.last_id
    }

    /// Whether something failed and is to be tried again, whoever else has gone.
    pub(super) fn retries(&self) -> bool {
        self.later.iter().any(|operation| !operation.is_late)
    }

    pub(super) fn next_wake(&self) -> Option<Monotonic> {
        let limit = self.transaction.as_ref().map(|transaction| transaction.limit);
        earliest(&[self.retry_at, limit])
    }

    /// What is known now was known after this.
    pub(super) fn last_sent(&self, now: Monotonic) -> Sent {
        Sent { at: now, transaction: self.last_id }
    }

    /// Something is sent in a transaction that is none of ours. It gets a number as ours do, if it counts for a lease.
    pub(super) fn sent_elsewhere(&mut self, now: Monotonic, counts: bool) -> Sent {
        self.last_id += u64::from(counts);
        Sent { at: now, transaction: self.last_id }
    }

    /// What is under way.
    pub(super) fn in_flight(&self) -> Option<&Transaction> {
        self.transaction.as_ref()
    }

    /// Takes the transaction with this number, and whether it was overdue.
    pub(super) fn land(&mut self, id: u64) -> Option<(Transaction, bool)> {
        if let Some(transaction) = self.transaction.take_if(|transaction| transaction.sent.transaction == id) {
            return Some((transaction, false));
        }
        let at = self.overdue.iter().position(|transaction| transaction.sent.transaction == id)?;
        Some((self.overdue.remove(at), true))
    }

    /// Reuses the buffer of a finished transaction for the next one.
    pub(super) fn reuse(&mut self, over: Transaction) {
        let mut operations = over.operations;
        if self.waiting.is_empty() && operations.capacity() == 1 {
            operations.clear();
            self.waiting = operations;
        }
    }

    fn give_up(&mut self, now: Monotonic) -> Option<Transaction> {
        let transaction = self.transaction.take_if(|transaction| transaction.limit <= now)?;
        self.remember(transaction.clone());
        Some(transaction)
    }

    /// A key at which something of the session is still under way.
    pub(super) fn any_key(&self) -> Option<&Key> {
        let lists: [&[PendingOperation]; 3] = [&self.waiting, &self.later, self.in_flight_operations()];
        let mut operations = lists.into_iter().flatten();
        operations.find(|operation| operation.is_of_session()).map(|operation| &operation.slot.key)
    }

    /// Whether a heartbeat is on its way.
    pub(super) fn carries_beat(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.lease_ms.is_some())
    }

    pub(super) fn carries(&self, slot: &Slot, is_it: impl Fn(&Action) -> bool) -> bool {
        let lists: [&[PendingOperation]; 3] = [&self.waiting, &self.later, self.in_flight_operations()];
        any(&lists, &|operation| is_it(&operation.action) && operation.concerns(slot))
    }

    /// Whether something for the key is still to be sent, whatever its slot.
    pub(super) fn will_send_for(&self, key: &Key, is_it: impl Fn(&Action) -> bool) -> bool {
        any(&[&self.waiting, &self.later], &|operation| is_it(&operation.action) && operation.slot.key == *key)
    }

    /// Whether the transaction in flight gives this grant back.
    pub(super) fn releases(&self, key: &Key, token: Token, request: RequestId) -> bool {
        let release = Action::Release { token, request };
        any(&[self.in_flight_operations()], &|operation| operation.action == release && operation.slot.key == *key)
    }

    /// Whether the store is being asked to end a session that stands in the way of this slot, and has failed fewer than `failures` times.
    pub(super) fn is_ending(&self, slot: &Slot, failures: u32) -> bool {
        let is_it = |operation: &PendingOperation| {
            matches!(operation.action, Action::End { .. }) && operation.slot == *slot && operation.attempts < failures
        };
        any(&[&self.waiting, &self.later, self.in_flight_operations()], &is_it)
    }

    /// The slots for which sessions are being ended, in order. `None` if so few slots are sought that a search for each is cheaper.
    #[inline]
    pub(super) fn ending(&self, sought: usize) -> Option<Vec<Slot>> {
        // Nearly every input touches one cohort.
        (HAS_MANY_KEYS && sought > FEW).then(|| self.search_for_endings())
    }

    fn search_for_endings(&self) -> Vec<Slot> {
        let operations = self.waiting.iter().chain(&self.later).chain(self.in_flight_operations());
        let ends = operations.filter(|operation| matches!(operation.action, Action::End { .. }));
        let mut slots: Vec<_> = ends.map(|operation| operation.slot.clone()).collect();
        slots.sort_unstable();
        slots
    }

    /// Puts what did not fit into one transaction at the front of the queue.
    fn put_first(&mut self, mut operations: Vec<PendingOperation>) {
        operations.append(&mut self.waiting);
        self.waiting = operations;
    }

    /// The store refused a transaction of this size. Returns whether smaller ones can do the same; they are sent at once.
    pub(super) fn divide(&mut self, load: usize, operations: Vec<PendingOperation>) -> bool {
        let can_be_smaller = self.room.narrow(load);
        if can_be_smaller {
            self.put_first(operations);
        }
        can_be_smaller
    }

    /// What needs a locked key is sent only after everything else.
    pub(super) fn defer_locked(&mut self) {
        self.went_alone = true;
    }

    /// Takes what waits. A release or withdrawal that waits to be tried again goes right before a request for its key. Otherwise the
    /// request would find the key taken by its own context. This happens only once, so that a store that refuses it at once is not asked
    /// without end.
    fn take_waiting(&mut self) -> Vec<PendingOperation> {
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
    fn take_apart(&self, pending: &mut Vec<PendingOperation>) -> Vec<PendingOperation> {
        let locked = self.locked_keys(pending);
        take(pending, &|operation| operation.goes_apart(&locked))
    }

    /// The keys at which something that waits, or is to be tried again, was found locked. They are sorted.
    fn locked_keys(&self, waiting: &[PendingOperation]) -> Vec<Key> {
        if !KEYS_MAY_BE_LOCKED {
            return Vec::new();
        }
        let locked = waiting.iter().chain(&self.later).filter(|operation| operation.is_locked());
        let mut keys: Vec<_> = locked.map(|operation| operation.slot.key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// The store accepted a transaction of this size.
    pub(super) fn note_taken(&mut self, load: usize) {
        self.room.widen(load);
    }

    /// The slots for which such an operation is still to be sent. They are sorted, so that a caller with thousands of slots finds each
    /// quickly.
    pub(super) fn unsent(&self, is_it: impl Fn(&Action) -> bool) -> Vec<Slot> {
        let unsent = self.waiting.iter().chain(&self.later).filter(|operation| is_it(&operation.action));
        let mut slots: Vec<_> = unsent.map(|operation| operation.slot.clone()).collect();
        slots.sort_unstable();
        slots
    }

    /// Takes what was not sent yet, and is like this.
    fn take_unsent(&mut self, is_it: &dyn Fn(&PendingOperation) -> bool) -> Vec<PendingOperation> {
        let mut taken = take(&mut self.waiting, is_it);
        taken.append(&mut take(&mut self.later, is_it));
        taken
    }

    /// Takes back what was not sent yet.
    pub(super) fn recall(&mut self, slot: &Slot, is_it: impl Fn(&Action) -> bool) -> Vec<PendingOperation> {
        self.take_unsent(&|operation| is_it(&operation.action) && operation.slot == *slot)
    }

    /// Whether the queue is so long that a request that was given up may stay in it. The request is not sent, because `drop_obsolete` runs
    /// before each transaction. A search for each of thousands of requests that time out together would take quadratic time.
    pub(super) fn leaves_obsolete(&mut self) -> bool {
        let leaves = HAS_MANY_KEYS && self.waiting.len() > LONG && self.later.is_empty();
        self.obsolete += u32::from(leaves);
        leaves
    }

    /// Whether so many requests were given up that one search for all of them pays.
    pub(super) fn is_mostly_obsolete(&self) -> bool {
        self.obsolete as usize > self.waiting.len() / 2
    }

    /// Takes back what was not sent yet and makes sense in one session only.
    fn recall_all_of_session(&mut self) -> Vec<PendingOperation> {
        self.take_unsent(&PendingOperation::goes_with_session)
    }

    /// Sends it again, at this time at the latest.
    pub(super) fn try_again(&mut self, operation: PendingOperation, at: Monotonic) {
        self.retry_at = earliest(&[self.retry_at, Some(at)]);
        self.later.push(operation);
    }

    /// A try that waits to look at this key again does so now.
    pub(super) fn retry_now(&mut self, key: &Key) {
        let mut looks =
            take(&mut self.later, &|operation| operation.looked && operation.all.iter().any(|slot| slot.key == *key));
        self.waiting.append(&mut looks);
        self.retry_at = self.retry_at.filter(|_| !self.later.is_empty());
    }

    fn in_flight_operations(&self) -> &[PendingOperation] {
        self.transaction.as_ref().map_or(&[], |transaction| &transaction.operations)
    }

    /// What was refused for good goes one at a time. Whether some of that stays.
    fn collect_due(&mut self, now: Monotonic) -> bool {
        if self.retry_at.is_none_or(|at| at > now) {
            return false;
        }
        self.retry_at = None;
        if KEYS_MAY_BE_LOCKED {
            self.later.iter_mut().for_each(|operation| operation.is_hurried = false);
        }
        let mut refused = take(&mut self.later, &|operation| operation.is_refused()).into_iter();
        self.waiting.append(&mut self.later);
        self.waiting.extend(refused.next());
        self.later.extend(refused);
        !self.later.is_empty()
    }
}

/// Takes the operations that are like this out of a list.
fn take(operations: &mut Vec<PendingOperation>, is_it: &dyn Fn(&PendingOperation) -> bool) -> Vec<PendingOperation> {
    let mut taken = Vec::new();
    if operations.iter().any(is_it) {
        for operation in core::mem::take(operations) {
            if is_it(&operation) { taken.push(operation) } else { operations.push(operation) }
        }
    }
    taken
}

fn any(lists: &[&[PendingOperation]], is_it: &dyn Fn(&PendingOperation) -> bool) -> bool {
    lists.iter().any(|list| list.iter().any(is_it))
}

pub(super) fn is_ask_for(request: RequestId) -> impl Fn(&Action) -> bool {
    move |action| matches!(action, Action::Acquire(acquire) if acquire.request == request)
}
