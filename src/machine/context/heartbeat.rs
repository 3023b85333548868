//! One heartbeat for the whole context: one small write, whatever it holds, and a look at the keys that it waits for.

use super::{
    Machine,
    failure::StoreError,
    time::{Monotonic, earliest},
};

impl Machine {
    /// Sets the timer for the next heartbeat when the store has answered the last one. The time counts from when that one was sent.
    /// Otherwise a slow store would lengthen the interval.
    pub(super) fn arm_heartbeat(&mut self, now: Monotonic) {
        if !self.cohorts.any_beats() || !self.session.is_open() {
            self.heartbeat_at = None;
        } else if self.heartbeat_at.is_none() && !self.store_queue.carries_beat() && !self.session.wants_beat() {
            let since = now.since(self.last_heartbeat);
            let base = if since < self.config.lease_ms { self.last_heartbeat } else { now };
            self.beat_by(base);
        }
    }

    /// Makes the next heartbeat due no later than one interval after this moment.
    pub(super) fn beat_by(&mut self, sent: Monotonic) {
        let early_ms = self.dice.below(self.config.heartbeat_ms / 8 + 1);
        let at = sent.plus(self.config.heartbeat_ms - early_ms);
        self.heartbeat_at = earliest(&[self.heartbeat_at, Some(at)]);
    }

    pub(super) fn beat_if_due(&mut self, now: Monotonic) {
        if self.heartbeat_at.is_none_or(|at| at > now) {
            return;
        }
        self.heartbeat_at = None;
        self.session.want_beat();
        // Nothing else would show that others wait for a lease that passes from task to task here.
        let passed_on = self.cohorts.take_passed_on();
        self.ask_about(&passed_on, now);
        self.look_at_each(&self.cohorts.waiting(), now);
    }

    /// A heartbeat failed, so it is sent again soon. Requests that wait for a lease in doubt learn of the failure.
    // Protocol: docs/protocol.md#i11.
    pub(super) fn beat_failed(&mut self, error: &StoreError, now: Monotonic) {
        if !self.session.is_open() {
            return;
        }
        if !error.retry {
            return self.lose_refused_session(now);
        }
        let failures = self.session.note_failure();
        let delay_ms = self.backoff_ms(failures);
        self.heartbeat_at = Some(now.plus(delay_ms));
        if self.session.belief_left(now) == 0 {
            self.lose_locks(now);
            if !self.has_hardly_asked() {
                self.fail_waiting_in_doubt(error, now);
            }
        }
    }
}
