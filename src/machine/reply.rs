//! What the store and the other contexts say.

use super::{
    Machine,
    failure::{Applied, StoreError},
    id::RequestId,
    key::Key,
    message::{Body, Message},
    operation::{Action, Answer, Granted, Outcome, Promotion, Reply},
    outbox::{Errand, Flight, Sent, is_ask_for, is_renewal_of},
    place::Place,
    port::{LostReason, Output, Refusal, ReleaseOutcome, Slot, TurnId},
    record::{Entry, Sighting},
    renew::Confirmed,
    time::Monotonic,
    token::Token,
};

impl Machine {
    pub(super) fn reply(&mut self, id: u64, result: Result<Reply, StoreError>, now: Monotonic) {
        let Some((flight, overdue)) = self.outbox.land(id) else { return };
        match result {
            Ok(reply) if overdue => self.late_reply(&flight, &reply, now),
            Err(error) if overdue => self.late_failure(&flight, &error, now),
            Ok(reply) => self.answered(&flight, reply, now),
            Err(error) => self.failed(&flight, &error, now),
        }
    }

    fn answered(&mut self, flight: &Flight, mut reply: Reply, now: Monotonic) {
        if self.store.replace(reply.store).is_some_and(|known| known != reply.store) {
            self.store_cleared(flight, now);
        }
        for (errand, answer) in flight.errands.iter().zip(&mut reply.answers) {
            self.promoted(answer, now);
            self.robbed(&errand.slot.key, answer, now);
            if matches!(errand.action, Action::Inspect) {
                let seen = core::mem::replace(&mut answer.outcome, Outcome::Moved);
                self.inspected(errand.turn, Ok(seen));
            }
            self.errand_answered(errand, &answer.outcome, flight.sent, now);
        }
    }

    /// Tells who was granted by this transaction; an own grant is taken at once.
    fn promoted(&mut self, answer: &Answer, now: Monotonic) {
        for promotion in &answer.promoted {
            let Promotion { ref key, holder, request, block, lease_ms, previous } = *promotion;
            self.send(key, Body::Granted { holder, request, block, lease_ms, previous });
            if holder == self.me {
                self.heir(key, request, &Granted { block, lease_ms, previous, contended: false }, now);
            }
        }
    }

    /// Tells who was robbed by this transaction.
    fn robbed(&mut self, key: &Key, answer: &Answer, now: Monotonic) {
        for &(holder, token) in &answer.robbed {
            self.send(key, Body::Stolen { holder, token });
            if let Some(slot) = self.places.slot_of_grant(key, token).filter(|_| holder == self.me) {
                self.lose(&slot, LostReason::Stolen, now);
            }
        }
    }

    /// After a time-out nothing more is made of an answer, but nothing is left behind either.
    fn late_reply(&mut self, flight: &Flight, reply: &Reply, now: Monotonic) {
        for (errand, answer) in flight.errands.iter().zip(&reply.answers) {
            match (&errand.action, &answer.outcome) {
                (Action::Acquire(ask), Outcome::Granted(granted)) => {
                    self.end_stray(&errand.slot, ask.request, Some(granted.block.first), now);
                }
                (Action::Acquire(ask), Outcome::Waiting { .. }) => {
                    self.end_stray(&errand.slot, ask.request, None, now);
                }
                (Action::AcquireAll(asks), Outcome::GrantedAll(granted)) => {
                    for ((slot, (_, ask)), granted) in errand.all.iter().zip(asks).zip(granted) {
                        self.end_stray(slot, ask.request, Some(granted.block.first), now);
                    }
                }
                _ => {}
            }
        }
    }

    /// What was withdrawn meanwhile may have been applied after that.
    fn late_failure(&mut self, flight: &Flight, error: &StoreError, now: Monotonic) {
        for errand in flight.errands.iter().filter(|_| error.applied == Applied::Unknown) {
            match &errand.action {
                Action::Acquire(ask) => self.end_stray(&errand.slot, ask.request, None, now),
                Action::AcquireAll(asks) => {
                    for (slot, (_, ask)) in errand.all.iter().zip(asks) {
                        self.end_stray(slot, ask.request, None, now);
                    }
                }
                _ => {}
            }
        }
    }

    /// What stands in the record for a request that is not known here belongs to nobody.
    fn end_stray(&mut self, slot: &Slot, request: RequestId, grant: Option<Token>, now: Monotonic) {
        if self.knows(&slot.key, request) || grant.is_some_and(|token| self.knows_grant(&slot.key, token)) {
            return;
        }
        match grant {
            Some(token) => _ = self.outbox.push(slot, Action::Release { token, request }, None, now),
            None => self.withdraw_request(slot, request, now),
        }
    }

    /// Whether a request is under way, held, or about to be ended. What was sent already may have come before it.
    pub(super) fn knows(&self, key: &Key, request: RequestId) -> bool {
        let ends = |action: &Action| match action {
            Action::Release { request: ended, .. } | Action::Withdraw { request: ended } => *ended == request,
            _ => false,
        };
        self.places.slot_of(key, request).is_some() || self.outbox.will_send_for(key, ends)
    }

