//! One heartbeat for everything: one small write, whatever is held, and a look at the keys that are waited for.

use super::{
    Machine,
    failure::StoreError,
    time::{Monotonic, earliest},
};

impl Machine {
    /// It is armed anew when the store has answered the last one, counted from its sending: else a slow store would
    /// stretch the time between two.
    pub(super) fn arm_heartbeat(&mut self, now: Monotonic) {
        if !self.cohorts.any_beats() || !self.session.is_open() {
            self.heartbeat_at = None;
        } else if self.heartbeat_at.is_none() && !self.store_queue.carries_beat() && !self.session.wants_beat() {
            let since = now.since(self.last_heartbeat);
            let base = if since < self.config.lease_ms { self.last_heartbeat } else { now };
            self.beat_by(base);
        }
    }

    /// Has the next heartbeat come no later than one interval after this moment.
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
        // For a lease that passes from task to task here, nothing else would show that others wait.
        let passed_on = self.cohorts.take_passed_on();
        self.ask_about(&passed_on, now);
        self.look_at_each(&self.cohorts.waiting(), now);
    }

    /// The store did not take a heartbeat: it goes again soon. Whoever waits for a lease in doubt hears of the failure.
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
