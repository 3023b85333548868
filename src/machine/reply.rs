//! What the store and the other contexts say.

use super::{
    Machine,
    codec::Unreadable,
    failure::StoreError,
    hold::{Confirmed, Grant},
    id::RequestId,
    key::Key,
    message::{Body, Message},
    operation::{Action, Answer, Outcome, Promotion, Reply},
    outbox::{Errand, Flight, Sent, is_ask_for, is_renewal_of},
    place::{Place, Stage},
    port::{LostReason, Output, Refusal, ReleaseOutcome, TurnId},
    record::{Entry, Sighting},
    time::Monotonic,
    token::Token,
};

impl Machine {
    pub(super) fn reply(&mut self, id: u64, result: Result<Reply, StoreError>, now: Monotonic) {
        let Some((flight, overdue)) = self.outbox.land(id) else { return };
        match result {
            Ok(reply) if overdue => self.late_reply(&flight, reply, now),
            Err(_) if overdue => {}
            Ok(reply) => self.answered(flight, reply, now),
            Err(error) => self.failed(flight, &error, now),
        }
    }

    fn answered(&mut self, flight: Flight, reply: Reply, now: Monotonic) {
        if self.store.replace(reply.store).is_some_and(|known| known != reply.store) {
            self.store_cleared(&flight, now);
        }
        for (errand, answer) in flight.errands.into_iter().zip(reply.answers) {
            self.promoted(&errand.key, &answer, now);
            self.errand_answered(errand, answer.outcome, flight.sent, now);
        }
    }

    /// Tells who was granted by this transaction; an own grant is taken at once.
    fn promoted(&mut self, key: &Key, answer: &Answer, now: Monotonic) {
        for promotion in &answer.promoted {
            let Promotion { holder, request, block, lease_ms } = *promotion;
            self.send(key, Body::Granted { holder, request, block, lease_ms });
            if holder == self.me {
                self.heir(key, promotion, now);
            }
        }
    }

    /// After a time-out nothing more is made of an answer, but nothing is left behind either.
    fn late_reply(&mut self, flight: &Flight, reply: Reply, now: Monotonic) {
        for (errand, answer) in flight.errands.iter().zip(reply.answers) {
            let Action::Acquire(acquire) = &errand.action else { continue };
            let request = acquire.request;
            match answer.outcome {
                _ if self.knows(&errand.key, request) => {}
                Outcome::Granted { block, .. } => self.release_stray(&errand.key, request, block.first, now),
                Outcome::Waiting { .. } => self.withdraw_request(&errand.key, request, now),
                _ => {}
            }
        }
    }

    /// Whether a request is under way, held, or being ended.
    fn knows(&self, key: &Key, request: RequestId) -> bool {
        let stage = self.places.get(key).map(|place| &place.stage);
        let current = match stage {
            Some(Stage::Seeking(seeking)) => seeking.request == request,
            Some(Stage::Held(held)) => held.request == request,
            Some(Stage::Idle) | None => false,
        };
        let ends = |action: &Action| match action {
            Action::Release { request: ended, .. } | Action::Withdraw { request: ended } => *ended == request,
            _ => false,
        };
        current || self.outbox.carries(key, ends)
    }

    /// A grant under a request that is not known belongs to nobody.
    fn release_stray(&mut self, key: &Key, request: RequestId, token: Token, now: Monotonic) {
        self.outbox.push(key, Action::Release { token, request }, None, now);
    }

    fn errand_answered(&mut self, errand: Errand, outcome: Outcome, sent: Sent, now: Monotonic) {
        let key = &errand.key;
        match errand.action {
            Action::Acquire(acquire) => self.sought(key, acquire.request, outcome, sent, now),
            Action::Renew { token, .. } => {
                let held = matches!(outcome, Outcome::Renewed { .. });
                self.renewed(key, token, &outcome, sent, now);
                if let Some(query) = errand.turn {
                    self.emit(Output::Verified { query, result: Ok(held) });
                }
            }
            Action::Release { .. } => self.returned(&errand, &outcome),
            Action::Evict { target, entry: Entry::Grant(token), .. } if outcome == Outcome::Evicted => {
                self.send(key, Body::Evicted { holder: target, token });
            }
            Action::Inspect => self.inspected(errand.turn, Ok(outcome)),
            Action::Evict { .. } | Action::Withdraw { .. } => {}
        }
    }

    fn sought(&mut self, key: &Key, request: RequestId, outcome: Outcome, sent: Sent, now: Monotonic) {
        match self.places.change(key).map(|place| &mut place.stage) {
            Some(Stage::Seeking(seeking)) if seeking.request == request => seeking.heard_at = now,
            Some(Stage::Held(held)) if held.request == request => return self.adopted(key, &outcome, sent, now),
            _ => return,
        }
        match outcome {
            Outcome::Granted { block, lease_ms, contended } => {
                self.hold(key, request, Grant { block, lease_ms, sent, contended }, now);
            }
            Outcome::Waiting { last_token, ahead } => self.queued(key, last_token, &ahead, sent, now),
            Outcome::Busy { ahead } => self.busy(key, &ahead, now),
            Outcome::Superseded => self.seek(key, now),
            Outcome::Exhausted => self.fail_turns(key, &Refusal::Exhausted),
            Outcome::Unreadable(unreadable) => self.fail_turns(key, &Refusal::Unreadable(unreadable)),
            _ => {}
        }
    }