    fn errand_answered(&mut self, errand: &Errand, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let slot = &errand.slot;
        match errand.action {
            Action::Acquire(ref ask) => self.sought(slot, ask.request, outcome, sent, now),
            Action::AcquireAll(_) => self.sought_all(errand, outcome, sent, now),
            Action::Renew { token, .. } => self.renewal_answered(errand, token, outcome, sent, now),
            Action::Downgrade { .. } => self.downgraded(errand, outcome, sent, now),
            Action::Release { .. } => self.returned(errand, outcome),
            Action::Evict { target, entry: Entry::Grant(token), .. } if matches!(outcome, Outcome::Evicted) => {
                self.send(&slot.key, Body::Evicted { holder: target, token });
            }
            Action::Inspect | Action::Evict { .. } | Action::Withdraw { .. } | Action::Fence { .. } => {}
        }
    }

    fn renewal_answered(&mut self, errand: &Errand, token: Token, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let slot = &errand.slot;
        self.renewed(slot, token, outcome, sent, now);
        let Some(query) = errand.turn else { return };
        let upgraded = (self.places.held(slot)).is_some_and(|held| {
            held.formerly.is_some_and(|(shared, _)| shared == token) || (held.grant == token && held.asks_for_upgrade())
        });
        if matches!(outcome, Outcome::NotCurrent { .. }) && upgraded {
            // The question went out before the lease got new tokens.
            return self.renew(slot, Some(query), now);
        }
        let held = matches!(outcome, Outcome::Renewed { .. });
        self.tell_verified(query, Ok(held));
    }

    fn sought(&mut self, slot: &Slot, request: RequestId, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let Some(place) = self.places.change(slot) else { return };
        if place.held().is_some_and(|held| held.request == request) {
            return self.adopted(slot, outcome, sent, now);
        }
        let upgrades = place.held().is_some_and(|held| held.upgrades_by(request));
        match place.seeking_mut() {
            Some(seeking) if seeking.request == request => seeking.heard_at = now,
            _ => return,
        }
        if upgrades {
            return self.upgrade_answered(slot, outcome, sent, now);
        }
        match outcome {
            Outcome::Granted(granted) => self.hold(slot, request, granted, sent, now),
            Outcome::Waiting { last_token, ahead } => self.queued(slot, *last_token, ahead, sent, now),
            Outcome::Busy { ahead } => self.busy(slot, ahead, now),
            Outcome::Superseded => self.seek(slot, now),
            Outcome::Exhausted => self.fail_turns(slot, &Refusal::Exhausted),
            Outcome::Unreadable(unreadable) => self.fail_turns(slot, &Refusal::Unreadable(*unreadable)),
            // Nothing is left to take over.
            Outcome::NotCurrent { .. } => self.fail_turns(slot, &Refusal::Lost(LostReason::Expired)),
            _ => {}
        }
    }

    /// What the store says to a request for several keys.
    fn sought_all(&mut self, errand: &Errand, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let Action::AcquireAll(asks) = &errand.action else { return };
        match outcome {
            Outcome::GrantedAll(granted) => {
                for ((slot, (_, ask)), granted) in errand.all.iter().zip(asks).zip(granted) {
                    self.sought(slot, ask.request, &Outcome::Granted(*granted), sent, now);
                }
            }
            Outcome::BusyAll(ahead) => self.busy_all(errand, ahead, now),
            other => {
                for (slot, (_, ask)) in errand.all.iter().zip(asks) {
                    self.sought(slot, ask.request, other, sent, now);
                }
            }
        }
    }

    /// An answer to a request whose grant was signalled already: adopting is a renewal.
    fn adopted(&mut self, slot: &Slot, outcome: &Outcome, sent: Sent, now: Monotonic) {
        if let Outcome::Granted(Granted { block, lease_ms, contended, .. }) = *outcome {
            // A renewal that also brings tokens, or dispels a doubt, goes all the same.
            if self.places.held(slot).is_some_and(|held| !held.refilling && held.doubted.is_none()) {
                self.outbox.recall_plain(slot, is_renewal_of(block.first));
            }
            self.confirm(slot, block.first, Confirmed { sent, lease_ms, contended }, now);
        }
    }

    pub(super) fn queued(&mut self, slot: &Slot, last_token: Token, ahead: &[Sighting], sent: Sent, now: Monotonic) {
        self.observe(slot, ahead, now);
        let Some(place) = self.places.change(slot) else { return };
        let Some(seeking) = place.seeking_mut() else { return };
        seeking.last_token = last_token;
        let first_answer = seeking.waiting_sent.replace(sent).is_none();
        let turns = place.turns.ids();
        self.meet_twin(slot, ahead, now);
        self.refuse_tries(slot);
        self.stop_if_unwanted(slot, now);
        if first_answer {
            let ahead = ahead.len();
            turns.iter().for_each(|turn| self.emit(Output::Waiting { turn: *turn, ahead }));
            self.send(&slot.key, Body::Wanted { holder: self.me, tries: false });
            self.wanted_here(slot, now);
        }
    }

