//! Acquiring a lease: ask, queue, keep the place, give up.

use alloc::vec::Vec;

use super::{
    Machine,
    cohort::{Cohort, Seeking, Stage},
    cohorts::STAYS,
    config::silence_ms,
    id::RequestId,
    input::{Parcel, Slot, Turn, TurnId},
    key::Key,
    mode::Mode,
    output::{Event, LostReason, Refusal},
    pending::SecondLook,
    record::{Action, Way},
    store_queue::is_ask_for,
    time::Monotonic,
};

impl Machine {
    // Protocol: docs/protocol.md#p5.
    pub(super) fn acquire(&mut self, turn: Turn, now: Monotonic) {
        if self.life.is_over() {
            return self.refuse(turn.id, Refusal::Closed);
        }
        if let Some(refusal) = self.life.refusal().filter(|_| !turn.wait) {
            return self.refuse(turn.id, refusal);
        }
        let (slot, steals) = (turn.slot(), turn.steal);
        let (id, waits) = (turn.id, turn.wait);
        let cohort = self.cohorts.change_or_make(&slot);
        // Usually both texts are empty. Their lengths are checked first, because some C libraries compare empty texts slowly.
        let renames = cohort.info.len() + turn.info.len() > 0 && cohort.info != turn.info;
        cohort.add(turn);
        match (&mut cohort.stage, steals) {
            _ if self.life.is_suspended() => {}
            (Stage::Idle, _) => self.seek(&slot, now),
            (Stage::Seeking(_), _) => self.join(&slot, now),
            (Stage::Held(_), true) => self.lose(&slot, LostReason::Stolen, now),
            (Stage::Held(held), false) if renames && held.lingers() => {
                // Otherwise the store would still show another `info`. The release and the request go in one transaction.
                self.end_linger(&slot, None, now);
                self.seek(&slot, now);
            }
            (Stage::Held(held), false) => {
                // The turn may have to wait for tokens, or for the end of a doubt, for longer than the linger.
                held.lingers_until = None;
                self.ask_who_queues(&slot, now);
                self.hand_out(&slot, now);
                if waits {
                    self.tell_own_wait(id, &slot);
                }
            }
        }
    }

    /// Reports that a request waits for guards of its own context, which may in turn be waiting for this request.
    fn tell_own_wait(&mut self, turn: TurnId, slot: &Slot) {
        let users = self.cohorts.held(slot).map_or(&[][..], |held| &held.users);
        if !users.is_empty() && users.iter().all(|user| user.turn != turn) {
            self.emit(Event::Waiting { turn, ahead: 0 });
        }
    }

    /// Starts a new request for the turns that queue here, if there are any.
    pub(super) fn seek(&mut self, slot: &Slot, now: Monotonic) {
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let Some(first) = cohort.turns.first() else { return cohort.stage = Stage::Idle };
        let way = if first.steal { Way::Steal } else { Way::Plain };
        let wait = cohort.turns.any_waits();
        self.seek_by(slot, way, wait, now);
        self.end_silent(slot, now);
        self.ask(slot, now);
    }

    fn seek_by(&mut self, slot: &Slot, way: Way, wait: bool, now: Monotonic) {
        let request = self.next_request();
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let may_be_applied = cohort.may_have_been_granted();
        cohort.stage = Stage::Seeking(Seeking { may_be_applied, ..Seeking::new(request, way, wait, now) });
        self.end_linger_at(&slot.key, now);
    }

    /// A turn joined a request under way, and may want to wait, to go first, or to steal.
    fn join(&mut self, slot: &Slot, now: Monotonic) {
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let Some(first) = cohort.turns.first() else {
            return debug_assert!(false, "the turn that joins is in the queue");
        };
        let (priority, steals, wait) = (first.priority, first.steal, cohort.turns.any_waits());
        let waits = cohort.waits();
        let Some(seeking) = cohort.seeking_mut() else { return debug_assert!(false, "a turn joins a request") };
        let asks_more = (wait && !seeking.wait) || priority > seeking.priority;
        let robs = steals && seeking.way == Way::Plain;
        seeking.wait |= wait;
        if robs {
            seeking.way = Way::Steal;
        }
        if asks_more || robs {
            self.ask(slot, now);
        } else if waits {
            self.end_tries(slot, now);
        }
    }

