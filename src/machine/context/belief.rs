//! What a context does when its session is confirmed, in doubt, or lost.

use super::{
    Machine,
    failure::StoreError,
    input::{Slot, TurnId},
    key::Key,
    output::{Event, LostReason, Output, Refusal},
    pending::{Sent, Transaction},
    record::Reply,
    time::{Monotonic, Now, whole_ms},
    token::Token,
};

impl Machine {
    /// Handles what a transaction's answer says about the session that sent it.
    // Protocol: docs/protocol.md#s4, #s8, #s9, #s16.
    pub(super) fn session_answered(&mut self, transaction: &Transaction, reply: &Reply, now: Monotonic) {
        if !transaction.ends.is_empty() {
            self.session.forget_stale_failures();
        }
        if transaction.session != self.session.id() {
            return;
        }
        let Some(robbed) = &reply.robbed else {
            // When a batch is divided, a part without a request may go before the one that opens the session.
            if transaction.is_of_session() && (transaction.opens || self.session.is_open()) {
                let reason = if self.session.was_valid(now) { LostReason::Evicted } else { LostReason::Expired };
                self.lose_session_by(transaction.sent.transaction, reason, now);
            }
            return;
        };
        if transaction.opens {
            self.session.opened(&reply.peers, now);
        }
        for (key, token) in robbed {
            self.grant_was_stolen(key, *token, now);
        }
        if let Some(lease_ms) = transaction.lease_ms {
            self.session.beat_answered(transaction.sent.transaction);
            self.confirm(transaction.sent, lease_ms, now);
        }
    }

    /// Notes that a grant of this session was stolen. Any later report of this grant is out of date. A theft takes all grants of a session
    /// at the key, and the stolen one may be the upgrade of an earlier one, of which this context has not heard.
    // Protocol: docs/protocol.md#s8.
    pub(super) fn grant_was_stolen(&mut self, key: &Key, token: Token, now: Monotonic) {
        if self.session.note_theft(key, token) {
            for slot in self.cohorts.slots_of_grants_until(key, token) {
                self.lose(&slot, LostReason::Stolen, now);
            }
        }
    }

    /// The store confirmed an opening or a heartbeat that was sent at this moment.
    // Protocol: docs/protocol.md#k.
    pub(super) fn confirm(&mut self, sent: Sent, lease_ms: u64, now: Monotonic) {
        if !self.session.confirm(sent, lease_ms, now) {
            return;
        }
        for slot in &self.cohorts.slots() {
            let Some(held) = self.cohorts.held(slot) else { continue };
            for user in &held.users {
                self.outputs.push(Output::Event(Event::Certain { turn: user.turn }));
            }
            let is_settled =
                !held.users.is_empty() && self.cohorts.get(slot).is_some_and(|cohort| cohort.turns.is_empty());
            if !is_settled {
                self.hand_out(slot, now);
                // The turn that wanted the lease may have gone while the lease was in doubt.
                self.stop_if_unwanted(slot, now);
            }
        }
    }

    /// The context may have been paused, or a connection was lost: all leases are in doubt until the store has answered. Whatever happened
    /// here may have happened to the store's connection, too, so its first errors end no wait.
    // Protocol: docs/protocol.md#i11.
    pub(super) fn doubt(&mut self, now: Monotonic) {
        self.failures_since_doubt.get_or_insert_default();
        self.disbelieve(now);
    }

    /// All leases are in doubt until the store has answered. This is also for a report that the session has ended. Such a report says
    /// nothing about the store, so it excuses none of the store's errors.
    pub(super) fn disbelieve(&mut self, now: Monotonic) {
        self.session.doubt(self.store_queue.last_transaction());
        self.suspect(now);
    }

    /// Tells all guards that they are in doubt, and asks the store at once.
    pub(super) fn suspect(&mut self, now: Monotonic) {
        if self.session.suspect() {
            for slot in &self.cohorts.slots() {
                let Some(held) = self.cohorts.held(slot) else { continue };
                for user in &held.users {
                    self.outputs.push(Output::Event(Event::Suspect { turn: user.turn }));
                }
            }
        }
        if self.session.is_open() && self.cohorts.any_beats() {
            self.heartbeat.plan(now);
        }
    }