    /// An answer to a request whose grant was signalled already: adopting is a renewal.
    fn adopted(&mut self, key: &Key, outcome: &Outcome, sent: Sent, now: Monotonic) {
        if let Outcome::Granted { block, lease_ms, contended } = *outcome {
            self.outbox.recall_plain(key, is_renewal_of(block.first));
            self.confirm(key, block.first, Confirmed { sent, lease_ms, contended }, now);
        }
    }

    fn queued(&mut self, key: &Key, last_token: Token, ahead: &[Sighting], sent: Sent, now: Monotonic) {
        self.observe(key, ahead, now);
        let Some(seeking) = self.places.change(key).and_then(Place::seeking_mut) else { return };
        seeking.last_token = last_token;
        let first_answer = seeking.waiting_sent.replace(sent).is_none();
        self.refuse_tries(key);
        self.stop_if_unwanted(key, now);
        if first_answer {
            self.send(key, Body::Wanted { holder: self.me });
        }
    }

    fn busy(&mut self, key: &Key, ahead: &[Sighting], now: Monotonic) {
        self.observe(key, ahead, now);
        self.refuse_tries(key);
        let Some(place) = self.places.change(key) else { return };
        if place.turns.is_empty() {
            // Who only tries has no place in the record.
            place.stage = Stage::Idle;
        }
    }

    /// A grant that another transaction made, told by a signal.
    fn heir(&mut self, key: &Key, promotion: &Promotion, now: Monotonic) {
        let Promotion { request, block, lease_ms, .. } = *promotion;
        if !self.knows(key, request) {
            return self.release_stray(key, request, block.first, now);
        }
        let Some(seeking) = self.places.get(key).and_then(Place::seeking) else { return };
        let counted_from = match seeking.waiting_sent {
            Some(_) if block.first <= seeking.last_token => None,
            Some(sent) => Some(sent),
            None => seeking.first_sent,
        };
        let Some(sent) = counted_from.filter(|_| seeking.request == request) else { return };
        self.hold(key, request, Grant { block, lease_ms, sent, contended: false }, now);
        self.renew(key, None, now);
    }

    fn renewed(&mut self, key: &Key, token: Token, outcome: &Outcome, sent: Sent, now: Monotonic) {
        let Some(held) = self.places.get(key).and_then(Place::held).filter(|held| held.block.first == token) else {
            return;
        };
        let reason = match *outcome {
            Outcome::Renewed { lease_ms, contended } => {
                return self.confirm(key, token, Confirmed { sent, lease_ms, contended }, now);
            }
            Outcome::NotCurrent { last_token } if last_token < token => LostReason::StoreCleared,
            Outcome::NotCurrent { .. } if now < held.valid_until => LostReason::Evicted,
            Outcome::Unreadable(Unreadable::FormatTooNew { .. }) => LostReason::FormatTooNew,
            Outcome::Unreadable(_) => LostReason::StoreFailed,
            _ => LostReason::Expired,
        };
        self.lose(key, reason, now);
    }

    /// A grant that is gone after an attempt without an answer was released by that attempt.
    fn returned(&mut self, errand: &Errand, outcome: &Outcome) {
        let released = *outcome == Outcome::Released || errand.maybe_released;
        let result = if released { ReleaseOutcome::Released } else { ReleaseOutcome::Lost };
        if let Some(turn) = errand.turn {
            self.emit(Output::Released { turn, result: Ok(result) });
        }
    }

    pub(super) fn inspected(&mut self, query: Option<TurnId>, result: Result<Outcome, StoreError>) {
        if let Some(query) = query {
            self.emit(Output::Status { query, result });
        }
    }

    /// Nothing from before a wipe holds any more. Who is being answered by the new store right now need not ask it again.
    fn store_cleared(&mut self, flight: &Flight, now: Monotonic) {
        for key in self.places.keys() {
            let seeking = self.places.change(&key).and_then(Place::seeking_mut);
            let Some(seeking) = seeking else {
                self.lose(&key, LostReason::StoreCleared, now);
                continue;
            };
            let asks = is_ask_for(seeking.request);
            if flight.errands.iter().any(|errand| errand.key == key && asks(&errand.action)) {
                seeking.waiting_sent = None;
            } else {
                self.seek(&key, now);
            }
        }
    }

    pub(super) fn inspect(&mut self, query: TurnId, key: Key, now: Monotonic) {
        self.outbox.push(&key, Action::Inspect, Some(query), now);
    }

    /// Another context says something. It is a hint: a grant is taken only by the request that it names.
    pub(super) fn message(&mut self, message: &Message, now: Monotonic) {
        if self.store.is_some_and(|store| store != message.store) {
            return;
        }
        let key = &message.key;
        match message.body {
            Body::Granted { holder, request, block, lease_ms } if holder == self.me => {
                self.heir(key, &Promotion { holder, request, block, lease_ms }, now);
            }
            Body::Wanted { holder } if holder != self.me => self.wanted(key),
            Body::Evicted { holder, token } if holder == self.me => {
                let held = self.places.get(key).and_then(Place::held);
                if held.is_some_and(|held| held.block.first == token) {
                    self.suspect(key, now);
                }
            }
            _ => {}
        }
    }

    fn wanted(&mut self, key: &Key) {
        let last_flight = self.outbox.last_flight();
        let Some(place) = self.places.change(key) else { return };
        place.wanted = Some(last_flight);
        if let Some(held) = place.held_mut() {
            held.contended = true;
        }
    }

    fn send(&mut self, key: &Key, body: Body) {
        let to_other = !matches!(body, Body::Granted { holder, .. } if holder == self.me);
        if let (true, Some(store)) = (to_other, self.store) {
            self.emit(Output::Send(Message { store, key: key.clone(), body }));
        }
    }
}
