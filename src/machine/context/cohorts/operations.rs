//! What the cohorts say of the operations that go to the store: whether they are still wanted, and what they must carry.

use alloc::string::String;

use super::super::{
    cohort::Cohort,
    id::RequestId,
    input::Slot,
    mode::Mode,
    pending::{PendingOperation, Sent},
    record::{Acquire, Action, Operation, Way},
};
use super::Cohorts;

impl Cohorts {
    /// Whether an operation must still be sent, or became obsolete while it waited.
    pub(in super::super) fn still_want(&self, operation: &PendingOperation) -> bool {
        let cohort = self.get(&operation.slot);
        let seeks = |slot: &Slot, request| self.seeking(slot).is_some_and(|seeking| seeking.request == request);
        match &operation.action {
            Action::Acquire(ask) => seeks(&operation.slot, ask.request),
            Action::AcquireAll(asks) => operation.all.iter().zip(asks).all(|(slot, (_, ask))| seeks(slot, ask.request)),
            Action::Verify { token, .. } | Action::Downgrade { token, .. } => {
                operation.turn.is_some() || cohort.and_then(Cohort::held).is_some_and(|held| held.grant == *token)
            }
            Action::End { .. } => cohort.is_some_and(|cohort| cohort.seeking().is_some() || cohort.waits()),
            Action::Look => !self.pick(Some(&operation.slot.key), &|_, cohort| cohort.waits()).is_empty(),
            Action::Release { .. }
            | Action::Withdraw { .. }
            | Action::Detach { .. }
            | Action::Inspect
            | Action::Fence { .. } => true,
        }
    }

    /// Whether the operation probably needs no row of another session, and of its own session's row only that it exists. A request
    /// that was sent before may have been granted and then stolen, and so may what the context holds of the key: only the row says so.
    // Protocol: docs/protocol.md#s8, #s17.
    pub(in super::super) fn are_sure_of(&self, operation: &PendingOperation) -> bool {
        if !operation.acquires() {
            return !operation.release.is_some_and(|facts| facts.contended);
        }
        let seeking = self.seeking(&operation.slot);
        let is_held = |_: &Slot, cohort: &Cohort| cohort.held().is_some();
        seeking.is_some_and(|seeking| !seeking.sent) && self.pick(Some(&operation.slot.key), &is_held).is_empty()
    }

    /// What the request under way at a slot asks of the store.
    pub(in super::super) fn request(&self, slot: &Slot) -> Option<Acquire> {
        let cohort = self.get(slot)?;
        let seeking = cohort.seeking()?;
        let upgrades = matches!(seeking.way, Way::Upgrade { .. });
        let first = cohort.turns.first().filter(|_| !upgrades);
        Some(Acquire {
            request: seeking.request,
            mode: if upgrades { Mode::Exclusive } else { slot.mode },
            wait: seeking.wait,
            priority: first.map_or(0, |turn| turn.priority),
            way: seeking.way,
            alone: slot.own.is_some(),
            attempt: 0,
            info: first.map_or_else(String::new, |turn| turn.info.clone()),
        })
    }

    /// Fills in what must be true at the time of sending.
    pub(in super::super) fn stamp(&mut self, operation: &mut PendingOperation, sent: Sent) -> Operation {
        match &mut operation.action {
            Action::Acquire(ask) => {
                self.renew_ask(&operation.slot, ask);
                self.stamp_ask(&operation.slot, ask, sent);
            }
            Action::AcquireAll(asks) => {
                for (slot, (_, ask)) in operation.all.iter().zip(asks) {
                    self.stamp_ask(slot, ask, sent);
                }
            }
            Action::Verify { refill, .. } => {
                *refill = self.held(&operation.slot).is_some_and(|held| held.refilling);
            }
            Action::Downgrade { .. }
            | Action::Detach { .. }
            | Action::Release { .. }
            | Action::Withdraw { .. }
            | Action::End { .. }
            | Action::Look
            | Action::Inspect
            | Action::Fence { .. } => {}
        }
        Operation { key: operation.slot.key.clone(), action: operation.action.clone() }
    }

    /// Updates an attempt that failed before it is sent again: since then, callers may have joined its request or given it up.
    fn renew_ask(&self, slot: &Slot, ask: &mut Acquire) {
        let seeking = self.seeking(slot);
        if let Some(seeking) = seeking.filter(|seeking| seeking.request == ask.request) {
            (ask.wait, ask.priority, ask.way) = (seeking.wait, seeking.priority, seeking.way);
        }
    }

    // Protocol: docs/protocol.md#s11.
    fn stamp_ask(&mut self, slot: &Slot, ask: &mut Acquire, sent: Sent) {
        ask.attempt = sent.transaction;
        let seeking = self.change_seeking(slot);
        if let Some(seeking) = seeking.filter(|seeking| seeking.request == ask.request) {
            seeking.sent = true;
            seeking.thefts += u32::from(ask.way == Way::Steal);
        }
    }

    /// Notes that this attempt at a lease may have been applied.
    pub(in super::super) fn note_unanswered(&mut self, operation: &PendingOperation) {
        match &operation.action {
            Action::Acquire(ask) => self.note_unanswered_ask(&operation.slot, ask.request),
            Action::AcquireAll(asks) => {
                for (slot, (_, ask)) in operation.all.iter().zip(asks) {
                    self.note_unanswered_ask(slot, ask.request);
                }
            }
            Action::Verify { .. }
            | Action::Downgrade { .. }
            | Action::Detach { .. }
            | Action::Release { .. }
            | Action::Withdraw { .. }
            | Action::End { .. }
            | Action::Look
            | Action::Inspect
            | Action::Fence { .. } => {}
        }
    }

    fn note_unanswered_ask(&mut self, slot: &Slot, request: RequestId) {
        if let Some(seeking) = self.change_seeking(slot).filter(|seeking| seeking.request == request) {
            seeking.may_be_applied = true;
        }
    }

    /// Notes that an attempt failed.
    pub(in super::super) fn note_retry(&mut self, slot: &Slot) {
        if let Some(seeking) = self.change_seeking(slot) {
            seeking.retried = true;
        }
    }

    /// A theft was certainly not carried out, so it does not count.
    pub(in super::super) fn uncount_theft(&mut self, operation: &PendingOperation) {
        if let Action::Acquire(Acquire { request, way: Way::Steal, .. }) = operation.action
            && let Some(seeking) = self.change_seeking(&operation.slot)
            && seeking.request == request
        {
            seeking.thefts = seeking.thefts.saturating_sub(1);
        }
    }
}
