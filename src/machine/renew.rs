//! Keeping a lease: renew it, doubt it, dispel the doubt.

use super::{
    Machine,
    codec::Unreadable,
    config::{belief_ms, lease_for_belief_ms},
    operation::{Action, Outcome},
    outbox::{Sent, is_renewal_of},
    place::{Held, Place},
    port::{LostReason, Output, Slot, TurnId},
    time::Monotonic,
    token::Token,
};

impl Machine {
    /// Sends a renewal, for the heartbeat or to answer a question. What it says is filled in when it goes.
    pub(super) fn renew(&mut self, slot: &Slot, query: Option<TurnId>, now: Monotonic) {
        let Some(token) = self.places.held(slot).map(|held| held.grant) else { return };
        if query.is_none() {
            self.outbox.recall_plain(slot, is_renewal_of(token));
        }
        self.push_renewal(slot, query, now);
    }

    /// An heir's first lease is short. A turn that is over in a moment needs no longer one, and its release has no renewal
    /// to wait for; one that is not is renewed well before the lease is.
    pub(super) fn settle_heir(&mut self, slot: &Slot, now: Monotonic) {
        let tenure_ms = self.config.max_tenure_ms;
        let spare_ms = tenure_ms + self.config.store_timeout_ms.min(self.config.heartbeat_ms / 2);
        match self.places.change_held(slot) {
            Some(held) if held.belief_left(now) > spare_ms => held.settles_at = Some(now.plus(tenure_ms)),
            _ => self.renew(slot, None, now),
        }
    }

    pub(super) fn settle_heir_if_due(&mut self, slot: &Slot, now: Monotonic) {
        if self.places.held(slot).and_then(|held| held.settles_at).is_some_and(|at| at <= now) {
            self.renew(slot, None, now);
        }
    }

    /// Sends a renewal beside those that wait to be sent.
    pub(super) fn push_renewal(&mut self, slot: &Slot, query: Option<TurnId>, now: Monotonic) {
        let Some(held) = self.places.change_held(slot) else { return };
        held.settles_at = None;
        let renewal = Action::Renew { token: held.grant, beat: 0, beacon: 0, lease_ms: 0, refill: false };
        self.outbox.push(slot, renewal, query, now);
    }

    /// The lease that a renewal asks for when it is sent; one that it shortens is not believed longer from then on.
    pub(super) fn renewal_lease_ms(&mut self, slot: &Slot, sent: Sent) -> (u64, bool) {
        let lease_ms = self.config.lease_ms;
        let Some(held) = self.places.change_held(slot) else { return (lease_ms, false) };
        let lease_ms = match held.extended_until.since(sent.at) {
            0 => lease_ms,
            left_ms => lease_ms.max(lease_for_belief_ms(left_ms)),
        };
        held.valid_until = held.valid_until.min(sent.at.plus(belief_ms(lease_ms)));
        held.asked_ms = lease_ms;
        (lease_ms, held.refilling)
    }

    pub(super) fn verify(&mut self, query: TurnId, turn: TurnId, slot: &Slot, span_ms: u64, now: Monotonic) {
        let held = self.places.change_held(slot).filter(|held| held.is_used_by(turn));
        let Some(held) = held else { return self.tell_verified(query, Ok(false)) };
        held.extended_until = held.extended_until.max(now.plus(span_ms));
        self.renew(slot, Some(query), now);
    }

    /// What the store says to a renewal.
    pub(super) fn renewed(&mut self, slot: &Slot, token: Token, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let Some(held) = self.places.change_held(slot).filter(|held| held.grant == token) else { return };
        if matches!(outcome, Outcome::NotCurrent { .. }) && held.asks_for_upgrade() {
            // It may have been upgraded by a transaction of another context: that the request can tell.
            held.doubted = held.doubted.max(Some(sent.flight.saturating_sub(1)));
            return self.ask(slot, now);
        }
        self.judge_renewal(slot, token, outcome, sent, now);
    }

