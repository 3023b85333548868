//! Fenced writes: what a user's transaction must check to commit only while a guard's lease is current.

use alloc::vec::Vec;

use super::{
    Machine,
    cohort::{Cohort, Held},
    config::{belief_ms, lease_for_belief_ms},
    id::{RequestId, StoreId},
    input::{Slot, TurnId},
    key::Key,
    output::LostReason,
    pending::Sent,
    record::{Action, Batch, Grant, Operation, Outcome, Records, Reply, SessionStep},
    time::{Monotonic, Now},
    token::Token,
};

/// What a user's transaction must apply and find, so that its other writes are fenced: made by [`Machine::ticket`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The check, and the session's heartbeat, if the ticket [renews](Self::renews).
    pub batch: Batch,
    store: StoreId,
    token: Token,
    request: RequestId,
    /// The request that is upgrading it.
    upgrade: Option<RequestId>,
    sent: Sent,
}

impl Ticket {
    /// Whether the ticket carries a heartbeat.
    pub fn renews(&self) -> bool {
        self.batch.step != SessionStep::Stay
    }

    /// Whether the record has the grant. Then no session row is needed, unless this [renews](Self::renews). If the grant is missing, the
    /// row of its own session tells why.
    pub fn finds_its_grant(&self, records: &Records) -> bool {
        self.batch.operations.iter().all(|operation| self.grant_in(records, &operation.key).is_some())
    }

    /// The grant in the record of this key.
    pub fn grant_in<'a>(&self, records: &'a Records, key: &Key) -> Option<&'a Grant> {
        let is_it = |grant: &&Grant| {
            let name = (grant.block.first, grant.request);
            grant.holder == self.batch.session
                && (name == (self.token, self.request) || Some(grant.request) == self.upgrade)
        };
        records.peek(key)?.grants.iter().find(is_it)
    }

    /// Whether this reply comes from the ticket's store, and shows that the record still had the grant.
    pub fn is_current_in(&self, store: Option<StoreId>, reply: &Reply) -> bool {
        store == Some(self.store) && reply.answers.iter().all(|answer| answer.outcome.lets_a_fence_pass())
    }
}

/// Why a fenced transaction must not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceRefusal {
    /// The lease was lost or released.
    Lost(LostReason),
    /// The lease was exclusive when the fence began, and others may share it by now.
    Downgraded,
    /// The lease was upgraded, or may have been, since the fence began, so the ticket does not know the grant.
    Upgraded,
}

impl Machine {
    /// What a transaction that is about to begin must check for this guard; with `renew`, it carries a heartbeat, too. `None` for a guard
    /// that was released or lost.
    ///
    /// Report the outcome by an [`Input::Fenced`](super::input::Input::Fenced): a heartbeat only once the transaction is committed. After a
    /// call with `renew`, give the machine another input.
    // Protocol: docs/protocol.md#s13.
    pub fn ticket(&mut self, turn: TurnId, slot: &Slot, renew: bool, now: Now) -> Option<Ticket> {
        let held = self.cohorts.held(slot)?;
        let mode = held.users.iter().find(|user| user.turn == turn)?.mode;
        let (store, token, request) = (self.store?, held.grant, held.request);
        let upgrade = held.upgrade_seeking().map(|seeking| seeking.request);
        let fence = Operation { key: slot.key.clone(), action: Action::Fence { token, request, upgrade, mode } };
        let mut batch = Batch::new(self.session.id(), Vec::from([fence]));
        // The number tells what was sent before the ticket, and what after it.
        let at = now.monotonic;
        let sent = if renew { self.store_queue.next_sent(at) } else { self.store_queue.last_sent(at) };
        if renew {
            let lease_ms = self.fenced_lease_ms(sent);
            batch.step = SessionStep::Beat(self.session.beat(sent, lease_ms, self.presence.beacon_stands()));
        }
        Some(Ticket { batch, store, token, request, upgrade, sent })
    }

    /// Notes that the transaction that this ticket fences may be open, or on its way, until [`end_fence`](Self::end_fence), even if its
    /// guard ends earlier. Until then this context does not pass the lease on: it gives the lease back, and the store grants the next one.
    /// So the transaction commits before that grant, or is refused because the record has changed.
    ///
    /// This is not needed if the store lets each later transaction on the same data wait until the fenced one has ended.
    // Protocol: docs/protocol.md#s.
    pub fn begin_fence(&mut self, slot: &Slot, ticket: &Ticket) {
        if let Some(open) = self.fences_of(slot, ticket) {
            // A leader that never reports the end of its transactions may fence them for months.
            *open = open.saturating_add(1);
        }
    }

    /// Notes that the transaction that this ticket fences is over: it was committed, or never will be. Call this once for each
    /// [`begin_fence`](Self::begin_fence), but not while you do not know that the transaction is over.
    pub fn end_fence(&mut self, slot: &Slot, ticket: &Ticket) {
        if let Some(open) = self.fences_of(slot, ticket) {
            *open = open.saturating_sub(1);
        }
    }

