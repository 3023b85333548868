//! What a transaction carried that gave no answer.

use super::{
    Machine,
    failure::{Applied, StoreError},
    id::RequestId,
    operation::Action,
    outbox::{Errand, Flight},
    place::Held,
    port::{LostReason, Refusal, Slot},
    time::Monotonic,
    token::Token,
};

/// Attempts to reach a store that has not answered a request yet.
const ATTEMPTS: u32 = 3;

impl Machine {
    /// The transaction gave no answer: what it carried is tried again, or given up with the error.
    pub(super) fn failed(&mut self, flight: &Flight, error: &StoreError, now: Monotonic) {
        for errand in &flight.errands {
            match &errand.action {
                Action::Acquire(ask) => self.ask_failed(ask.request, errand, error, now),
                Action::AcquireAll(_) => self.ask_all_failed(errand, error, now),
                Action::Downgrade { .. } => self.downgrade_failed(errand, error, now),
                Action::Renew { token, .. } => self.renewal_failed(*token, errand, error, now),
                Action::Release { .. } | Action::Withdraw { .. } => self.return_failed(errand, error, now),
                Action::Inspect => self.inspected(errand.turn, Err(error.clone())),
                Action::Evict { .. } => self.eviction_failed(errand, error, now),
                Action::Fence { .. } => {}
            }
        }
    }

    /// Tried again after a while, or the same judgement would be passed at once and for ever.
    fn eviction_failed(&mut self, errand: &Errand, error: &StoreError, now: Monotonic) {
        if error.retry {
            self.retry(errand, now);
        }
    }

    fn ask_failed(&mut self, request: RequestId, errand: &Errand, error: &StoreError, now: Monotonic) {
        let limit_ms = self.config.lease_ms;
        let Some(place) = self.places.get(&errand.slot) else { return };
        let Some(seeking) = place.seeking().filter(|seeking| seeking.request == request) else { return };
        let patience = match seeking.waiting_sent {
            Some(_) => now.since(seeking.heard_at) < limit_ms,
            None => errand.attempts + 1 < ATTEMPTS,
        };
        if error.retry && patience {
            self.note_retry(&errand.slot);
            return self.retry(errand, now);
        }
        let known_unsent = error.applied == Applied::No && errand.attempts == 0 && seeking.waiting_sent.is_none();
        let refusal = Refusal::Store(error.clone());
        if place.held().is_some() {
            return self.upgrade_failed(errand, refusal, known_unsent, error.retry, now);
        }
        self.fail_turns(&errand.slot, &refusal);
        if !known_unsent {
            self.withdraw_request(&errand.slot, request, now);
        }
    }

    /// Who upgrades is told. The store may have exchanged the lease for another one all the same: a withdrawal would take
    /// that, and so the request goes on, until the store says what it did.
    fn upgrade_failed(&mut self, errand: &Errand, refusal: Refusal, unsent: bool, retry: bool, now: Monotonic) {
        if unsent {
            return self.end_upgrade(&errand.slot, refusal, now);
        }
        if !retry {
            return self.lose(&errand.slot, LostReason::StoreFailed, now);
        }
        let upgrade = self.places.change_held(&errand.slot).and_then(|held| held.upgrade.as_mut());
        let Some(upgrade) = upgrade else { return };
        let (query, told) = (upgrade.query, core::mem::replace(&mut upgrade.cancelled, true));
        upgrade.seeking.iter_mut().for_each(|seeking| seeking.wait = false);
        if !told {
            self.refuse(query, refusal);
        }
        let mut again = errand.clone();
        if let Action::Acquire(ask) = &mut again.action {
            ask.wait = false;
        }
        self.retry(&again, now);
    }

    fn note_retry(&mut self, slot: &Slot) {
        if let Some(seeking) = self.places.change_seeking(slot) {
            seeking.retried = true;
        }
    }

    fn ask_all_failed(&mut self, errand: &Errand, error: &StoreError, now: Monotonic) {
        if error.retry && errand.attempts + 1 < ATTEMPTS {
            errand.all.iter().for_each(|slot| self.note_retry(slot));
            return self.retry(errand, now);
        }
        let Action::AcquireAll(asks) = &errand.action else { return };
        for (slot, (_, ask)) in errand.all.iter().zip(asks) {
            self.fail_turns(slot, &Refusal::Store(error.clone()));
            self.withdraw_request(slot, ask.request, now);
        }
    }

    /// Who asked is told. It is tried again all the same: the guard shares already.
    fn downgrade_failed(&mut self, errand: &Errand, error: &StoreError, now: Monotonic) {
        if let Some(query) = errand.turn {
            self.tell_verified(query, Err(error.clone()));
        }
        if error.retry {
            let mut again = errand.clone();
            again.turn = None;
            self.retry(&again, now);
        }
    }

    fn renewal_failed(&mut self, token: Token, errand: &Errand, error: &StoreError, now: Monotonic) {
        let current = self.places.held(&errand.slot).is_some_and(|held| held.grant == token);
        if let Some(query) = errand.turn {
            self.tell_verified(query, Err(error.clone()));
        } else if current && error.retry {
            self.renew_later(errand, error, now);
        } else if current {
            self.lose(&errand.slot, LostReason::StoreFailed, now);
        }
    }

    /// Retried, unless turns that have no guard yet wait for it in vain.
    fn renew_later(&mut self, errand: &Errand, error: &StoreError, now: Monotonic) {
        let lease_ms = self.config.lease_ms;
        if self.places.held(&errand.slot).is_some_and(|held| !held.users.is_empty() && held.valid_until <= now) {
            if errand.slot.key.is_of_lock() {
                return self.lose(&errand.slot, LostReason::Expired, now);
            }
            self.fail_waiting(&errand.slot, error);
        }
        let vain = |held: &&Held| held.users.is_empty() && now.since(held.tenure_since) >= lease_ms;
        let vain = self.places.held(&errand.slot).filter(vain).map(|held| held.request);
        let Some(request) = vain else { return self.retry(errand, now) };
        self.fail_turns(&errand.slot, &Refusal::Store(error.clone()));
        self.withdraw_request(&errand.slot, request, now);
    }

    /// Those who have no guard yet fail; the others go on hoping.
    fn fail_waiting(&mut self, slot: &Slot, error: &StoreError) {
        let Some(place) = self.places.change(slot) else { return };
        for turn in &place.turns.take_all() {
            self.refuse(turn.id, Refusal::Store(error.clone()));
        }
    }

    fn return_failed(&mut self, errand: &Errand, error: &StoreError, now: Monotonic) {
        let released = error.applied == Applied::Unknown && now < errand.believed_until;
        if error.retry && now.since(errand.since) < self.errand_limit_ms() {
            let mut again = errand.clone();
            again.maybe_released |= released;
            self.retry(&again, now);
        } else if let Some(turn) = errand.turn {
            self.tell_released(turn, Err(error.clone()));
        }
    }
}
