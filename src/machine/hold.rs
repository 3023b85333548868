//! Holding a lease: hand it from turn to turn, renew it, doubt it, give it back, lose it.

use super::{
    Machine,
    id::RequestId,
    key::Key,
    operation::Action,
    outbox::{Sent, is_renewal_of},
    place::{Held, Place, Stage},
    port::{LostReason, Output, ReleaseOutcome, TurnId},
    time::Monotonic,
    token::{Token, TokenBlock},
};

impl Machine {
    /// A grant is believed, counted from `sent`.
    pub(super) fn hold(&mut self, key: &Key, request: RequestId, grant: Grant, now: Monotonic) {
        let Some(place) = self.places.change(key) else { return };
        let mut held = Held::new(request, grant.block, grant.sent, grant.lease_ms, now);
        held.contended = place.contended(grant.sent, grant.contended);
        held.doubted = self.doubted.filter(|doubted| grant.sent.flight <= *doubted);
        let in_doubt = held.doubted.is_some();
        place.stage = Stage::Held(held);
        self.hand_out(key, now);
        self.beat_by(grant.sent.at);
        if in_doubt {
            self.renew(key, None, now);
        }
    }

    /// Gives the lease to the next turn, if it is free and beyond doubt.
    pub(super) fn hand_out(&mut self, key: &Key, now: Monotonic) {
        let Some(Place { turns, stage: Stage::Held(held), .. }) = self.places.change(key) else { return };
        if held.user.is_some() || held.belief_left(now) == 0 || turns.is_empty() {
            return;
        }
        let turn = turns.remove(0);
        let token = held.next_token;
        held.next_token = token.next();
        held.user = Some(turn.id);
        self.emit(Output::Granted { turn: turn.id, token });
        self.refuse_tries(key);
    }

    pub(super) fn release(&mut self, turn: TurnId, key: &Key, now: Monotonic) {
        let max_tenure_ms = self.config.max_tenure_ms;
        let max_handoffs = self.config.max_local_handoffs;
        let lost = Output::Released { turn, result: Ok(ReleaseOutcome::Lost) };
        let Some(Place { turns, stage, .. }) = self.places.change(key) else { return self.emit(lost) };
        let Stage::Held(held) = stage else { return self.emit(lost) };
        if held.user != Some(turn) {
            return self.emit(lost);
        }
        held.user = None;
        let within_tenure = held.handoffs < max_handoffs && now.since(held.tenure_since) < max_tenure_ms;
        let may_keep = held.next_token <= held.block.last && (within_tenure || !held.contended);
        if may_keep && !turns.is_empty() && held.belief_left(now) > 0 {
            held.handoffs += 1;
            self.emit(Output::Released { turn, result: Ok(ReleaseOutcome::Released) });
            return self.hand_out(key, now);
        }
        let held = held.clone();
        self.give_back(key, &held, Some(turn), now);
        // In the same transaction: whoever waits elsewhere is granted first.
        self.seek(key, now);
    }

    /// Sends the release. Renewals that were not sent yet need not go.
    pub(super) fn give_back(&mut self, key: &Key, held: &Held, turn: Option<TurnId>, now: Monotonic) {
        self.drop_renewals(key, held.block.first);
        let release = Action::Release { token: held.block.first, request: held.request };
        self.outbox.push(key, release, turn, now).believed_until = now.plus(held.belief_left(now));
    }

    fn drop_renewals(&mut self, key: &Key, token: Token) {
        for errand in self.outbox.recall(key, is_renewal_of(token)) {
            if let Some(query) = errand.turn {
                self.emit(Output::Verified { query, result: Ok(false) });
            }
        }
    }

    /// Sends a renewal, for the heartbeat or to answer a question.
    pub(super) fn renew(&mut self, key: &Key, query: Option<TurnId>, now: Monotonic) {
        let lease_ms = self.config.lease_ms;
        let Some(held) = self.places.get(key).and_then(Place::held) else { return };
        let token = held.block.first;
        let renewal = Action::Renew { token, beat: 0, beacon: 0, lease_ms };
        if query.is_none() {
            self.outbox.recall_plain(key, is_renewal_of(token));
        }
        self.outbox.push(key, renewal, query, now);
    }

    pub(super) fn verify(&mut self, query: TurnId, turn: TurnId, key: &Key, now: Monotonic) {
        let held = self.places.get(key).and_then(Place::held);
        if held.is_some_and(|held| held.user == Some(turn)) {
            self.renew(key, Some(query), now);
        } else {
            self.emit(Output::Verified { query, result: Ok(false) });
        }
    }

    /// The store confirmed what was sent at `sent`.
    pub(super) fn confirm(&mut self, key: &Key, token: Token, confirmed: Confirmed, now: Monotonic) {
        let Some(place) = self.places.change(key) else { return };
        let contended = place.contended(confirmed.sent, confirmed.contended);
        let Some(held) = place.held_mut() else { return };
        if held.block.first == token {
            held.confirm(confirmed.sent, confirmed.lease_ms, now);
            held.contended = contended;
            self.hand_out(key, now);
        }
    }

    /// The lease is gone. The request is withdrawn too, and the turns that still wait ask anew.
    pub(super) fn lose(&mut self, key: &Key, reason: LostReason, now: Monotonic) {
        let Some(place) = self.places.change(key).filter(|place| place.held().is_some()) else { return };
        let Stage::Held(held) = core::mem::take(&mut place.stage) else { return };
        self.drop_renewals(key, held.block.first);
        if let Some(turn) = held.user {
            self.emit(Output::Lost { turn, reason });
        }
        self.withdraw_request(key, held.request, now);
        self.seek(key, now);
    }

    /// Time passed otherwise than it should: nothing is believed until the store has answered.
    pub(super) fn suspect_all(&mut self, now: Monotonic) {
        self.doubted = Some(self.outbox.last_flight());
        for key in self.places.keys() {
            self.suspect(&key, now);
        }
    }

    pub(super) fn suspect(&mut self, key: &Key, now: Monotonic) {
        let last_flight = self.outbox.last_flight();
        let Some(held) = self.places.change(key).and_then(Place::held_mut) else { return };
        held.doubted = Some(last_flight);
        self.tell_suspect(key);
        self.renew(key, None, now);
    }

    /// What ran out by the holder's own clock is in doubt, not lost: nobody may have taken it yet.
    pub(super) fn doubt_if_expired(&mut self, key: &Key, now: Monotonic) {
        let expired = self.places.get(key).and_then(Place::belief_ends).is_some_and(|end| end <= now);
        if !expired {
            return;
        }
        self.tell_suspect(key);
        if !self.outbox.carries(key, |action| matches!(action, Action::Renew { .. })) {
            self.renew(key, None, now);
        }
    }

    fn tell_suspect(&mut self, key: &Key) {
        let Some(held) = self.places.change(key).and_then(Place::held_mut) else { return };
        if !held.told_suspect {
            held.told_suspect = true;
            if let Some(turn) = held.user {
                self.emit(Output::Suspect { turn });
            }
        }
    }
}

/// A grant as an answer or a signal tells it.
pub(super) struct Grant {
    pub(super) block: TokenBlock,
    pub(super) lease_ms: u64,
    pub(super) sent: Sent,
    pub(super) contended: bool,
}

/// A renewal that the store confirmed.
#[derive(Clone, Copy)]
pub(super) struct Confirmed {
    pub(super) sent: Sent,
    pub(super) lease_ms: u64,
    pub(super) contended: bool,
}
