//! What to do with the operations of a transaction that failed.

mod requests;

use alloc::vec::Vec;

use super::{
    Machine,
    cohorts::STAYS,
    failure::{Applied, KEYS_MAY_BE_LOCKED, StoreError, StoreErrorKind},
    input::Slot,
    output::{Command, Refusal},
    pending::{Company, PendingOperation, Transaction},
    record::{Action, Ending},
    store_queue::is_ask_for,
    time::Monotonic,
};

/// Attempts to reach a store that has not answered a request yet.
pub(super) const ATTEMPTS: u32 = 3;

impl Machine {
    /// The transaction failed. Its operations are tried again, or given up with the error.
    pub(super) fn failed(&mut self, transaction: &Transaction, error: &StoreError, now: Monotonic) {
        // After a pause, a request's time limit may have passed, too. Then its caller is told of that, not of this failure.
        self.time_out_late(now);
        if error.applied == Applied::Unknown {
            transaction.operations.iter().for_each(|operation| self.cohorts.note_unanswered(operation));
        }
        if error.may_blame_one() && self.divide_transaction(transaction, error, now) {
            return;
        }
        if let Some(failures) = &mut self.failures_since_doubt {
            *failures = ATTEMPTS.min(*failures + 1);
        }
        // The heartbeat in it is not too large by itself.
        let retry = error.retry || (error.kind == StoreErrorKind::TooLarge && transaction.load() > 0);
        self.session_failed(transaction, &StoreError { retry, ..error.clone() }, now);
        let operations = self.set_apart(transaction, error, now);
        for operation in operations.as_ref().unwrap_or(&transaction.operations) {
            match &operation.action {
                Action::Acquire(ask) => self.ask_failed(ask.request, operation, error, now),
                Action::AcquireAll(_) => self.ask_all_failed(operation, error, now),
                Action::Downgrade { .. } => self.downgrade_failed(operation, error, now),
                Action::Verify { .. } => self.verification_failed(operation, error, now),
                Action::Release { .. } | Action::Withdraw { .. } | Action::Detach { .. } => {
                    self.return_failed(transaction, operation, error, now);
                }
                Action::Inspect => self.inspected(operation.turn, Err(error.clone())),
                // Tried again after a while. Otherwise the same evidence would cause the same operation at once, for ever.
                Action::End { .. } if error.retry => self.retry(operation, now),
                // What was seen of the session no longer counts, and a new watch begins. Otherwise a store that always fails would be asked
                // for ever.
                Action::End { target, .. } => self.observed.forget(*target),
                Action::Look => self.look_failed(operation, error, now),
                Action::Fence { .. } => {}
            }
        }
    }

    /// Whether all leases came into doubt, and fewer than [`ATTEMPTS`] transactions have failed since: the network may come back later than
    /// a context that was frozen, and a browser that clears a site's data fails connections for a moment.
    pub(super) fn has_hardly_asked(&self) -> bool {
        self.failures_since_doubt.is_some_and(|failures| failures < ATTEMPTS)
    }

    /// The store accepts no transaction of this size, or refuses one of its operations for good: smaller transactions are sent at once.
    /// Returns whether this one could be divided.
    // Protocol: docs/protocol.md#s11.
    fn divide_transaction(&mut self, transaction: &Transaction, error: &StoreError, now: Monotonic) -> bool {
        if error.applied == Applied::Unknown {
            return false;
        }
        if !self.store_queue.can_divide(transaction, error.kind == StoreErrorKind::TooLarge) {
            return false;
        }
        let is_own = transaction.session == self.session.id();
        let (again, gone): (Vec<_>, Vec<_>) =
            transaction.operations.iter().cloned().partition(|operation| is_own || !operation.needs_this_session());
        self.store_queue.put_first(again);
        self.last_writers.forget_later(&transaction.forgets);
        gone.iter().for_each(|operation| self.answer_for_ended_session(operation, now));
        // The refusal says nothing about the session.
        let error = StoreError { kind: StoreErrorKind::TooLarge, retry: true, ..error.clone() };
        self.session_failed(transaction, &error, now);
        true
    }

