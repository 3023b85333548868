//! Being heard and seen: the channel and the beacon, up only while something is held or awaited.

use super::{Machine, id::Beacon, port::Output, time::Monotonic};

/// A beacon that does not stand by then is not waited for.
const RISING_LIMIT_MS: u64 = 250;
/// A context that needs nothing stays present for so long, so that its next request costs no more than a transaction.
const IDLE_LIMIT_MS: u64 = 10_000;

/// Whether other contexts can hear and see this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Presence {
    state: State,
    /// Of the last beacon that was raised. One that was lowered is never raised again.
    generation: u64,
    rest_at: Option<Monotonic>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    #[default]
    Resting,
    /// The beacon was asked for.
    Rising { until: Monotonic },
    /// It stands.
    Standing,
    /// Awake without a beacon.
    Dark,
}

impl Presence {
    /// Whether operations should wait a moment, so that the first grant is written with a beacon.
    pub(super) fn is_rising(&self) -> bool {
        matches!(self.state, State::Rising { .. })
    }

    /// The truth at the time of sending: the generation of the standing beacon, or 0.
    pub(super) fn flag(&self) -> u64 {
        if self.state == State::Standing { self.generation } else { 0 }
    }

    pub(super) fn stands(&mut self, beacon: Beacon) {
        if beacon.generation == self.generation && self.state != State::Resting {
            self.state = State::Standing;
        }
    }

    /// Goes on without it. Whether it stood.
    fn lost(&mut self, beacon: Beacon) -> bool {
        let stood = self.state == State::Standing;
        let own = beacon.generation == self.generation && self.state != State::Resting;
        if own {
            self.state = State::Dark;
        }
        own && stood
    }

    pub(super) fn no_beacon(&mut self) {
        if self.is_rising() {
            self.state = State::Dark;
        }
    }

    pub(super) fn give_up_rising(&mut self, now: Monotonic) {
        if matches!(self.state, State::Rising { until } if until <= now) {
            self.state = State::Dark;
        }
    }

    pub(super) fn next_wake(&self) -> Option<Monotonic> {
        match self.state {
            State::Rising { until } => Some(until),
            _ => self.rest_at,
        }
    }
}

impl Machine {
    /// Wakes when there is something to be present for, and plans the rest when there no longer is.
    pub(super) fn follow_presence(&mut self, now: Monotonic) {
        let needed = !self.places.is_empty() || !self.outbox.is_empty();
        match (needed, self.presence.state) {
            (true, State::Resting) if !self.places.is_empty() && !self.life.is_suspended() => self.wake(now),
            (true, _) => self.presence.rest_at = None,
            (false, State::Resting) => {}
            (false, _) => {
                self.presence.rest_at.get_or_insert_with(|| now.plus(IDLE_LIMIT_MS));
            }
        }
    }

    fn wake(&mut self, now: Monotonic) {
        self.presence.generation += 1;
        self.presence.rest_at = None;
        let beacon = Beacon { holder: self.me, generation: self.presence.generation };
        self.presence.state =
            if self.config.beacon { State::Rising { until: now.plus(RISING_LIMIT_MS) } } else { State::Dark };
        self.emit(Output::Wake { beacon: self.config.beacon.then_some(beacon) });
    }

    /// Others may have taken over already. What is still held is renewed without a beacon.
    pub(super) fn beacon_lost(&mut self, beacon: Beacon, now: Monotonic) {
        if self.presence.lost(beacon) {
            self.suspect_all(now);
        }
    }

    pub(super) fn rest_if_due(&mut self, now: Monotonic) {
        if self.presence.rest_at.is_some_and(|at| at <= now) {
            self.rest();
        }
    }

    pub(super) fn rest(&mut self) {
        if self.presence.state != State::Resting {
            self.presence.state = State::Resting;
            self.presence.rest_at = None;
            self.emit(Output::Rest);
        }
    }
}
