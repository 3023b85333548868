//! The end of a context, and its pauses: refuse new requests, release the leases, and end in a bounded time.

use alloc::vec::Vec;

use super::{
    Machine,
    cohort::{Cohort, Stage},
    cohorts::STAYS,
    failure::StoreError,
    input::Slot,
    key::Key,
    message::Body,
    output::{Command, Event, LostReason, Refusal},
    pending::PendingOperation,
    record::Action,
    time::Monotonic,
};

pub(super) const SUSPENDED: &str =
    "before the store answered, the context was suspended (a frozen or prerendered page) or lost its store";

/// Whether a context takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    Open,
    /// It is stopped, or about to be. Requests wait until it runs again.
    Suspended,
    Closing {
        until: Monotonic,
    },
    Closed,
}

/// How a context that stops gives up its session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Farewell {
    /// The store deletes its row without an answer, and other contexts are notified.
    BlindDelete,
    /// A last transaction deletes its row.
    Transaction,
    /// Nothing is sent. Other contexts see that the beacon ends with the context.
    Beacon,
}

impl Farewell {
    fn by_store(abandons: bool) -> Self {
        if abandons { Self::BlindDelete } else { Self::Transaction }
    }
}

impl Life {
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Closing { .. } | Self::Closed)
    }

    pub(super) fn is_suspended(self) -> bool {
        self == Self::Suspended
    }

    /// The refusal for a request that cannot wait until the context runs again.
    pub(super) fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Open => None,
            Self::Suspended => Some(Refusal::Lost(LostReason::Suspended)),
            Self::Closing { .. } | Self::Closed => Some(Refusal::Closed),
        }
    }

    pub(super) fn next_wake(self) -> Option<Monotonic> {
        match self {
            Self::Closing { until } => Some(until),
            Self::Open | Self::Suspended | Self::Closed => None,
        }
    }
}

impl Machine {
    /// Whether the context refuses all requests, because it has begun to close.
    pub(crate) fn is_closed(&self) -> bool {
        self.life.is_over()
    }

    pub(super) fn close(&mut self, now: Monotonic) {
        if self.life.is_over() {
            return;
        }
        // Twice the limit: an operation in flight, then the releases. A quarter of a limit is left for closing the store.
        let limit = self.config.store_timeout_ms;
        self.life = Life::Closing { until: now.plus(limit * 2 - limit / 4) };
        for slot in &self.cohorts.slots() {
            let Some(cohort) = self.cohorts.change(slot) else {
                debug_assert!(false, "{STAYS}");
                continue;
            };
            let turns = cohort.turns.take_all();
            turns.iter().for_each(|turn| self.refuse(turn.id, Refusal::Closed));
            self.give_up(slot, now);
        }
    }

    /// Voids what the record holds for a slot, and notifies its users. Local requests stay. Nothing is sent, because the session ends.
    fn void(&mut self, slot: &Slot, reason: LostReason) {
        if self.drop_hold(slot, reason).is_none()
            && let Some(cohort) = self.cohorts.change(slot)
        {
            cohort.stage = Stage::Idle;
        }
    }

    /// A try does not wait until a suspended context runs again.
    fn fail_tries(&mut self, slot: &Slot, reason: LostReason) {
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let tries = cohort.turns.take_tries();
        tries.iter().for_each(|turn| self.refuse(turn.id, Refusal::Lost(reason)));
    }

    /// Releases what the record holds for a slot, and notifies its users.
    fn give_up(&mut self, slot: &Slot, now: Monotonic) {
        if let Some(held) = self.drop_hold(slot, LostReason::Closed) {
            self.give_back(slot, &held, None, now);
            return self.withdraw_upgrade(slot, held.upgrade, now);
        }
        if let Some(seeking) = self.cohorts.change(slot).and_then(Cohort::take_seeking) {
            self.withdraw(slot, &seeking, now);
        }
    }