    /// What this context holds at the key in other ways learns that it stands in the way.
    fn wanted_here(&mut self, slot: &Slot, now: Monotonic) {
        for other in &self.places.pick(Some(&slot.key), &|other, place| other != slot && place.held().is_some()) {
            self.wanted(other, false, now);
        }
    }

    /// A grant that another transaction made, told by a signal.
    fn heir(&mut self, key: &Key, request: RequestId, granted: &Granted, now: Monotonic) {
        let block = granted.block;
        let Some(slot) = self.places.slot_of(key, request) else {
            let slot = Slot { key: key.clone(), mode: super::Mode::Exclusive, own: None };
            return self.end_stray(&slot, request, Some(block.first), now);
        };
        let Some(seeking) = self.places.get(&slot).and_then(Place::seeking) else { return };
        let counted_from = match seeking.waiting_sent {
            Some(_) if block.first <= seeking.last_token => None,
            Some(sent) => Some(sent),
            None => seeking.first_sent,
        };
        let Some(sent) = counted_from.filter(|_| seeking.request == request) else { return };
        if self.places.held(&slot).is_some() {
            return self.upgraded(&slot, granted, sent, now);
        }
        self.hold(&slot, request, granted, sent, now);
        self.settle_heir(&slot, now);
    }

    /// A grant that is gone after an attempt without an answer was released by that attempt.
    fn returned(&mut self, errand: &Errand, outcome: &Outcome) {
        let released = matches!(outcome, Outcome::Released) || errand.maybe_released;
        let result = if released { ReleaseOutcome::Released } else { ReleaseOutcome::Lost };
        if let Some(turn) = errand.turn {
            self.tell_released(turn, Ok(result));
        }
        if errand.tells {
            self.send(&errand.slot.key, Body::Freed { holder: self.me });
        }
    }

    pub(super) fn inspected(&mut self, query: Option<TurnId>, result: Result<Outcome, StoreError>) {
        if let Some(query) = query {
            self.emit(Output::Status { query, result });
        }
    }

    /// Nothing from before a wipe holds any more. Who is being answered by the new store right now need not ask it again.
    fn store_cleared(&mut self, flight: &Flight, now: Monotonic) {
        for slot in &self.places.slots() {
            if self.places.held(slot).is_some() {
                self.lose(slot, LostReason::StoreCleared, now);
                continue;
            }
            let Some(seeking) = self.places.change_seeking(slot) else { continue };
            let asks = is_ask_for(seeking.request);
            if flight.errands.iter().any(|errand| errand.concerns(slot) && asks(&errand.action)) {
                seeking.waiting_sent = None;
            } else {
                self.seek_anew(slot, LostReason::StoreCleared, now);
            }
        }
    }

    /// What is kept here without being used is given back first: who released a key does not see itself hold it.
    pub(super) fn inspect(&mut self, query: TurnId, key: &Key, now: Monotonic) {
        self.end_linger_at(key, now);
        let slot = Slot { key: key.clone(), mode: super::Mode::Exclusive, own: None };
        self.outbox.push(&slot, Action::Inspect, Some(query), now);
    }

    /// Another context says something. It is a hint: a grant is taken only by the request that it names.
    pub(super) fn message(&mut self, message: &Message, now: Monotonic) {
        if self.store.is_some_and(|store| store != message.store) {
            return;
        }
        let key = &message.key;
        match message.body {
            Body::Granted { holder, request, block, lease_ms, previous } if holder == self.me => {
                self.heir(key, request, &Granted { block, lease_ms, previous, contended: false }, now);
            }
            Body::Wanted { holder, tries } if holder != self.me => {
                for slot in &self.places.pick(Some(key), &|_, _| true) {
                    self.wanted(slot, tries, now);
                }
            }
            Body::Evicted { holder, token } if holder == self.me => {
                if let Some(slot) = self.places.slot_of_grant(key, token) {
                    self.suspect(&slot, now);
                }
            }
            Body::Stolen { holder, token } if holder == self.me => {
                if let Some(slot) = self.places.slot_of_grant(key, token) {
                    self.lose(&slot, LostReason::Stolen, now);
                }
            }
            Body::Freed { .. } => self.look_again_at(key, now),
            Body::InUse { .. } => self.conclude_busy(key, now),
            Body::Gone { holder } => self.ask_past(holder, now),
            _ => {}
        }
    }

    pub(super) fn send(&mut self, key: &Key, body: Body) {
        let to_other = !matches!(body, Body::Granted { holder, .. } | Body::Stolen { holder, .. } if holder == self.me);
        if let (true, Some(store)) = (to_other, self.store) {
            self.emit(Output::Send(Message { store, key: key.clone(), body }));
        }
    }
}