    pub(super) fn judge_renewal(&mut self, slot: &Slot, token: Token, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let Some(held) = self.places.change_held(slot).filter(|held| held.grant == token) else { return };
        let valid = now < held.valid_until;
        if let Outcome::Renewed { lease_ms, contended, refill } = *outcome {
            if let Some(more) = refill.filter(|_| core::mem::take(&mut held.refilling)) {
                (held.next_token, held.last_token) = (more.first, more.last);
                self.hands.refilled(&slot.key, slot.mode, more.last);
            }
            return self.confirm(slot, token, Confirmed { sent, lease_ms, contended }, now);
        }
        self.lose(slot, outcome.loss(token, valid), now);
    }

    /// The store confirmed what was sent at `sent`.
    pub(super) fn confirm(&mut self, slot: &Slot, token: Token, confirmed: Confirmed, now: Monotonic) {
        let Some(place) = self.places.change(slot) else { return };
        let contended = place.contended(confirmed.sent, confirmed.contended);
        let Some(held) = place.held_mut().filter(|held| held.grant == token) else { return };
        let certain = held.confirm(confirmed.sent, confirmed.lease_ms, now);
        held.contended = contended;
        if certain {
            for user in &held.users {
                self.outputs.push(Output::Certain { turn: user.turn });
            }
        }
        if contended {
            self.end_linger(slot, false, now);
        }
        self.hand_out(slot, now);
        // Whoever it was for may have gone while it was in doubt.
        self.stop_if_unwanted(slot, now);
    }

    /// Time passed otherwise than it should: nothing is believed until the store has answered.
    pub(super) fn suspect_all(&mut self, now: Monotonic) {
        self.doubted = Some(self.outbox.last_flight());
        for slot in &self.places.slots() {
            self.suspect(slot, now);
        }
    }

    pub(super) fn suspect(&mut self, slot: &Slot, now: Monotonic) {
        let last_flight = self.outbox.last_flight();
        let Some(held) = self.places.change_held(slot) else { return };
        held.doubted = Some(last_flight);
        self.tell_suspect(slot);
        self.renew(slot, None, now);
    }

    /// What ran out by the holder's own clock is in doubt, not lost: nobody may have taken it yet. Who holds a lock cannot
    /// ask whether it is in doubt: unless the store was not asked yet, it is lost.
    pub(super) fn doubt_if_expired(&mut self, slot: &Slot, now: Monotonic) {
        let expired = self.places.get(slot).and_then(Place::belief_ends).is_some_and(|end| end <= now);
        if !expired {
            return;
        }
        self.tell_suspect(slot);
        if !self.outbox.carries(slot, |action| matches!(action, Action::Renew { .. })) {
            self.renew(slot, None, now);
        } else if slot.key.is_of_lock() {
            self.lose(slot, LostReason::Expired, now);
        }
    }

    fn tell_suspect(&mut self, slot: &Slot) {
        let Some(held) = self.places.change_held(slot) else { return };
        if !core::mem::replace(&mut held.told_suspect, true) {
            for user in &held.users {
                self.outputs.push(Output::Suspect { turn: user.turn });
            }
        }
    }

    /// How long the guard of this turn is still valid, in ms; 0 if it is lost, released or in doubt.
    pub fn remaining_ms(&self, turn: TurnId, slot: &Slot, now: super::Now) -> u64 {
        match self.places.held(slot).filter(|held| held.is_used_by(turn)) {
            Some(held) if !self.clocks.in_doubt(now, &self.config) => held.remaining_ms(turn, now.monotonic),
            _ => 0,
        }
    }
}

impl Outcome {
    /// Why a lease is lost of which a store says this. `valid` tells whether its holder believed in it.
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

/// A renewal that the store confirmed.
#[derive(Clone, Copy)]
pub(super) struct Confirmed {
    pub(super) sent: Sent,
    pub(super) lease_ms: u64,
    pub(super) contended: bool,
}

impl Held {
    /// How long one of its users may go on believing, in ms.
    fn remaining_ms(&self, turn: TurnId, now: Monotonic) -> u64 {
        let end = self.users.iter().find(|user| user.turn == turn).and_then(|user| user.ends_at);
        self.belief_left(now).min(end.map_or(u64::MAX, |end| end.since(now)))
    }
}
