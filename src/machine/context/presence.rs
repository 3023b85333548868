//! The channel and the beacon of a context, which are up only while it holds or waits.

use super::{Machine, id::SessionId, output::Command, time::Monotonic};

/// How long to wait for the beacon to be raised.
const RISING_LIMIT_MS: u64 = 250;
/// How long a context that needs nothing keeps both up, so that its next request costs no more than a transaction.
const IDLE_LIMIT_MS: u64 = 10_000;

/// Whether other contexts can reach this one and see its beacon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Presence {
    state: State,
    rest_at: Option<Monotonic>,
    /// The transaction that closes the session, or that found it gone, until that transaction is over. Its answer may name a context that
    /// this one must tell of a grant, so the channel and the beacon stay until then.
    last: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    #[default]
    Resting,
    /// The beacon was requested.
    Rising { until: Monotonic },
    /// The beacon is raised.
    Standing,
    /// The channel is open, without a beacon.
    Dark,
}

impl Presence {
    /// Whether operations should wait a moment, so that the first grant is written with a beacon.
    pub(super) fn is_rising(&self) -> bool {
        matches!(self.state, State::Rising { .. })
    }

    /// Whether the session's beacon is raised at this moment.
    // Protocol: docs/protocol.md#s4.
    pub(super) fn beacon_stands(&self) -> bool {
        self.state == State::Standing
    }

    pub(super) fn is_resting(&self) -> bool {
        self.state == State::Resting
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
    /// Wakes when the context begins to need its session, and plans the rest when it no longer does.
    // Protocol: docs/protocol.md#s10.
    pub(super) fn follow_presence(&mut self, now: Monotonic) {
        let needed = !self.cohorts.is_empty() || !self.store_queue.is_idle();
        match (needed, self.presence.state) {
            (true, State::Resting) if !self.cohorts.is_empty() && !self.life.is_suspended() => self.wake(now),
            (true, _) => self.presence.rest_at = None,
            (false, State::Resting) => {}
            (false, _) => {
                self.presence.rest_at.get_or_insert_with(|| now.plus(IDLE_LIMIT_MS));
            }
        }
    }

    fn wake(&mut self, now: Monotonic) {
        let beacon = self.config.beacon;
        (self.presence.rest_at, self.presence.last) = (None, None);
        self.presence.state = if beacon { State::Rising { until: now.plus(RISING_LIMIT_MS) } } else { State::Dark };
        self.emit(Command::Wake { session: self.session.id(), beacon });
    }

    pub(super) fn beacon_stands(&mut self, session: SessionId) {
        if session == self.session.id() && !self.presence.is_resting() {
            self.presence.state = State::Standing;
        }
    }

    /// The beacon is lost, so others may have taken over already. The leases that are still held are kept without a beacon.
    pub(super) fn beacon_lost(&mut self, session: SessionId, now: Monotonic) {
        if session != self.session.id() || self.presence.is_resting() {
            return;
        }
        let stood = core::mem::replace(&mut self.presence.state, State::Dark) == State::Standing;
        if stood {
            self.doubt(now);
        }
    }

    /// A context that needs nothing any more ends its session.
    pub(super) fn rest_if_due(&mut self, now: Monotonic) {
        // Only once: nothing more can be done until the store has answered what is in flight.
        if self.presence.rest_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        if self.session.is_open() {
            // The row is deleted first, and the beacon is lowered after that.
            self.session.want_close();
        } else {
            self.rest();
        }
    }

    /// Rests. A session whose last transaction is unanswered may still have its row.
    pub(super) fn rest(&mut self) {
        self.rest_by(if self.presence.last.is_some() { Command::Fall } else { Command::Rest });
    }

    /// Rests although the row may still exist. Whoever finds the row must see at once that its session has ended.
    pub(super) fn fall(&mut self) {
        self.rest_by(Command::Fall);
    }

    fn rest_by(&mut self, command: Command) {
        let is_awake = !self.presence.is_resting() || self.presence.last.is_some();
        self.presence = Presence::default();
        if is_awake {
            self.emit(command);
        }
    }

    /// Rests once this transaction is over. If the context wakes before that, it has a new session and does not rest.
    pub(super) fn rest_after(&mut self, transaction: u64) {
        let is_awake = !self.presence.is_resting();
        self.presence = Presence { last: is_awake.then_some(transaction), ..Presence::default() };
    }

    /// Call this when a transaction was answered, or its answer is no longer awaited; `done` if the answer says that it was applied.
    pub(super) fn transaction_is_over(&mut self, transaction: u64, done: bool) {
        match self.presence.last == Some(transaction) {
            true if done => self.rest_by(Command::Rest),
            true => self.fall(),
            false => {}
        }
    }
}
