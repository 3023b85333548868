//! Reads the state of this context's requests: once for each key.

use alloc::vec::Vec;

use super::{
    Machine,
    cohorts::STAYS,
    id::RequestId,
    input::Slot,
    key::Key,
    record::{Action, Outcome, Sighting},
    sorted::SortedMap,
    time::Monotonic,
    token::Token,
};

impl Machine {
    /// Reads each key of these slots once, for all cohorts that wait there. If only the queue keeps the next request from sharing a lease,
    /// this also asks whether anybody still queues.
    // Protocol: docs/protocol.md#p5.
    pub(super) fn look_at_each(&mut self, slots: &[Slot], now: Monotonic) {
        if slots.is_empty() {
            return;
        }
        let sharers: Vec<_> = slots.iter().filter(|slot| self.cohorts.waits_for_queue_only(slot)).cloned().collect();
        self.ask_about(&sharers, now);
        let asked = self.store_queue.unsent(slots, |action| *action == Action::Look);
        let mut keys: Vec<_> = slots.iter().map(|slot| &slot.key).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            if asked.binary_search_by(|asked| asked.key.cmp(key)).is_err() {
                let slot = Slot::of_key(key.clone());
                self.store_queue.push(&slot, Action::Look, None, now);
            }
        }
    }

    /// The answer about the requests of this context that still wait. Grants were reported before.
    // Protocol: docs/protocol.md#s4, #rule-5.
    pub(super) fn looked(&mut self, key: &Key, outcome: &Outcome, now: Monotonic) {
        let Outcome::Looked { requests, last_token, ahead } = outcome else { return self.unreadable_at(key, outcome) };
        let mut found = SortedMap::new();
        for (at, request) in requests.iter().enumerate() {
            found.insert(*request, Some(at));
        }
        for slot in &self.cohorts.pick(Some(key), &|_, cohort| cohort.waits() || cohort.seeking().is_none()) {
            let Some(request) = self.cohorts.seeking(slot).map(|seeking| seeking.request) else {
                // If the context in the queue is dead, and nobody waits behind it, no other context would ever notice.
                self.observe(slot, ahead, now);
                continue;
            };
            match found.get_mut(&request).and_then(Option::take) {
                Some(0) => self.is_foremost(slot, *last_token, ahead, now),
                Some(_) => self.still_waits(slot, *last_token, now),
                // The place is gone, or the request was granted and lost in between.
                None => self.ask(slot, now),
            }
        }
        for (request, at) in found {
            if at.is_some() {
                self.end_stray_place(key, request, now);
            }
        }
    }

    /// Other requests of this context are ahead of this one.
    fn still_waits(&mut self, slot: &Slot, last_token: Token, now: Monotonic) {
        let Some(cohort) = self.cohorts.change_untracked(slot) else { return debug_assert!(false, "{STAYS}") };
        let was_foremost = !cohort.ahead.is_empty();
        let Some(seeking) = cohort.seeking_mut() else { return debug_assert!(false, "its place was found") };
        seeking.heard_at = now;
        seeking.last_token = last_token;
        if was_foremost {
            self.observe(slot, &[], now);
        }
    }

    fn is_foremost(&mut self, slot: &Slot, last_token: Token, ahead: &[Sighting], now: Monotonic) {
        if let Some(seeking) = self.cohorts.change_seeking(slot) {
            seeking.heard_at = now;
            seeking.last_token = last_token;
        }
        self.observe(slot, ahead, now);
        self.meet_twin(slot, ahead, now);
        // The twin for which these tries waited may have gone, and another context may hold the key now.
        self.end_tries(slot, now);
    }

    /// Removes a place that no request here knows.
    fn end_stray_place(&mut self, key: &Key, request: RequestId, now: Monotonic) {
        if !self.knows(key, request) {
            let slot = Slot::of_key(key.clone());
            self.withdraw_request(&slot, request, now);
        }
    }

    /// The record of a key can no longer be read.
    fn unreadable_at(&mut self, key: &Key, outcome: &Outcome) {
        let Outcome::Unreadable(unreadable) = *outcome else { return };
        for slot in &self.cohorts.pick(Some(key), &|_, cohort| cohort.waits() && cohort.held().is_none()) {
            self.fail_turns(slot, &super::output::Refusal::Unreadable(unreadable));
        }
    }
}
