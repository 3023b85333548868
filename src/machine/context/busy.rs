//! Requests that find a key taken, although its holder may not use it, or may be a dead context of the same instance.

use alloc::{boxed::Box, vec::Vec};

use super::{
    Entry, Machine, SessionId, Sighting,
    cohort::{Cohort, Seeking, Twin, TwinLife},
    input::Slot,
    key::Key,
    message::Body,
    mode::Mode,
    output::Refusal,
    pending::{PendingOperation, SecondLook},
    record::Way,
    retry::ATTEMPTS,
    store_queue::is_ask_for,
    time::Monotonic,
};

/// By then, a reachable holder that does not use a key has released it.
pub(super) const LOOK_MS: u64 = 30;
/// If a beacon still stands after this time, its context lives. This is long enough for a closed or reloaded page to go.
pub(super) const GONE_MS: u64 = 250;

impl Machine {
    /// The key is taken. A try asks the holder whether it uses the key, and looks again once.
    // Protocol: docs/protocol.md#s9.
    pub(super) fn busy(&mut self, slot: &Slot, ahead: &[Sighting], now: Monotonic) {
        self.observe(slot, ahead, now);
        if self.meet_twin(slot, ahead, now) {
            return self.ask(slot, now);
        }
        let me = self.session.id();
        let Some(seeking) = self.cohorts.change_seeking(slot) else {
            return debug_assert!(false, "the answer is for this request");
        };
        let is_first = seeking.look_until.is_none();
        let until = *seeking.look_until.get_or_insert_with(|| now.plus(LOOK_MS));
        let may_be_dead = self.presence.beacon_stands() && ahead.iter().any(|seen| seen.beacon);
        // If several holders do not use the key, each releases it separately. A request that is alone in its slot gets the present answer,
        // unless a holder may be dead.
        let may_ask = slot.own.is_none() || (may_be_dead && seeking.way == Way::Plain);
        // A waiter ahead may be dead, too, but not this context itself.
        let all_may_be_dead = may_be_dead && ahead.iter().all(|seen| seen.holder != me);
        let may_change = may_ask && !seeking.is_in_use && (may_be_unused(ahead, me) || all_may_be_dead);
        if !may_change {
            return self.found_busy(slot, now);
        }
        if now < until {
            seeking.look_at = Some(until);
            if is_first {
                self.ask_those_ahead(slot, ahead);
            }
            return;
        }
        let is_probing = may_be_dead && self.probe(slot, now);
        if !is_probing {
            self.found_busy(slot, now);
        }
    }

    /// A holder that did not say that it uses the key may be dead, which its beacon would show. Only a request in the queue watches that
    /// beacon. So a try enters the queue for a moment, but only once. Returns whether it does.
    fn probe(&mut self, slot: &Slot, now: Monotonic) -> bool {
        let Some(seeking) = self.cohorts.change_seeking(slot) else {
            debug_assert!(false, "`busy` has found the request");
            return false;
        };
        if core::mem::replace(&mut seeking.wait, true) {
            return false;
        }
        seeking.probes_until = Some(now.plus(GONE_MS));
        self.ask(slot, now);
        true
    }

    /// A beacon that was watched long enough still stands, so its context is alive, unless its session is being ended. A request that only
    /// tries is refused, and leaves the queue. An upgrade is refused.
    // Protocol: docs/protocol.md#s9.
    pub(super) fn end_probe_if_due(&mut self, slot: &Slot, now: Monotonic) {
        let Some(seeking) = self.cohorts.change_seeking(slot) else { return };
        if seeking.probes_until.is_none_or(|until| until > now) {
            return;
        }
        if self.is_too_early_to_judge(slot) {
            if let Some(seeking) = self.cohorts.change_seeking(slot) {
                seeking.probes_until = Some(now.plus(LOOK_MS));
            }
        } else if self.cohorts.held(slot).is_some() {
            self.conclude_upgrade(slot, now);
        } else {
            self.end_probe(slot, now);
        }
    }

    /// Whether it is too early to conclude from a beacon that its context lives: the beacon may be gone, and the store is about to say so;
    /// or its watch has not begun, because the request has no place in the queue yet.
    // Protocol: docs/protocol.md#s9.
    fn is_too_early_to_judge(&self, slot: &Slot) -> bool {
        let places = |seeking: &Seeking| {
            !seeking.queued && seeking.way == Way::Plain && self.store_queue.carries(slot, is_ask_for(seeking.request))
        };
        self.store_queue.is_ending(slot, ATTEMPTS) || self.cohorts.seeking(slot).is_some_and(places)
    }

    fn end_probe(&mut self, slot: &Slot, now: Monotonic) {
        if let Some(seeking) = self.cohorts.change_seeking(slot) {
            seeking.probes_until = None;
        }
        self.end_tries(slot, now);
    }

