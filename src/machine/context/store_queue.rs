//! Operations on their way to the store. A context has one transaction in flight. Meanwhile the other operations wait, and then go
//! together.

mod apart;
mod next;
mod room;
mod search;

use alloc::vec::Vec;

use super::{
    failure::KEYS_MAY_BE_LOCKED,
    id::{RequestId, SessionId},
    input::{Slot, TurnId},
    key::Key,
    pending::{PendingOperation, SecondLook, Sent, Transaction},
    record::Action,
    sorted::HAS_MANY_KEYS,
    time::{Monotonic, earliest},
};
pub(super) use next::{Load, LoadKind};
use room::Room;
pub(super) use search::Endings;
use search::sorted_slots;

/// A queue that is longer than this is not searched for each request that is given up.
const LONG: usize = 64;

/// This many sessions that have ended themselves are remembered during a transaction. Who waits behind another one looks at its next
/// heartbeat.
const MOST_GONE: usize = 64;

/// Late answers of this many transactions are still looked at.
const REMEMBERED: usize = 4;

/// Where an operation is until it is answered or given up:
///
/// ```text
///   push ──▶ waiting ───── sent ────▶ in flight ── answered ──▶ gone
///             ▲   ▲                     │   │
///             │   └──── too large ──────┘   │ failed, or not answered in time
///             └── due ───── later ◀─────────┘
/// ```
///
/// A transaction that is not answered in time is `overdue`: its operations are tried again, and a late answer still counts.
/// `PendingOperation::company` says which operations are sent apart from the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct StoreQueue {
    waiting: Vec<PendingOperation>,
    /// Operations that failed. They are sent again together, because each would need a transaction of its own otherwise.
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
    given_up: usize,
    /// What one transaction may carry, once the store has refused a larger one.
    room: Room,
}

