//! Fenced writes: what a user's transaction must check to commit only while a guard's lease is current.

use alloc::vec::Vec;

use super::{
    Machine,
    config::{belief_ms, lease_for_belief_ms},
    id::StoreId,
    operation::{Action, Answer, Batch, Operation, Outcome},
    outbox::Sent,
    port::{LostReason, Slot, TurnId},
    renew::Confirmed,
    time::{Monotonic, Now},
    token::Token,
};

/// What a transaction must apply and find, so that what else it writes is fenced: made by [`Machine::ticket`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The fence, and the renewal that goes with it.
    pub batch: Batch,
    store: StoreId,
    token: Token,
    sent: Sent,
}

impl Ticket {
    /// Whether a renewal goes with it.
    pub fn renews(&self) -> bool {
        self.batch.0.len() > 1
    }

    /// What the store said to the renewal.
    fn renewal(answers: &[Answer]) -> Option<&Outcome> {
        answers.get(1).map(|answer| &answer.outcome)
    }
}

impl Machine {
    /// What a transaction that is about to begin must check for this guard; with a renewal, if wanted. `None` for a guard
    /// that was given back, handed on or lost.
    ///
    /// A renewal may come back in an [`Input::Fenced`](super::Input::Fenced), once the transaction is committed. After it
    /// was asked for, the machine wants to be handed an input.
    pub fn ticket(&mut self, turn: TurnId, slot: &Slot, renew: bool, now: Now) -> Option<Ticket> {
        let held = self.places.held(slot).filter(|held| held.is_used_by(turn))?;
        let (store, token, request) = (self.store?, held.grant, held.request);
        let holder = self.me;
        let operation = |action| Operation { key: slot.key.clone(), holder, action };
        let mut batch = Batch(Vec::from([operation(Action::Fence { token, request })]));
        // By this number it is told what was sent before it, and what after.
        let sent = self.outbox.sent_elsewhere(now.monotonic, renew);
        if renew {
            let lease_ms = self.fenced_lease_ms(slot, token, sent);
            let (beat, beacon) = (self.next_beat(), self.presence.flag());
            self.places.change_held(slot)?.asked_ms = lease_ms;
            batch.0.push(operation(Action::Renew { token, beat, beacon, lease_ms, refill: false }));
        }
        Some(Ticket { batch, store, token, sent })
    }

    /// Unlike any other renewal, this one may be sent while another is under way. It asks for no less than that one, which
    /// may be answered last.
    fn fenced_lease_ms(&mut self, slot: &Slot, token: Token, sent: Sent) -> u64 {
        let (mut lease_ms, _) = self.renewal_lease_ms(slot, sent);
        let Some((earlier, errands)) = self.outbox.in_flight() else { return lease_ms };
        for errand in errands {
            let Action::Renew { token: renewed, lease_ms: asked_ms, .. } = errand.action else { continue };
            let left_ms = earlier.at.plus(belief_ms(asked_ms)).since(sent.at);
            if (&errand.slot, renewed) == (slot, token) && left_ms > belief_ms(lease_ms) {
                lease_ms = lease_for_belief_ms(left_ms);
            }
        }
        lease_ms
    }

    /// Whether a transaction that found this may commit: the record has the grant, and the guard still has it too.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(
        &self,
        turn: TurnId,
        slot: &Slot,
        ticket: &Ticket,
        found: (Option<StoreId>, &[Answer]),
        now: Now,
    ) -> Result<(), LostReason> {
        let (store, answers) = found;
        if store != Some(ticket.store) {
            return Err(LostReason::StoreCleared);
        }
        let held = self.places.held(slot).filter(|held| held.is_used_by(turn) && held.grant == ticket.token);
        let valid = held.is_some_and(|held| now.monotonic < held.valid_until);
        match answers.iter().find(|answer| !answer.outcome.lets_a_fence_pass()) {
            Some(answer) => Err(answer.outcome.loss(ticket.token, valid)),
            None if held.is_none() => Err(LostReason::Expired),
            None => Ok(()),
        }
    }

    /// A transaction with a fence in it was judged, or committed. What it found is a hint that the lease is gone, and what
    /// it renewed is renewed.
    pub(super) fn fenced(&mut self, slot: &Slot, ticket: &Ticket, answers: &[Answer], now: Monotonic) {
        if self.places.held(slot).is_none_or(|held| held.grant != ticket.token) {
            return;
        }
        if answers.iter().any(|answer| !answer.outcome.lets_a_fence_pass()) {
            return self.suspect(slot, now);
        }
        let Some(&Outcome::Renewed { lease_ms, contended, .. }) = Ticket::renewal(answers) else { return };
        // One that was sent since may have asked for less.
        let asked_ms = self.places.held(slot).map_or(0, |held| held.asked_ms);
        let confirmed = Confirmed { sent: ticket.sent, lease_ms: lease_ms.min(asked_ms), contended };
        self.confirm(slot, ticket.token, confirmed, now);
        if self.places.beats_alone(slot) {
            // There is nothing else that the heartbeat would be for.
            self.last_heartbeat = self.last_heartbeat.max(ticket.sent.at);
            self.heartbeat_at = None;
        }
    }
}

impl Outcome {
    fn lets_a_fence_pass(&self) -> bool {
        matches!(self, Self::Current | Self::Renewed { .. })
    }
}