    /// Tells the holders of a key that another context wants it.
    pub(super) fn tell_wanted(&mut self, key: &Key, ahead: &[Sighting], tries: bool) {
        let by = self.session.id();
        for seen in ahead.iter().filter(|seen| matches!(seen.entry, Entry::Grant(_)) && seen.holder != by) {
            self.send(key, Body::Wanted { holder: seen.holder, by, tries });
        }
    }

    /// Asks those that block a try whether they use the key. If the try and the holders share, only waiters block it, and the nearest of
    /// them is asked.
    // Protocol: docs/protocol.md#s9.
    fn ask_those_ahead(&mut self, slot: &Slot, ahead: &[Sighting]) {
        match ahead.last() {
            Some(seen) if slot.mode == Mode::Shared && matches!(seen.entry, Entry::Waiter(_)) => {
                self.ask_for_life(&slot.key, seen.holder);
            }
            _ => self.tell_wanted(&slot.key, ahead, true),
        }
    }

    /// Asks another context whether it uses the key or waits for it.
    pub(super) fn ask_for_life(&mut self, key: &Key, holder: SessionId) {
        self.send(key, Body::Wanted { holder, by: self.session.id(), tries: true });
    }

    // Protocol: docs/protocol.md#i8.
    pub(super) fn found_busy(&mut self, slot: &Slot, now: Monotonic) {
        self.refuse_tries(slot);
        let is_unwanted = |cohort: &&mut Cohort| cohort.turns.is_empty() && cohort.held().is_none();
        let Some(cohort) = self.cohorts.change(slot).filter(is_unwanted) else { return self.want_less(slot, now) };
        // A try has no place in the queue, unless an attempt that was given up is applied late, or another request for this slot wanted to
        // wait.
        let Some(seeking) = cohort.take_seeking() else { return };
        if seeking.retried || seeking.wait {
            self.withdraw(slot, &seeking, now);
        }
    }

    /// Tells the tries that the key is taken. Those that are left may want less, or none may be left.
    // Protocol: docs/protocol.md#p4.
    pub(super) fn end_tries(&mut self, slot: &Slot, now: Monotonic) {
        self.refuse_tries(slot);
        self.stop_if_unwanted(slot, now);
        self.want_less(slot, now);
    }

    /// Some of several keys are taken.
    // Protocol: docs/protocol.md#i11.
    pub(super) fn busy_all(&mut self, operation: &PendingOperation, ahead: &[Vec<Sighting>], now: Monotonic) {
        for (slot, ahead) in operation.all.iter().zip(ahead) {
            self.observe(slot, ahead, now);
        }
        let me = self.session.id();
        let unused = ahead.iter().all(|ahead| ahead.is_empty() || may_be_unused(ahead, me));
        let until = match operation.second_look {
            SecondLook::Ahead => Some(now.plus(LOOK_MS)),
            SecondLook::Until(until) => Some(until),
            SecondLook::Skipped => None,
        };
        if let Some(until) = until.filter(|until| unused && now < *until) {
            for (slot, ahead) in operation.all.iter().zip(ahead) {
                self.tell_wanted(&slot.key, ahead, true);
            }
            let mut again = operation.clone();
            again.second_look = SecondLook::Until(until);
            return self.store_queue.try_again(again, until);
        }
        for slot in &operation.all {
            self.found_busy(slot, now);
        }
    }

    /// A holder released the key because another context wanted it.
    pub(super) fn look_again_at(&mut self, key: &Key, now: Monotonic) {
        for slot in self.looking_at(key) {
            self.ask(&slot, now);
        }
        self.store_queue.retry_now(key);
    }

    /// A holder uses the key. If a look is under way, its answer says whether the key is still taken.
    pub(super) fn conclude_busy(&mut self, key: &Key, now: Monotonic) {
        let asks = |cohort: &Cohort| cohort.seeking().is_some_and(|seeking| seeking.look_until.is_some());
        for slot in self.cohorts.pick(Some(key), &|_, cohort| asks(cohort)) {
            if self.cohorts.held(&slot).is_some() {
                self.conclude_upgrade(&slot, now);
                continue;
            }
            let Some(seeking) = self.cohorts.change_seeking(&slot) else {
                debug_assert!(false, "it was picked because it has a request");
                continue;
            };
            seeking.is_in_use = true;
            if seeking.look_at.take().is_some() {
                self.found_busy(&slot, now);
            } else if seeking.probes_until.is_some() {
                self.end_probe(&slot, now);
            }
        }
    }

