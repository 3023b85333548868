//! Requests and looks that failed: they are tried again, or their callers are told.

use super::super::{
    Machine,
    cohorts::STAYS,
    failure::{Applied, StoreError},
    id::RequestId,
    input::Slot,
    output::{LostReason, Refusal},
    pending::{PendingOperation, SecondLook},
    record::Action,
    store_queue::is_ask_for,
    time::Monotonic,
};
use super::ATTEMPTS;

impl Machine {
    // Protocol: docs/protocol.md#rule-6, #i11.
    pub(super) fn ask_failed(
        &mut self,
        request: RequestId,
        operation: &PendingOperation,
        error: &StoreError,
        now: Monotonic,
    ) {
        let limit_ms = self.config.lease_ms;
        let Some(cohort) = self.cohorts.get(&operation.slot) else { return };
        let Some(seeking) = cohort.seeking().filter(|seeking| seeking.request == request) else { return };
        // A request waits for a slow store as it would for a holder.
        let waits_out_a_lease = seeking.queued || (seeking.wait && error.is_slowness());
        let has_hardly_asked = operation.attempts + 1 < ATTEMPTS || self.has_hardly_asked();
        let patience = has_hardly_asked || waits_out_a_lease && now.since(seeking.heard_at) < limit_ms;
        let known_unsent = error.applied == Applied::No && !seeking.retried && !seeking.queued;
        let upgrades = cohort.held().is_some();
        let told = error.after(seeking.queued || seeking.may_be_applied);
        if error.retry && patience {
            self.cohorts.note_retry(&operation.slot);
            return self.retry_ask(operation, request, now);
        }
        if !upgrades && self.keep_turns_with_limit(&operation.slot, &told) {
            self.cohorts.note_retry(&operation.slot);
            return self.retry_for_the_rest(operation, request, now);
        }
        if upgrades {
            return self.upgrade_failed(operation, &told, known_unsent, now);
        }
        self.fail_turns(&operation.slot, &Refusal::Store(told));
        if !known_unsent {
            self.withdraw_request(&operation.slot, request, now);
        }
    }

    /// Tries again, unless a newer attempt is still to be sent: the older attempt must not come after the newer one.
    fn retry_ask(&mut self, operation: &PendingOperation, request: RequestId, now: Monotonic) {
        if !self.store_queue.will_send_for(&operation.slot.key, is_ask_for(request)) {
            self.retry(operation, now);
        }
    }

    /// Tries again for the turns that are left. They may want less than those that went: none may steal, and their priority may be smaller.
    // Protocol: docs/protocol.md#p3.
    fn retry_for_the_rest(&mut self, operation: &PendingOperation, request: RequestId, now: Monotonic) {
        if let Some(cohort) = self.cohorts.change(&operation.slot) {
            cohort.rob_no_more();
        }
        let Some(acquire) = self.cohorts.request(&operation.slot) else {
            return debug_assert!(false, "the request that failed is there");
        };
        if let Some(seeking) = self.cohorts.change_seeking(&operation.slot) {
            seeking.priority = acquire.priority;
        }
        let again = PendingOperation { action: Action::Acquire(acquire), ..operation.clone() };
        self.retry_ask(&again, request, now);
    }

    /// Tells the guard that its upgrade failed. The store may have upgraded the lease nevertheless, and a withdrawal would remove it. So
    /// the request continues until the store answers.
    fn upgrade_failed(&mut self, operation: &PendingOperation, error: &StoreError, unsent: bool, now: Monotonic) {
        let refusal = Refusal::Store(error.clone());
        if unsent {
            return self.end_upgrade(&operation.slot, refusal, now);
        }
        if !error.retry {
            return self.lose(&operation.slot, LostReason::by_failure(error), now);
        }
        let upgrade = self.cohorts.change_held(&operation.slot).and_then(|held| held.upgrade.as_mut());
        let Some(upgrade) = upgrade else { return debug_assert!(false, "the request that failed is its own") };
        let awaited = upgrade.awaited();
        (upgrade.cancelled, upgrade.again) = (true, None);
        let Some(seeking) = upgrade.seeking.as_mut() else {
            return debug_assert!(false, "the request that failed is there");
        };
        (seeking.wait, seeking.retried) = (false, true);
        let request = seeking.request;
        if let Some(query) = awaited {
            self.refuse(query, refusal);
        }
        self.retry_ask(operation, request, now);
    }