    /// Acquires all keys in one operation, or none.
    pub(super) fn acquire_all(&mut self, turns: Vec<Turn>, now: Monotonic) {
        if let Some(refusal) = self.life.refusal() {
            return turns.iter().for_each(|turn| self.refuse(turn.id, refusal.clone()));
        }
        let mut slots = Vec::with_capacity(turns.len());
        let waits_next = turns.iter().any(|turn| turn.wait);
        let second_look = if waits_next { SecondLook::Skipped } else { SecondLook::Ahead };
        for mut turn in turns {
            turn.wait = false;
            let slot = turn.slot();
            self.cohorts.change_or_make(&slot).turns.push(turn);
            slots.push(slot);
        }
        self.ask_for_all(slots, second_look, now);
    }

    /// Sends one operation for all of them, with new requests.
    pub(super) fn ask_for_all(&mut self, slots: Vec<Slot>, second_look: SecondLook, now: Monotonic) {
        // They are given up one by one, so an answer may arrive when some are already gone.
        if slots.iter().any(|slot| self.cohorts.get(slot).is_none()) {
            return;
        }
        let mut asks = Vec::with_capacity(slots.len());
        for slot in &slots {
            self.seek_by(slot, Way::Plain, false, now);
            self.end_silent(slot, now);
            if let Some(ask) = self.cohorts.request(slot) {
                asks.push((slot.key.clone(), ask));
            }
        }
        let Some(first) = slots.first().cloned() else { return };
        let operation = self.store_queue.push(&first, Action::AcquireAll(asks), None, now);
        (operation.all, operation.second_look) = (slots, second_look);
    }

    /// Takes over a lease that was taken out of another guard.
    pub(super) fn resume(&mut self, turn: Turn, parcel: &Parcel, now: Monotonic) {
        if let Some(refusal) = self.life.refusal() {
            return self.refuse(turn.id, refusal);
        }
        let slot = turn.slot();
        self.cohorts.change_or_make(&slot).turns.push(turn);
        let Parcel { from, origin, grant: token, request, .. } = *parcel;
        self.seek_by(&slot, Way::Resume { from, origin, token, request }, false, now);
        if let Some(seeking) = self.cohorts.change_seeking(&slot) {
            seeking.cursor = Some(parcel.next);
        }
        self.ask(&slot, now);
    }

    /// Sends the request: the first time it enqueues, after that it finds its place or its grant.
    pub(super) fn ask(&mut self, slot: &Slot, now: Monotonic) {
        let Some(acquire) = self.cohorts.request(slot) else { return debug_assert!(false, "only a request is sent") };
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let Some(seeking) = cohort.seeking_mut() else { return debug_assert!(false, "it has just been read") };
        seeking.priority = acquire.priority;
        seeking.look_at = None;
        let asked_before = core::mem::replace(&mut seeking.asked, true);
        let takes_place = !seeking.queued && !matches!(acquire.way, Way::Upgrade { .. });
        if takes_place {
            cohort.info.clone_from(&acquire.info);
        }
        // The first time there is nothing to take back, and a search would take longer the more is waiting here.
        if asked_before {
            self.store_queue.recall(slot, is_ask_for(acquire.request));
        }
        self.store_queue.push(slot, Action::Acquire(acquire), None, now);
    }

    pub(super) fn cancel(&mut self, turn: TurnId, slot: &Slot, now: Monotonic) {
        // A turn that no longer waits was granted. Its lease may have been lost since.
        if !self.cohorts.change(slot).is_some_and(|cohort| cohort.turns.remove(turn)) {
            return self.release(turn, slot, now);
        }
        self.stop_if_unwanted(slot, now);
        self.want_less(slot, now);
    }

    /// A turn that wanted to steal, or to go first, has gone.
    pub(super) fn want_less(&mut self, slot: &Slot, now: Monotonic) {
        let robs_no_more = self.cohorts.change(slot).is_some_and(Cohort::rob_no_more);
        let Some(Cohort { turns, stage: Stage::Seeking(seeking), .. }) = self.cohorts.change(slot) else { return };
        let goes_before_fewer = turns.first().is_some_and(|first| first.priority < seeking.priority);
        if robs_no_more || goes_before_fewer {
            self.ask(slot, now);
        }
    }

