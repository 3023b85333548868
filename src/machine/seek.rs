//! Getting a lease: ask, queue, keep the place, give up.

use alloc::string::String;

use super::{
    Machine,
    config::silence_ms,
    id::RequestId,
    key::Key,
    life::{Life, refused},
    operation::{Acquire, Action},
    outbox::is_ask_for,
    place::{Seeking, Stage},
    port::{Output, Refusal, Turn, TurnId},
    time::Monotonic,
    token::Token,
};

impl Machine {
    pub(super) fn acquire(&mut self, turn: Turn, now: Monotonic) {
        if self.life != Life::Open {
            return self.emit(refused(turn.id, Refusal::Closed));
        }
        let key = turn.key.clone();
        let place = self.places.change_or_make(&key);
        let free = place.is_idle();
        if !turn.wait && !free {
            return self.emit(Output::Busy { turn: turn.id });
        }
        place.turns.push(turn);
        if free {
            self.seek(&key, now);
        } else {
            self.want_wait(&key, now);
        }
    }

    /// Starts a fresh request for the turns that queue here, if any.
    pub(super) fn seek(&mut self, key: &Key, now: Monotonic) {
        let request = self.next_request();
        let Some(place) = self.places.change(key) else { return };
        place.stage = Stage::Idle;
        if place.turns.is_empty() {
            return;
        }
        place.stage = Stage::Seeking(Seeking {
            request,
            wait: place.turns.iter().any(|turn| turn.wait),
            first_sent: None,
            waiting_sent: None,
            last_token: Token::default(),
            heard_at: now,
        });
        self.evict_silent(key, now);
        self.ask(key, now);
    }

    /// A turn that waits joined one that only tries.
    fn want_wait(&mut self, key: &Key, now: Monotonic) {
        let Some(seeking) = self.places.change(key).and_then(|place| place.seeking_mut()) else { return };
        if !seeking.wait {
            seeking.wait = true;
            self.ask(key, now);
        }
    }

    /// Sends the request: the first time it enqueues, after that it renews the place.
    pub(super) fn ask(&mut self, key: &Key, now: Monotonic) {
        let (lease_ms, heir_ms) = (self.config.lease_ms, self.config.heir_ms());
        let Some(place) = self.places.get(key) else { return };
        let Some(seeking) = place.seeking() else { return };
        let acquire = Acquire {
            request: seeking.request,
            wait: seeking.wait,
            beat: 0,
            beacon: 0,
            lease_ms,
            heir_ms,
            info: place.turns.first().map_or_else(String::new, |turn| turn.info.clone()),
        };
        self.outbox.recall(key, is_ask_for(acquire.request));
        self.outbox.push(key, Action::Acquire(acquire), None, now);
    }

    pub(super) fn cancel(&mut self, turn: TurnId, key: &Key, now: Monotonic) {
        let Some(place) = self.places.change(key) else { return };
        place.turns.retain(|queued| queued.id != turn);
        self.stop_if_unwanted(key, now);
    }

    pub(super) fn time_out_turns(&mut self, key: &Key, now: Monotonic) {
        let due = |turn: &Turn| turn.deadline.is_some_and(|deadline| deadline <= now);
        let Some(place) = self.places.change(key) else { return };
        let late = place.turns.iter().filter(|turn| due(turn));
        self.outputs.extend(late.map(|turn| refused(turn.id, Refusal::Timeout)));
        place.turns.retain(|turn| !due(turn));
        self.stop_if_unwanted(key, now);
    }

    /// Nobody here wants the lease any more: the place, or the grant that nobody uses, is given up.
    pub(super) fn stop_if_unwanted(&mut self, key: &Key, now: Monotonic) {
        let Some(place) = self.places.change(key) else { return };
        let used = place.held().is_some_and(|held| held.user.is_some());
        if used || !place.turns.is_empty() {
            return;
        }
        match core::mem::take(&mut place.stage) {
            Stage::Seeking(seeking) => self.withdraw(key, &seeking, now),
            Stage::Held(held) => self.give_back(key, &held, None, now),
            Stage::Idle => {}
        }
    }

    /// Every request that was sent and did not end in a release ends in a withdrawal.
    pub(super) fn withdraw(&mut self, key: &Key, seeking: &Seeking, now: Monotonic) {
        self.outbox.recall(key, is_ask_for(seeking.request));
        if seeking.first_sent.is_some() {
            self.withdraw_request(key, seeking.request, now);
        }
    }

    pub(super) fn withdraw_request(&mut self, key: &Key, request: RequestId, now: Monotonic) {
        self.outbox.push(key, Action::Withdraw { request }, None, now);
    }

    /// All turns of a key fail together.
    pub(super) fn fail_turns(&mut self, key: &Key, refusal: &Refusal) {
        let Some(place) = self.places.change(key) else { return };
        let turns = core::mem::take(&mut place.turns);
        place.stage = Stage::Idle;
        self.outputs.extend(turns.iter().map(|turn| refused(turn.id, refusal.clone())));
    }

    /// The key is taken: who did not want to wait is told, and goes.
    pub(super) fn refuse_tries(&mut self, key: &Key) {
        let Some(place) = self.places.change(key) else { return };
        let tries = place.turns.iter().filter(|turn| !turn.wait);
        self.outputs.extend(tries.map(|turn| Output::Busy { turn: turn.id }));
        place.turns.retain(|turn| turn.wait);
    }

    /// How long an errand that must not be forgotten is tried again, in ms: after that nobody believes it any more.
    pub(super) fn errand_limit_ms(&self) -> u64 {
        silence_ms(self.config.lease_ms)
    }
}