    // Protocol: docs/protocol.md#e, #i11.
    pub(super) fn ask_all_failed(&mut self, operation: &PendingOperation, error: &StoreError, now: Monotonic) {
        // A call that waits for several keys is as patient as one that waits for a single key.
        let waits_out_a_lease = operation.second_look == SecondLook::Skipped && error.is_slowness();
        let is_early = waits_out_a_lease && now.since(operation.since) < self.config.lease_ms;
        let is_patient = operation.attempts + 1 < ATTEMPTS || self.has_hardly_asked() || is_early;
        // All turns of one call share its time limit, so either all of them stay or none.
        let may_be_applied = |slot| self.cohorts.seeking(slot).is_some_and(|seeking| seeking.may_be_applied);
        let told = error.after(operation.all.iter().any(may_be_applied));
        if error.retry && (is_patient || operation.all.iter().all(|slot| self.keep_turns_with_limit(slot, &told))) {
            operation.all.iter().for_each(|slot| self.cohorts.note_retry(slot));
            return self.retry(operation, now);
        }
        let Action::AcquireAll(asks) = &operation.action else {
            return debug_assert!(false, "it is called for several keys only");
        };
        for (slot, (_, ask)) in operation.all.iter().zip(asks) {
            self.fail_turns(slot, &Refusal::Store(told.clone()));
            self.withdraw_request(slot, ask.request, now);
        }
    }

    /// Fails the requests in the queue that the store has not answered for a whole lease. If a retry cannot help, it fails all of them.
    // Protocol: docs/protocol.md#i11.
    pub(super) fn look_failed(&mut self, operation: &PendingOperation, error: &StoreError, now: Monotonic) {
        let lease_ms = self.config.lease_ms;
        for slot in &self.cohorts.pick(Some(&operation.slot.key), &|_, cohort| cohort.waits()) {
            let Some(cohort) = self.cohorts.get(slot) else {
                debug_assert!(false, "{STAYS}");
                continue;
            };
            let Some(seeking) = cohort.seeking() else { continue };
            if error.retry && (self.has_hardly_asked() || now.since(seeking.heard_at) < lease_ms) {
                continue;
            }
            let request = seeking.request;
            // The queue entry remains, and may have become a grant.
            let told = error.after(true);
            if cohort.held().is_some() {
                self.give_up_upgrade(slot, &told, now);
            } else if self.keep_turns_with_limit(slot, &told) {
                self.want_less(slot, now);
            } else {
                self.fail_turns(slot, &Refusal::Store(told));
                self.withdraw_request(slot, request, now);
            }
        }
        if error.retry {
            self.retry(operation, now);
        }
    }

    /// Tells a guard that waits for an upgrade, too. The guard stays shared.
    fn give_up_upgrade(&mut self, slot: &Slot, error: &StoreError, now: Monotonic) {
        let upgrade = self.cohorts.held(slot).and_then(|held| held.upgrade.as_ref());
        if let Some(query) = upgrade.and_then(|upgrade| upgrade.awaited()) {
            self.refuse(query, Refusal::Store(error.clone()));
            self.cancel_upgrade(query, slot, now);
        }
    }

    /// If the store may answer again, only the turns with a time limit go on waiting. This refuses the others, which would wait for ever.
    /// Returns whether any turn is left.
    // Protocol: docs/protocol.md#i11.
    pub(super) fn keep_turns_with_limit(&mut self, slot: &Slot, error: &StoreError) -> bool {
        if !error.may_pass() {
            return false;
        }
        let Some(cohort) = self.cohorts.change(slot) else { return false };
        let (unlimited, anybody_left) = (cohort.turns.take_unlimited(), !cohort.turns.is_empty());
        unlimited.iter().for_each(|turn| self.refuse(turn.id, Refusal::Store(error.clone())));
        anybody_left
    }
}