    /// The context may be stopped at any moment. First its guards are lost; then its session is ended, whatever else is under way, and the
    /// beacon is lowered. This waits for no answer. It also completes a close that is under way.
    pub(super) fn suspend(&mut self, abandons: bool, now: Monotonic) {
        self.stop(LostReason::Suspended, Farewell::by_store(abandons), now);
    }

    /// The platform ends the context, whose code may run on: a page that was closed still writes 20 ms later. Code that does not check its
    /// guard again may rely on its lease until then. So if a lease is in use and others surely know the beacon, the end of the beacon ends
    /// the session.
    // Protocol: docs/protocol.md#s9.
    pub(super) fn ending(&mut self, abandons: bool, now: Monotonic) {
        let is_seen = self.presence.beacon_stands() && self.session.has_shown_beacon();
        let farewell = match is_seen && self.cohorts.is_used(None) {
            true => Farewell::Beacon,
            false => Farewell::by_store(abandons),
        };
        self.stop(LostReason::Suspended, farewell, now);
    }

    /// The store is gone, and the context stays. Its leases are lost at once, and its beacon is lowered, so that others need not wait until
    /// it has been silent for long enough. Requests ask the store again, to learn why it does not answer.
    pub(super) fn lose_store(&mut self, abandons: bool, now: Monotonic) {
        let was_open = self.life == Life::Open;
        self.stop(LostReason::StoreFailed, Farewell::by_store(abandons), now);
        if was_open {
            self.wake_up(now);
        }
    }

    // Protocol: docs/protocol.md#s9.
    fn stop(&mut self, reason: LostReason, farewell: Farewell, now: Monotonic) {
        match self.life {
            Life::Open => {}
            Life::Closing { .. } if farewell == Farewell::BlindDelete => {}
            Life::Closing { .. } | Life::Suspended | Life::Closed => return,
        }
        let first = self.cohorts.slots().first().map(|slot| slot.key.clone());
        let first = first.or_else(|| self.store_queue.any_key().cloned());
        for slot in &self.cohorts.slots() {
            self.refuse_unsure_thieves(slot, &Refusal::Lost(reason));
            self.void(slot, reason);
            if slot.own.is_some() {
                self.fail_turns(slot, &Refusal::Lost(reason));
            } else if reason == LostReason::Suspended {
                self.fail_tries(slot, reason);
            }
        }
        let (session, was_open) = (self.session.id(), self.session.is_open() || self.store_queue.opens());
        self.drop_unanswered(now);
        match farewell {
            _ if !was_open => self.session.end(),
            Farewell::Beacon => self.session.end_unsure(now),
            Farewell::BlindDelete => {
                self.emit(Command::Abandon(session));
                if let Some(key) = first {
                    self.send(&key, Body::Gone { holder: session });
                }
                self.session.end_abandoned();
            }
            Farewell::Transaction => {
                self.session.end_unsure(now);
                self.send_now(now);
            }
        }
        self.drop_all_of_session(now);
        match farewell {
            Farewell::Beacon => {}
            Farewell::Transaction if was_open => self.fall(),
            Farewell::Transaction | Farewell::BlindDelete => self.rest(),
        }
        if self.life == Life::Open {
            self.life = Life::Suspended;
        }
    }

    /// The end of the session also ends the leases that were to be released. Nothing else is sent any more.
    fn drop_unanswered(&mut self, now: Monotonic) {
        for operation in &self.drain(now) {
            self.answer_for_ended_session(operation, now);
        }
    }

    /// Gives up everything. It is unknown whether the transaction in flight has ended the sessions that it was to end, so they are ended
    /// again, unless the context closes.
    fn drain(&mut self, now: Monotonic) -> Vec<PendingOperation> {
        if let Some(transaction) = self.store_queue.in_flight().filter(|_| !self.life.is_over()) {
            let endings = transaction.endings(self.session.id());
            self.session.end_later(&endings, now);
        }
        self.store_queue.drain()
    }