    /// Somebody else keeps a key of the transaction locked. From now on its operations are sent separately, key by key, so that only those
    /// at the locked key are delayed. These are tried again until the store time-out has passed. Returns the operations that are not tried
    /// again, or `None` if the transaction failed for another reason.
    // Protocol: docs/protocol.md#p6.
    fn set_apart(
        &mut self,
        transaction: &Transaction,
        error: &StoreError,
        now: Monotonic,
    ) -> Option<Vec<PendingOperation>> {
        let is_locked = KEYS_MAY_BE_LOCKED && error.kind == StoreErrorKind::Locked;
        if !is_locked || error.applied == Applied::Unknown {
            return None;
        }
        self.store_queue.defer_locked();
        let is_found = !transaction.has_several_keys();
        let is_own = transaction.session == self.session.id();
        let mut rest = transaction.operations.clone();
        rest.iter_mut().for_each(|operation| operation.keep_to(Company::SameKey));
        rest.retain(|operation| {
            let is_late =
                operation.action == Action::Look || now.since(operation.since) >= self.config.store_timeout_ms;
            let waits = !(is_found && is_late) && (is_own || !operation.needs_this_session());
            if waits {
                self.wait_for_lock(operation, now);
            }
            !waits
        });
        Some(rest)
    }

    fn wait_for_lock(&mut self, operation: &PendingOperation, now: Monotonic) {
        if let Action::Acquire(ask) = &operation.action
            && self.store_queue.will_send_for(&operation.slot.key, is_ask_for(ask.request))
        {
            return;
        }
        let delay_ms = self.backoff_ms(0);
        self.store_queue.try_again(operation.clone(), now.plus(delay_ms));
    }

    /// What the transaction was to do to the session did not happen, or is unknown.
    // Protocol: docs/protocol.md#s1.
    fn session_failed(&mut self, transaction: &Transaction, error: &StoreError, now: Monotonic) {
        let unknown = error.applied == Applied::Unknown;
        let is_own = transaction.session == self.session.id();
        let endings = transaction.endings(self.session.id());
        if transaction.opens && unknown && is_own {
            // It is unknown whether the session exists. The next attempt has another id, and ends this session.
            self.session.end_unsure(now);
            self.leave_session(now);
            let refusal = Refusal::Store(error.clone());
            for slot in &self.cohorts.pick(None, &|_, cohort| cohort.may_have_stolen()) {
                self.refuse_unsure_thieves(slot, &refusal);
                // What is left asks by itself: the attempt that failed has the priority and the info of the thief.
                self.seek_after_no_answer(slot, now);
            }
            self.seek_what_was_signalled(now);
        } else if transaction.opens && is_own {
            // The session was not opened, so none of its requests needs to be withdrawn.
            self.drop_operations_of_session(now);
        } else if is_own {
            if unknown {
                self.session.note_unanswered(transaction.sent.transaction);
            }
            // The operations may be to blame. So the heartbeat is sent again alone, and judged by its own error.
            let blames_others = !error.retry || matches!(error.kind, StoreErrorKind::TooLarge | StoreErrorKind::Locked);
            if transaction.lease_ms.is_some() && blames_others && transaction.load() > 0 {
                self.session.beat_by_itself();
            } else if transaction.lease_ms.is_some() {
                self.beat_failed(error, now);
            }
        }
        if endings.iter().any(|ending| ending.beat.is_none()) {
            // The store did not refuse to end the session. Another operation of the transaction needed a locked key.
            let is_locked = KEYS_MAY_BE_LOCKED && error.kind == StoreErrorKind::Locked;
            if is_locked && !transaction.operations.is_empty() {
                return self.session.end_later(&endings, now);
            }
            self.end_stale_later(transaction.opens, &endings, error, now);
        }
    }

    /// Messages may report grants before the session is confirmed. If it never is, those requests ask again. Nobody has a guard yet.
    fn seek_what_was_signalled(&mut self, now: Monotonic) {
        for slot in &self.cohorts.pick(None, &|_, cohort| cohort.held().is_some()) {
            self.seek_after_no_answer(slot, now);
        }
    }

    fn seek_after_no_answer(&mut self, slot: &Slot, now: Monotonic) {
        self.seek(slot, now);
        if let Some(seeking) = self.cohorts.change_seeking(slot) {
            seeking.may_be_applied = true;
        }
    }

    /// Sessions that could not be ended are ended later: by each further opening, which would otherwise wait behind them, and by a few
    /// other attempts. A context that stops trying or is suspended asks for a blind delete.
    fn end_stale_later(&mut self, opens: bool, endings: &[Ending], error: &StoreError, now: Monotonic) {
        let failures = self.session.note_stale_failure();
        let tries_again = error.retry && (opens || failures < ATTEMPTS);
        if tries_again {
            let delay_ms = self.backoff_ms(failures);
            self.session.end_later(endings, now.plus(delay_ms));
        } else {
            self.session.forget_stale_failures();
        }
        if !tries_again || self.life.is_suspended() {
            self.abandon(endings);
        }
    }

    /// What the context has not ended yet, including what a transaction in flight is to end.
    pub(super) fn unended(&self) -> Vec<Ending> {
        if !KEYS_MAY_BE_LOCKED {
            return Vec::new();
        }
        let in_flight = self.store_queue.in_flight().map(|transaction| transaction.endings(self.session.id()));
        self.session.unended().chain(in_flight.into_iter().flatten()).collect()
    }