    /// How many transactions may be open that the ticket's grant has fenced. `None` if that lease has ended.
    fn fences_of(&mut self, slot: &Slot, ticket: &Ticket) -> Option<&mut u32> {
        let held = self.cohorts.change_untracked(slot).and_then(Cohort::held_mut)?;
        held.fences_of((ticket.token, ticket.request))
    }

    /// Unlike any other heartbeat, this one may be sent while another is under way. It asks for no shorter lease than that one, which may
    /// be answered last.
    fn fenced_lease_ms(&mut self, sent: Sent) -> u64 {
        let lease_ms = self.session.wanted_lease_ms(sent.at, self.config.lease_ms);
        let in_flight = self.store_queue.in_flight();
        let Some((earlier, asked_ms)) =
            in_flight.and_then(|transaction| Some((transaction.sent, transaction.lease_ms?)))
        else {
            return lease_ms;
        };
        let left_ms = earlier.at.plus(belief_ms(asked_ms)).since(sent.at);
        if left_ms > belief_ms(lease_ms) { lease_for_belief_ms(left_ms) } else { lease_ms }
    }

    /// Whether a transaction that found this may commit: if the record has the grant, the guard still has it, too, and the grant is still
    /// exclusive if it was when the fence began.
    ///
    /// # Errors
    /// Why it must not commit.
    // Protocol: docs/protocol.md#s7, #s.
    pub fn judge_fence(
        &self,
        turn: TurnId,
        slot: &Slot,
        ticket: &Ticket,
        found: (Option<StoreId>, &Reply),
        now: Now,
    ) -> Result<(), FenceRefusal> {
        let (store, reply) = found;
        let held = self.cohorts.held(slot).filter(|held| held.is_used_by(turn));
        let of_ticket = held.filter(|held| ticket.is_of(held));
        let fault = reply.answers.iter().map(|answer| &answer.outcome).find(|outcome| !outcome.lets_a_fence_pass());
        let refusal = match fault {
            _ if store != Some(ticket.store) => FenceRefusal::Lost(LostReason::StoreCleared),
            None if of_ticket.is_some() => return Ok(()),
            // For good: after another upgrade, a second try that began under the shared lease would pass.
            Some(Outcome::Downgraded) if of_ticket.is_some() => return Err(FenceRefusal::Downgraded),
            None | Some(Outcome::Downgraded) => FenceRefusal::Lost(LostReason::Expired),
            Some(outcome) => {
                let valid = of_ticket.is_some() && self.session.was_valid(now.monotonic);
                FenceRefusal::Lost(outcome.loss(ticket.token, valid))
            }
        };
        Err(if held.is_some_and(|held| ticket.is_outgrown_by(held)) { FenceRefusal::Upgraded } else { refusal })
    }

    /// A user's transaction was judged, or committed. If it did not find the grant, this is a hint that the lease is gone. If it carried a
    /// heartbeat, that one counts like any other.
    pub(super) fn fenced(&mut self, slot: &Slot, ticket: &Ticket, reply: &Reply, now: Monotonic) {
        let is_current = self.cohorts.held(slot).is_some_and(|held| ticket.is_of(held));
        if !is_current || ticket.batch.session != self.session.id() {
            return;
        }
        if reply.answers.iter().any(|answer| !answer.outcome.lets_a_fence_pass()) {
            return self.doubt_grant(slot, now);
        }
        let (Some(beat), Some(robbed)) = (ticket.batch.beat(), &reply.robbed) else { return };
        for (key, token) in robbed {
            self.grant_was_stolen(key, *token, now);
        }
        // If a later heartbeat reached the store first, the store ignores this one. So if the later one asked for a shorter lease, only
        // that counts.
        if !self.session.has_asked_alike_since(ticket.sent.transaction) {
            return;
        }
        self.confirm(ticket.sent, beat.lease_ms, now);
        if self.cohorts.holds_one_only() {
            // No other lease needs a heartbeat.
            self.heartbeat.replaced_by(ticket.sent.at);
        }
    }

    /// The store did not have the grant. This asks again, and all leases are in doubt until the answer.
    fn doubt_grant(&mut self, slot: &Slot, now: Monotonic) {
        self.ask_whether_current(slot, None, now);
        self.doubt(now);
    }
}

impl Ticket {
    /// Whether the ticket was made for this lease, which may have been upgraded since.
    fn is_of(&self, held: &Held) -> bool {
        [Some((held.grant, held.request)), held.formerly].contains(&Some((self.token, self.request)))
    }

    /// Whether this lease was upgraded, or may have been, after the ticket was made. If so, the ticket does not know the new grant.
    fn is_outgrown_by(&self, held: &Held) -> bool {
        let upgrades_by_another = || !self.upgrade.is_some_and(|request| held.upgrades_by(request));
        held.may_have_grown_out_of(self.token) && (held.grant != self.token || upgrades_by_another())
    }
}

impl Outcome {
    fn lets_a_fence_pass(&self) -> bool {
        matches!(self, Self::Current { .. })
    }
}
