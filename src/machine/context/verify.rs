//! Asks the store whether a lease is current.

use super::{
    Machine,
    cohort::Cohort,
    cohorts::STAYS,
    config::belief_ms,
    input::{Slot, TurnId},
    output::{LostReason, Refusal},
    pending::{PendingOperation, Sent},
    record::{Action, Outcome, Unreadable},
    store_queue::is_verification,
    time::Monotonic,
    token::{Token, TokenBlock},
};

impl Machine {
    /// Verifies a lease for a user, and extends it by the span. The answer comes with a heartbeat.
    pub(super) fn verify(&mut self, query: TurnId, turn: TurnId, slot: &Slot, span_ms: u64, now: Monotonic) {
        let held = self.cohorts.held(slot).filter(|held| held.is_used_by(turn));
        if held.is_none() {
            return self.tell_verified(query, Ok(false));
        }
        if span_ms > 0 {
            self.session.extend(slot, now.plus(span_ms));
        }
        self.ask_whether_current(slot, Some(query), now);
        self.session.want_beat();
    }

    /// Asks whether the grant itself is current, and reserves more tokens if they are needed.
    pub(super) fn ask_whether_current(&mut self, slot: &Slot, query: Option<TurnId>, now: Monotonic) {
        let Some(held) = self.cohorts.change_untracked(slot).and_then(Cohort::held_mut) else { return };
        held.is_asked_about = true;
        let verify = Action::Verify { token: held.grant, request: held.request, refill: held.refilling };
        self.store_queue.push(slot, verify, query, now);
    }

    /// A heartbeat does not read the records. If the store lost a grant but not the session, the context would consider it valid for ever.
    /// Also, the message of a grant may be lost while the connection is replaced, and nobody sends it again.
    // Protocol: docs/protocol.md#k.
    pub(super) fn recheck(&mut self, now: Monotonic) {
        let (held, waiting) = (self.cohorts.slots(), self.cohorts.waiting());
        self.ask_about(&held, now);
        self.look_at_each(&waiting, now);
        self.release_again(now);
    }

    /// Asks whether each of these grants is current, unless that query is still to be sent.
    pub(super) fn ask_about(&mut self, slots: &[Slot], now: Monotonic) {
        // One search for all of them, because a context may hold thousands.
        let asked = self.store_queue.unsent(slots, is_verification);
        for slot in slots {
            if asked.binary_search(slot).is_err() {
                self.ask_whether_current(slot, None, now);
            }
        }
    }

    /// Reserves more tokens, because they are used up. The turns wait for them.
    pub(super) fn refill(&mut self, slot: &Slot, now: Monotonic) {
        let Some(held) = self.cohorts.change_held(slot) else {
            return debug_assert!(false, "what has no tokens left is held");
        };
        if !core::mem::replace(&mut held.refilling, true) {
            self.ask_whether_current(slot, None, now);
        }
    }

    /// Handles the answer about a grant.
    pub(super) fn verified(
        &mut self,
        operation: &PendingOperation,
        token: Token,
        outcome: &Outcome,
        sent: Sent,
        now: Monotonic,
    ) {
        let slot = &operation.slot;
        if let Some(held) = self.cohorts.change_untracked(slot).and_then(Cohort::held_mut) {
            held.is_asked_about = false;
        }
        let former = self.cohorts.held(slot).is_some_and(|held| held.may_have_grown_out_of(token));
        let asked_for_tokens = matches!(operation.action, Action::Verify { refill: true, .. });
        self.judge(slot, token, outcome, asked_for_tokens, sent, now);
        let Some(query) = operation.turn else { return };
        if matches!(outcome, Outcome::Current { .. }) {
            self.renew_users(slot, token, sent);
        }
        if matches!(outcome, Outcome::NotCurrent { .. }) && former && self.cohorts.held(slot).is_some() {
            // The question went out before the lease got new tokens.
            return self.ask_whether_current(slot, Some(query), now);
        }
        self.tell_verified(query, Ok(matches!(outcome, Outcome::Current { .. })));
    }

    /// A user's question renews a lease that is not renewed automatically. A question that the context asks by itself does not.
    fn renew_users(&mut self, slot: &Slot, token: Token, sent: Sent) {
        let usual = sent.at.plus(belief_ms(self.config.lease_ms));
        let until = self.session.extended_until(slot).map_or(usual, |extended| extended.max(usual));
        if let Some(held) = self.cohorts.change_held(slot)
            && held.grant == token
        {
            held.renew_users(until);
        }
    }

    fn judge(
        &mut self,
        slot: &Slot,
        token: Token,
        outcome: &Outcome,
        asked_for_tokens: bool,
        sent: Sent,
        now: Monotonic,
    ) {
        let Some(held) = self.cohorts.held(slot).filter(|held| held.grant == token) else { return };
        if matches!(outcome, Outcome::NotCurrent { .. }) && held.asks_for_upgrade() {
            // It may have been upgraded by a transaction of another context, which the answer to its request will tell.
            return self.ask(slot, now);
        }
        match *outcome {
            Outcome::Current { contended, refill } => {
                if refill.is_none() && asked_for_tokens {
                    self.fail_without_tokens(slot);
                }
                self.found_current(slot, refill, contended, sent, now);
            }
            _ => self.judge_loss(slot, token, outcome, now),
        }
    }

    /// The key has used up its tokens. Guards stay valid, and no turn gets another one.
    fn fail_without_tokens(&mut self, slot: &Slot) {
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let turns = cohort.turns.take_all();
        if let Some(held) = cohort.held_mut() {
            held.refilling = false;
        }
        turns.iter().for_each(|turn| self.refuse(turn.id, Refusal::Exhausted));
    }

    fn found_current(&mut self, slot: &Slot, refill: Option<TokenBlock>, contended: bool, sent: Sent, now: Monotonic) {
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let contended = cohort.note_contention(sent, contended);
        let Some(held) = cohort.held_mut() else { return debug_assert!(false, "the answer is for this lease") };
        held.contended = contended;
        if let Some(more) = refill
            && core::mem::take(&mut held.refilling)
        {
            (held.next_token, held.last_token) = (more.first, more.last);
            self.last_writers.refilled(&slot.key, slot.mode, more.last);
        }
        if contended {
            self.end_linger(slot, None, now);
        }
        self.hand_out(slot, now);
        self.stop_if_unwanted(slot, now);
    }

    /// The store does not have the grant.
    pub(super) fn judge_loss(&mut self, slot: &Slot, token: Token, outcome: &Outcome, now: Monotonic) {
        let valid = self.session.was_valid(now);
        // The grant of an upgrade that this context never learned of may have been stolen.
        let stolen = self.session.was_robbed_since(&slot.key, token);
        let reason = if stolen { LostReason::Stolen } else { outcome.loss(token, valid) };
        self.lose(slot, reason, now);
    }
}

impl Outcome {
    /// Why a lease is lost, according to this answer of the store. `valid` tells whether its holder still considered it valid.
    pub(super) fn loss(&self, token: Token, valid: bool) -> LostReason {
        match *self {
            Self::NotCurrent { last_token, .. } if last_token < token => LostReason::StoreCleared,
            Self::NotCurrent { stolen: true, .. } => LostReason::Stolen,
            Self::NotCurrent { .. } if valid => LostReason::Evicted,
            Self::Unreadable(Unreadable::FormatTooNew { .. }) => LostReason::FormatTooNew,
            Self::Unreadable(_) => LostReason::StoreFailed,
            _ => LostReason::Expired,
        }
    }
}