impl StoreQueue {
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
        self.overdue.push(Transaction { gone: Vec::new(), ..transaction });
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
        // Usually it is sent alone.
        self.waiting.reserve_exact(usize::from(last == 0));
        self.waiting.push(PendingOperation::new(slot, action, turn, now));
        &mut self.waiting[last]
    }

    /// The transaction that was sent last.
    pub(super) fn last_transaction(&self) -> u64 {
        self.last_id
    }

    pub(super) fn next_wake(&self) -> Option<Monotonic> {
        let limit = self.transaction.as_ref().map(|transaction| transaction.limit);
        earliest(&[self.retry_at, limit])
    }

    /// The latest transaction, at this moment: what is known now was found after it was sent.
    pub(super) fn last_sent(&self, now: Monotonic) -> Sent {
        Sent { at: now, transaction: self.last_id }
    }

    /// Numbers a transaction that is sent now. A user's transaction is numbered, too, if it renews the session.
    pub(super) fn next_sent(&mut self, now: Monotonic) -> Sent {
        self.last_id += 1;
        self.last_sent(now)
    }

    /// Notes that this transaction is in flight.
    pub(super) fn note_sent(&mut self, transaction: Transaction) {
        self.transaction = Some(transaction);
    }

    /// What one transaction may carry.
    pub(super) fn room(&self) -> Room {
        self.room
    }

    /// The transaction in flight.
    pub(super) fn in_flight(&self) -> Option<&Transaction> {
        self.transaction.as_ref()
    }

    /// Notes that a session has ended itself, which the transaction in flight may not have seen.
    pub(super) fn note_gone(&mut self, session: SessionId) {
        if let Some(transaction) = &mut self.transaction
            && transaction.gone.len() < MOST_GONE
            && !transaction.gone.contains(&session)
        {
            transaction.gone.push(session);
        }
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

    /// Gives up on the transaction in flight if its time limit has passed.
    pub(super) fn give_up(&mut self, now: Monotonic) -> Option<Transaction> {
        let transaction = self.transaction.take_if(|transaction| transaction.limit <= now)?;
        self.remember(transaction.clone());
        Some(transaction)
    }

    /// Asks the store to end a session that stands in the way of these slots, before it answers what waits: a query whether others still
    /// queue may wait already. The slots must be sorted: the queue is searched once for all of them.
    // Protocol: docs/protocol.md#i11.
    pub(super) fn end_session(&mut self, slots: &[Slot], target: SessionId, beat: u64, now: Monotonic) {
        let end = Action::End { target, beat };
        let is_it =
            |operation: &PendingOperation| operation.action == end && slots.binary_search(&operation.slot).is_ok();
        // Does not wait until one that failed is due: otherwise the same evidence would be found again at once, for ever.
        self.take_unsent(&is_it);
        let under_way = sorted_slots(&[self.in_flight_operations()], &is_it);
        let slots = slots.iter().filter(|slot| under_way.binary_search(slot).is_err());
        let ends = slots.map(|slot| PendingOperation::new(slot, end.clone(), None, now)).collect();
        self.put_first(ends);
    }

    /// Puts these at the front of the queue.
    pub(super) fn put_first(&mut self, mut operations: Vec<PendingOperation>) {
        if !operations.is_empty() {
            operations.append(&mut self.waiting);
            self.waiting = operations;
        }
    }

    /// The store refused this transaction as too large, or for good. Returns whether smaller ones may do the same.
    pub(super) fn can_divide(&mut self, transaction: &Transaction, is_too_large: bool) -> bool {
        let load = transaction.load();
        if is_too_large || !KEYS_MAY_BE_LOCKED {
            return self.room.narrow(load);
        }
        // What was refused before, and is tried again, says nothing new of the store.
        let is_new = !transaction.operations.iter().any(PendingOperation::is_refused);
        is_new && self.room.search(load)
    }

    /// The store accepted a transaction of this size.
    pub(super) fn note_taken(&mut self, load: usize) {
        self.room.widen(load);
    }

    /// Takes the operations that were not sent yet and satisfy the predicate.
    fn take_unsent(&mut self, is_it: &dyn Fn(&PendingOperation) -> bool) -> Vec<PendingOperation> {
        let mut taken = take(&mut self.waiting, is_it);
        taken.append(&mut take(&mut self.later, is_it));
        taken
    }

    /// Takes back the operations of a slot that were not sent yet and satisfy the predicate.
    pub(super) fn recall(&mut self, slot: &Slot, is_it: impl Fn(&Action) -> bool) -> Vec<PendingOperation> {
        self.take_unsent(&|operation| is_it(&operation.action) && operation.slot == *slot)
    }

    /// Takes back a request that was given up. In a long queue it stays until the queue is searched for all such requests: a search for
    /// each of thousands that time out together would take quadratic time. It is not sent, because `drop_obsolete` runs before each
    /// transaction.
    pub(super) fn give_up_request(&mut self, slot: &Slot, request: RequestId) {
        if HAS_MANY_KEYS && self.waiting.len() > LONG && self.later.is_empty() {
            self.given_up += 1;
        } else {
            self.recall(slot, is_ask_for(request));
        }
    }

    /// Whether so many requests were given up that one search for all of them is worth its cost.
    pub(super) fn is_mostly_given_up(&self) -> bool {
        HAS_MANY_KEYS && self.given_up > self.waiting.len() / 2
    }

    /// Takes back the operations that were not sent yet and make sense in one session only.
    pub(super) fn recall_all_of_session(&mut self) -> Vec<PendingOperation> {
        self.take_unsent(&PendingOperation::needs_this_session)
    }

    /// Collects what still failed at this time, after [`collect_due`](Self::collect_due) has left some of it.
    pub(super) fn collect_again(&mut self, at: Monotonic) {
        self.retry_at = Some(at);
    }

    /// Sends an operation that failed again: when everything else that failed is due, or else at this time.
    pub(super) fn retry(&mut self, mut operation: PendingOperation, at: Monotonic) {
        operation.attempts += 1;
        self.retry_at.get_or_insert(at);
        self.later.push(operation);
    }

    /// Sends an operation again, at this time at the latest.
    pub(super) fn try_again(&mut self, operation: PendingOperation, at: Monotonic) {
        self.retry_at = earliest(&[self.retry_at, Some(at)]);
        self.later.push(operation);
    }

    /// A try that waits to look at this key again does so now.
    pub(super) fn retry_now(&mut self, key: &Key) {
        let mut looks = take(&mut self.later, &|operation| {
            operation.second_look != SecondLook::Ahead && operation.all.iter().any(|slot| slot.key == *key)
        });
        self.waiting.append(&mut looks);
        self.retry_at = self.retry_at.filter(|_| !self.later.is_empty());
    }
}

/// Takes the operations that satisfy the predicate out of a list.
fn take(operations: &mut Vec<PendingOperation>, is_it: &dyn Fn(&PendingOperation) -> bool) -> Vec<PendingOperation> {
    let mut taken = Vec::new();
    if operations.iter().any(is_it) {
        for operation in core::mem::take(operations) {
            if is_it(&operation) { taken.push(operation) } else { operations.push(operation) }
        }
    }
    taken
}

/// Whether the action asks the store whether a grant is current, and who queues behind it.
pub(super) fn is_verification(action: &Action) -> bool {
    matches!(action, Action::Verify { .. })
}

pub(super) fn is_downgrade(action: &Action) -> bool {
    matches!(action, Action::Downgrade { .. })
}

pub(super) fn is_ask_for(request: RequestId) -> impl Fn(&Action) -> bool {
    move |action| matches!(action, Action::Acquire(acquire) if acquire.request == request)
}