    /// When the leases come into doubt, unless they are already.
    pub(super) fn belief_ends(&self) -> Option<Monotonic> {
        self.session.belief_ends().filter(|_| self.cohorts.any_held())
    }

    /// A lease that has expired by the holder's own clock is in doubt, not lost, because perhaps nobody has ended the session yet. But the
    /// holder of a lock of `leases.locks` cannot ask whether it is in doubt, so the lock is lost, unless the store was hardly asked yet.
    // Protocol: docs/protocol.md#k, #p4.
    pub(super) fn doubt_if_expired(&mut self, now: Monotonic) {
        if self.belief_ends().is_none_or(|end| end > now) {
            return;
        }
        let asked = self.session.has_failed() || self.store_queue.carries_beat();
        self.suspect(now);
        if asked {
            self.lose_locks(now);
        }
    }

    /// The locks of `leases.locks` are lost: nobody can ask whether they are in doubt.
    pub(super) fn lose_locks(&mut self, now: Monotonic) {
        for slot in &self.cohorts.pick(None, &|slot, cohort| slot.key.is_of_lock() && cohort.held().is_some()) {
            self.lose(slot, LostReason::Expired, now);
        }
    }

    /// Loses the session, because a transaction's answer says that it has ended. The same answer may name contexts that this one must tell
    /// of a grant.
    // Protocol: docs/protocol.md#s10.
    pub(super) fn lose_session_by(&mut self, transaction: u64, reason: LostReason, now: Monotonic) {
        self.end_session_by(transaction, now);
        self.lose_all(reason, now);
    }

    /// Loses the session, because the store refuses heartbeats for good. The row may still be there: the next session ends it, or would
    /// wait behind its own predecessor.
    pub(super) fn lose_refused_session(&mut self, error: &StoreError, now: Monotonic) {
        self.session.end_unsure(now);
        self.leave_session(now);
        self.lose_all(LostReason::by_failure(error), now);
    }

    /// All leases of the session are lost. The turns that still wait queue again in the next session.
    fn lose_all(&mut self, reason: LostReason, now: Monotonic) {
        for slot in &self.cohorts.slots() {
            self.refuse_unsure_thieves(slot, &Refusal::Lost(reason));
            let believed = self.drop_hold(slot, reason).is_some();
            let tries = self.cohorts.seeking(slot).is_some_and(|seeking| !seeking.wait);
            match slot.own {
                // It is sent again as it is: for several keys at once, or for one particular lease.
                Some(_) if tries => {}
                Some(_) if !believed => self.seek(slot, now),
                _ => self.seek_anew(slot, reason, now),
            }
        }
    }

    /// This transaction deletes the session's row, or found it missing. The id is not used again, even if the deletion fails.
    // Protocol: docs/protocol.md#s10.
    pub(super) fn end_session_by(&mut self, transaction: u64, now: Monotonic) {
        self.session.end();
        self.drop_all_of_session(now);
        self.rest_after(transaction);
    }

    /// The leases that were to be released end with the session. Its row may remain, so the beacon is lowered.
    pub(super) fn leave_session(&mut self, now: Monotonic) {
        self.drop_all_of_session(now);
        self.fall();
    }

    pub(super) fn drop_all_of_session(&mut self, now: Monotonic) {
        self.drop_operations_of_session(now);
        self.watches.forget(self.cohorts.waiting());
        self.detached.clear();
    }

    /// Whether the leases have been in doubt for at least [`longest_doubt`](Self::longest_doubt), so that work under them must stop.
    pub(crate) fn is_overdue(&self, now: Monotonic) -> bool {
        self.session.has_expired_for(whole_ms(self.config.longest_doubt()), now)
    }

    /// How long the guard of this turn is still valid, in ms; 0 if it is lost, released or in doubt.
    pub fn remaining_ms(&self, turn: TurnId, slot: &Slot, now: Now) -> u64 {
        match self.cohorts.held(slot).filter(|held| held.is_used_by(turn)) {
            Some(held) if !self.clocks.in_doubt(now, &self.config) => {
                let at = now.monotonic;
                self.session.belief_left(at).min(held.limit_ms(turn, at))
            }
            _ => 0,
        }
    }
}