    /// Answers the callers of an operation that made sense only in a session that has ended.
    pub(super) fn answer_for_ended_session(&mut self, operation: &PendingOperation, now: Monotonic) {
        match (operation.turn, &operation.action) {
            (Some(turn), Action::Release { .. }) => {
                let lost = match operation.may_have_ended_belief() {
                    true => None,
                    // The store may have granted the lease to others since it was wiped, and nobody knows when that was.
                    false if self.session.was_wiped() => Some(LostReason::StoreCleared),
                    false => Some(LostReason::Expired).filter(|_| operation.has_outlived_belief(now)),
                };
                self.tell_released(turn, Ok(lost));
            }
            _ => self.unanswered(operation, &StoreError::transient(SUSPENDED)),
        }
    }

    /// The context runs again. Its requests queue again, in another session.
    // Protocol: docs/protocol.md#s9.
    pub(super) fn wake_up(&mut self, now: Monotonic) {
        if !self.life.is_suspended() {
            return;
        }
        self.life = Life::Open;
        // A context that was to end for good left its beacon up, so that the end of the beacon would end its session.
        self.fall();
        self.drop_all(SUSPENDED, now);
        for slot in &self.cohorts.slots() {
            self.seek(slot, now);
        }
    }

    /// Ends a close whose store does not answer in time. A store that cannot delete a row without an answer leaves the leases to expire.
    pub(super) fn force_closed(&mut self, now: Monotonic) {
        if matches!(self.life, Life::Closing { until } if until <= now) {
            let unended = self.unended();
            self.drop_all("the store did not answer before the lease manager closed", now);
            self.session.forget_stale();
            if self.detached.is_empty() {
                self.abandon(&unended);
            } else {
                // A lease that was taken out of its guard may still be in this session, so the session ends by its silence.
                self.session.end();
            }
            self.fall();
        }
    }

    fn drop_all(&mut self, because: &str, now: Monotonic) {
        let error = StoreError::unknown(because);
        for operation in &self.drain(now) {
            self.unanswered(operation, &error);
        }
    }

    /// Tells the callers that still wait for an answer that there is none.
    fn unanswered(&mut self, operation: &PendingOperation, error: &StoreError) {
        let Some(turn) = operation.turn else { return };
        let error = error.clone();
        match operation.action {
            Action::Release { .. } => self.tell_released(turn, Err(error)),
            Action::Verify { .. } | Action::Downgrade { .. } => self.tell_verified(turn, Err(error)),
            Action::Inspect => self.emit(Event::Status { query: turn, result: Err(error) }),
            Action::Acquire(_)
            | Action::AcquireAll(_)
            | Action::Detach { .. }
            | Action::Withdraw { .. }
            | Action::End { .. }
            | Action::Look
            | Action::Fence { .. } => {}
        }
    }

    /// Ends the session together with the last release.
    pub(super) fn close_session_at_last(&mut self) {
        if matches!(self.life, Life::Closing { .. }) && self.store_queue.is_done_by_session_end() {
            self.session.want_close();
        }
    }

    pub(super) fn end_closing(&mut self) {
        if matches!(self.life, Life::Closing { .. }) && self.store_queue.is_empty() && self.session.stale_at().is_none()
        {
            self.life = Life::Closed;
            self.rest();
            self.emit(Event::Closed);
        }
    }

    /// Whether an unused lease is kept, or something must still be tried again, even if the manager and all guards have gone.
    pub(crate) fn has_loose_ends(&self) -> bool {
        self.store_queue.retries() || self.cohorts.any_lingers()
    }

    /// Whether the requests at a slot have a position in the store's queue.
    pub(crate) fn is_queued(&self, slot: &Slot) -> bool {
        self.cohorts.get(slot).is_some_and(Cohort::waits)
    }

    /// The keys with this prefix that this context holds or requests, which the store may not have yet.
    pub(crate) fn keys_under(&self, prefix: &str) -> Vec<Key> {
        let keys = self.cohorts.slots().into_iter().map(|slot| slot.key);
        keys.filter(|key| key.as_str().starts_with(prefix)).collect()
    }

    /// Whether a guard of this context holds the key.
    pub(crate) fn is_used(&self, key: &Key) -> bool {
        self.cohorts.is_used(Some(key))
    }
}