    fn looking_at(&self, key: &Key) -> Vec<Slot> {
        let looks = |cohort: &Cohort| cohort.seeking().is_some_and(|seeking| seeking.look_at.is_some());
        self.cohorts.pick(Some(key), &|_, cohort| looks(cohort))
    }

    pub(super) fn look_if_due(&mut self, slot: &Slot, now: Monotonic) {
        let look_at = self.cohorts.seeking(slot).and_then(|seeking| seeking.look_at);
        if look_at.is_some_and(|at| at <= now) {
            self.ask(slot, now);
        }
    }

    /// Checks whether another context of this instance, its twin, is in the way, and refuses the request if the twin is alive. Returns
    /// whether the request must be sent again for a place in the queue, because only with a place can it watch the twin's beacon.
    pub(super) fn meet_twin(&mut self, slot: &Slot, ahead: &[Sighting], now: Monotonic) -> bool {
        // A request that upgrades holds the key together with its twin.
        let cohort = self.cohorts.change(slot).filter(|cohort| cohort.held().is_none());
        let Some(seeking) = cohort.and_then(Cohort::seeking_mut) else { return false };
        let Some(seen) = ahead.iter().find(|seen| seen.twin) else {
            seeking.twin = None;
            return false;
        };
        let is_same = |twin: &&mut Box<Twin>| (twin.seen.holder, twin.seen.entry) == (seen.holder, seen.entry);
        let Some(twin) = seeking.twin.as_mut().filter(is_same) else {
            let life = TwinLife::Watched { until: now.plus(GONE_MS) };
            seeking.twin = Some(Twin { seen: *seen, life }.into());
            return !core::mem::replace(&mut seeking.wait, true);
        };
        let is_alive = match twin.life {
            TwinLife::Watched { .. } => false,
            TwinLife::Alive => true,
            // It renewed its lease after its time to disappear was over.
            TwinLife::Unknown => twin.seen.beat != seen.beat,
        };
        if is_alive {
            self.refuse_twin(slot, now);
        } else {
            twin.seen = *seen;
        }
        false
    }

    /// A twin whose beacon still stands is alive. It may have released the key since, so this asks the store once more. Without a beacon it
    /// is not known yet, so the twin counts as a holder like any other.
    pub(super) fn judge_twin_if_due(&mut self, slot: &Slot, now: Monotonic) {
        let Some(Twin { seen, life: TwinLife::Watched { until } }) = self.cohorts.change_twin(slot) else { return };
        if *until > now {
            return;
        }
        let may_stand = seen.beacon && !self.config.late_deaths;
        let life = if may_stand && self.is_too_early_to_judge(slot) {
            TwinLife::Watched { until: now.plus(LOOK_MS) }
        } else if may_stand && !self.store_queue.is_ending(slot, u32::MAX) {
            TwinLife::Alive
        } else {
            // If its beacon is gone, but the store cannot confirm that, it counts as a holder like any other.
            TwinLife::Unknown
        };
        if let Some(twin) = self.cohorts.change_twin(slot) {
            twin.life = life;
        }
        match life {
            TwinLife::Watched { .. } => {}
            TwinLife::Alive => self.ask(slot, now),
            TwinLife::Unknown => self.end_tries(slot, now),
        }
    }

    /// The beacon of a twin that was found alive is gone now. The store will confirm it in a moment.
    pub(super) fn twin_died(&mut self, slot: &Slot, session: SessionId, now: Monotonic) {
        if let Some(twin) = self.cohorts.change_twin(slot)
            && twin.life == TwinLife::Alive
            && twin.seen.holder == session
        {
            twin.life = TwinLife::Watched { until: now.plus(LOOK_MS) };
        }
    }

    fn refuse_twin(&mut self, slot: &Slot, now: Monotonic) {
        let Some(seeking) = self.cohorts.change(slot).and_then(Cohort::take_seeking) else {
            return debug_assert!(false, "the twin stands in the way of a request");
        };
        self.fail_turns(slot, &Refusal::InstanceInUse(self.config.instance.clone()));
        self.withdraw(slot, &seeking, now);
    }
}

impl Seeking {
    /// The request has its place now, so the watch of the beacon right ahead of it begins.
    pub(super) fn begin_watch(&mut self, now: Monotonic) {
        let until = now.plus(GONE_MS);
        self.probes_until = self.probes_until.map(|_| until);
        if let Some(Twin { life: TwinLife::Watched { until: watched_until }, .. }) = self.twin.as_deref_mut() {
            *watched_until = until;
        }
    }
}

/// Whether only holders are in the way, and none of them is this context.
fn may_be_unused(ahead: &[Sighting], me: SessionId) -> bool {
    ahead.iter().all(|seen| matches!(seen.entry, Entry::Grant(_)) && seen.holder != me)
}
