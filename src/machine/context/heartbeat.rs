//! One heartbeat for the whole context: one small write, whatever it holds, and a look at the keys that it waits for.

use super::{Machine, failure::StoreError, time::Monotonic};

/// When the context sends heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct HeartbeatTimer {
    due: Option<Monotonic>,
    last_sent: Monotonic,
}

impl HeartbeatTimer {
    pub(super) fn next_wake(&self) -> Option<Monotonic> {
        self.due
    }

    /// Sends the next one at this time.
    pub(super) fn plan(&mut self, at: Monotonic) {
        self.due = Some(at);
    }

    pub(super) fn note_sent(&mut self, at: Monotonic) {
        self.last_sent = at;
    }

    /// A user's transaction carried one that was sent at this moment, so the next one is not needed yet.
    pub(super) fn replaced_by(&mut self, sent_at: Monotonic) {
        (self.last_sent, self.due) = (self.last_sent.max(sent_at), None);
    }
}

impl Machine {
    /// Sets the timer for the next heartbeat when the store has answered the last one. The time counts from when that one was sent.
    /// Otherwise a slow store would lengthen the interval.
    pub(super) fn arm_heartbeat(&mut self, now: Monotonic) {
        if !self.cohorts.any_beats() || !self.session.is_open() {
            self.heartbeat.due = None;
        } else if self.heartbeat.due.is_none() && !self.store_queue.carries_beat() && !self.session.wants_beat() {
            let last_sent = self.heartbeat.last_sent;
            let base = if now.since(last_sent) < self.config.lease_ms { last_sent } else { now };
            let early_ms = self.dice.below(self.config.heartbeat_ms / 8 + 1);
            self.heartbeat.plan(base.plus(self.config.heartbeat_ms - early_ms));
        }
    }

    pub(super) fn beat_if_due(&mut self, now: Monotonic) {
        if self.heartbeat.due.take_if(|at| *at <= now).is_none() {
            return;
        }
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
            return self.lose_refused_session(error, now);
        }
        let failures = self.session.note_failure();
        let delay_ms = self.backoff_ms(failures);
        self.heartbeat.plan(now.plus(delay_ms));
        if self.session.belief_left(now) == 0 {
            self.lose_locks(now);
            if !self.has_hardly_asked() {
                self.fail_waiting_in_doubt(error, now);
            }
        }
    }
}