    /// Refuses the turns whose time is over. Returns every cohort that has something due, whether or not a turn of it was refused.
    pub(super) fn time_out_late(&mut self, now: Monotonic) -> Vec<Slot> {
        let due = self.cohorts.due(now);
        due.iter().for_each(|slot| self.time_out_turns(slot, now));
        due
    }

    fn time_out_turns(&mut self, slot: &Slot, now: Monotonic) {
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        if cohort.turns.alarm().is_none_or(|alarm| alarm > now) {
            return;
        }
        let late = cohort.turns.take_late(now);
        let long = cohort.turns.take_warnings(now);
        late.iter().for_each(|turn| self.refuse(turn.id, Refusal::Timeout));
        long.iter().for_each(|turn| self.emit(Event::WaitsLong { turn: *turn }));
        if !late.is_empty() {
            self.stop_if_unwanted(slot, now);
            self.want_less(slot, now);
        }
    }

    /// If nobody here wants the lease any more, gives up the place, or the unused grant.
    pub(super) fn stop_if_unwanted(&mut self, slot: &Slot, now: Monotonic) {
        let Some(cohort) = self.cohorts.change(slot) else { return debug_assert!(false, "{STAYS}") };
        let used = cohort.held().is_some_and(|held| !held.users.is_empty() || held.lingers());
        if used || !cohort.turns.is_empty() {
            return;
        }
        match core::mem::take(&mut cohort.stage) {
            Stage::Seeking(seeking) => self.withdraw(slot, &seeking, now),
            Stage::Held(held) => _ = self.give_back(slot, &held, None, now),
            Stage::Idle => {}
        }
    }

    /// Every request that was sent and did not end in a release ends in a withdrawal.
    // Protocol: docs/protocol.md#p5.
    pub(super) fn withdraw(&mut self, slot: &Slot, seeking: &Seeking, now: Monotonic) {
        self.store_queue.give_up_request(slot, seeking.request);
        if seeking.sent {
            self.withdraw_request(slot, seeking.request, now);
            // Shared requests of this context may have been waiting only for this one.
            self.ask_again_who_queues(&Slot { key: slot.key.clone(), mode: Mode::Shared, own: None }, now);
        }
    }

    /// A session that has ended took all its requests with it. A request in the same transaction that opens its session is withdrawn once
    /// that transaction is answered.
    // Protocol: docs/protocol.md#s11.
    pub(super) fn withdraw_request(&mut self, slot: &Slot, request: RequestId, now: Monotonic) {
        if !self.session.is_open() && !self.store_queue.opens() {
            return;
        }
        self.store_queue.push(slot, Action::Withdraw { request }, None, now);
    }

    /// All turns of a slot fail together.
    pub(super) fn fail_turns(&mut self, slot: &Slot, refusal: &Refusal) {
        let Some(cohort) = self.cohorts.change(slot) else { return };
        let turns = cohort.turns.take_all();
        cohort.stage = Stage::Idle;
        turns.iter().for_each(|turn| self.refuse(turn.id, refusal.clone()));
    }

    /// The key is taken. This refuses the turns that do not wait, unless it is too early to say so.
    pub(super) fn refuse_tries(&mut self, slot: &Slot) {
        let Some(cohort) = self.cohorts.change(slot) else { return };
        if cohort.seeking().is_some_and(Seeking::is_looking) {
            return;
        }
        let tries = cohort.turns.take_tries();
        tries.iter().for_each(|turn| self.emit(Event::Busy { turn: turn.id }));
    }

    /// Releases what this context keeps at a key without using it, so that it does not block itself.
    pub(super) fn end_linger_at(&mut self, key: &Key, now: Monotonic) {
        if !self.cohorts.any_lingers() {
            return;
        }
        let lingers = |cohort: &Cohort| cohort.held().is_some_and(super::cohort::Held::lingers);
        for slot in &self.cohorts.pick(Some(key), &|_, cohort| lingers(cohort)) {
            self.end_linger(slot, None, now);
        }
    }

    /// How long a release waits for the store, in ms. After that, nobody considers the lease valid any more.
    pub(super) fn operation_limit_ms(&self) -> u64 {
        silence_ms(self.config.lease_ms)
    }
}