    /// Has the store delete the rows of our own sessions in `endings`, without an answer: somebody may keep them locked.
    // Protocol: docs/protocol.md#s10.
    pub(super) fn abandon(&mut self, endings: &[Ending]) {
        if !KEYS_MAY_BE_LOCKED {
            return;
        }
        for ending in endings.iter().filter(|ending| ending.beat.is_none()) {
            self.emit(Command::Abandon(ending.session));
        }
    }

    /// Reports the failure to the caller, and tries again nevertheless, because the guard is already shared.
    fn downgrade_failed(&mut self, operation: &PendingOperation, error: &StoreError, now: Monotonic) {
        if let Some(query) = operation.turn {
            self.tell_verified(query, Err(error.clone()));
        }
        let mut again = operation.unasked();
        if !error.retry {
            again.keep_to(Company::Nothing);
        }
        self.retry(&again, now);
    }

    // Protocol: docs/protocol.md#i8.
    fn verification_failed(&mut self, operation: &PendingOperation, error: &StoreError, now: Monotonic) {
        if let Some(query) = operation.turn {
            self.tell_verified(query, Err(error.clone()));
            self.hand_out(&operation.slot, now);
        } else if error.retry {
            self.retry(operation, now);
            if operation.attempts + 1 >= ATTEMPTS && self.cohorts.waits_for_queue_only(&operation.slot) {
                self.refuse_tries(&operation.slot);
            }
        } else if matches!(operation.action, Action::Verify { refill: true, .. }) {
            self.refill_failed(&operation.slot, error, now);
        } else {
            // A try may be waiting for the answer.
            self.hand_out(&operation.slot, now);
        }
    }

    /// The grant got no more tokens. Guards stay as they are, and turns that wait for one here are told.
    fn refill_failed(&mut self, slot: &Slot, error: &StoreError, now: Monotonic) {
        let Some(held) = self.cohorts.change_held(slot) else { return };
        held.refilling = false;
        self.fail_waiting(slot, error);
        self.stop_if_unwanted(slot, now);
    }

    /// It is unknown how long the leases will last. Requests without a time limit fail instead of waiting for the store: those behind a
    /// guard of this context at once, the others after a lease.
    pub(super) fn fail_waiting_in_doubt(&mut self, error: &StoreError, now: Monotonic) {
        let lease_ms = self.config.lease_ms;
        for slot in &self.cohorts.pick(None, &|_, cohort| cohort.held().is_some() && !cohort.turns.is_empty()) {
            let Some(held) = self.cohorts.held(slot) else {
                debug_assert!(false, "it was picked because it is held");
                continue;
            };
            let (is_used, request) = (!held.users.is_empty(), held.request);
            let may_still_be_confirmed = !is_used && now.since(held.tenure_since) < lease_ms;
            // If nobody uses the lease, a message reported the grant, and it is for the requests that wait here.
            let error = &error.after(!is_used);
            if may_still_be_confirmed || self.keep_turns_with_limit(slot, error) {
                continue;
            }
            if is_used {
                self.fail_waiting(slot, error);
            } else {
                self.fail_turns(slot, &Refusal::Store(error.clone()));
                self.withdraw_request(slot, request, now);
            }
        }
    }

    /// Fails the turns that have no guard yet. Guards stay in doubt.
    fn fail_waiting(&mut self, slot: &Slot, error: &StoreError) {
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        for turn in &cohort.turns.take_all() {
            self.refuse(turn.id, Refusal::Store(error.clone()));
        }
    }

    // Protocol: docs/protocol.md#s11, #i8.
    fn return_failed(
        &mut self,
        transaction: &Transaction,
        operation: &PendingOperation,
        error: &StoreError,
        now: Monotonic,
    ) {
        let released = error.applied == Applied::Unknown;
        if transaction.session != self.session.id() {
            return self.answer_for_ended_session(operation, now);
        }
        let mut again = operation.clone();
        if let Some(facts) = &mut again.release {
            facts.maybe_released |= released;
        }
        if !error.retry {
            again.keep_to(Company::Nothing);
        }
        again.is_late = again.is_refused() || now.since(operation.since) >= self.operation_limit_ms();
        if again.is_late
            && let Some(turn) = again.turn.take()
        {
            let may_be_released = again.release.is_some_and(|facts| facts.maybe_released);
            self.tell_released(turn, Err(error.after(may_be_released)));
        }
        // Never given up while the session continues, because the session would keep the lease for ever.
        self.retry(&again, now);
    }
}
