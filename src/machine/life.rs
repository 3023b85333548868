//! Closing: refuse what comes, release what is held, and end within bounds.

use super::{
    Machine,
    failure::StoreError,
    operation::Action,
    outbox::Errand,
    place::Stage,
    port::{LostReason, Output, Refusal},
    time::Monotonic,
};

/// Whether a context takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    Open,
    Closing { until: Monotonic },
    Closed,
}

impl Life {
    pub(super) fn next_wake(self) -> Option<Monotonic> {
        match self {
            Self::Closing { until } => Some(until),
            Self::Open | Self::Closed => None,
        }
    }
}

impl Machine {
    pub(super) fn close(&mut self, now: Monotonic) {
        if self.life != Life::Open {
            return;
        }
        // Twice the limit: an operation in flight, then the releases.
        self.life = Life::Closing { until: now.plus(self.config.store_timeout_ms * 2) };
        for key in self.places.keys() {
            let Some(place) = self.places.change(&key) else { continue };
            let turns = core::mem::take(&mut place.turns);
            let stage = core::mem::take(&mut place.stage);
            self.outputs.extend(turns.iter().map(|turn| refused(turn.id, Refusal::Closed)));
            match stage {
                Stage::Held(held) => {
                    if let Some(turn) = held.user {
                        self.emit(Output::Lost { turn, reason: LostReason::Closed });
                    }
                    self.give_back(&key, &held, None, now);
                }
                Stage::Seeking(seeking) => self.withdraw(&key, &seeking, now),
                Stage::Idle => {}
            }
        }
    }

    /// A store that does not answer must not keep a closing context for ever; its leases run out by themselves.
    pub(super) fn force_closed(&mut self, now: Monotonic) {
        if matches!(self.life, Life::Closing { until } if until <= now) {
            let error = StoreError::unknown("the store did not answer before the lease manager closed");
            for errand in self.outbox.drain() {
                self.unanswered(&errand, &error);
            }
        }
    }

    /// Whoever still waits for an answer hears that there is none.
    fn unanswered(&mut self, errand: &Errand, error: &StoreError) {
        let Some(turn) = errand.turn else { return };
        let error = error.clone();
        match errand.action {
            Action::Release { .. } => self.emit(Output::Released { turn, result: Err(error) }),
            Action::Renew { .. } => self.emit(Output::Verified { query: turn, result: Err(error) }),
            Action::Inspect => self.emit(Output::Status { query: turn, result: Err(error) }),
            Action::Acquire(_) | Action::Withdraw { .. } | Action::Evict { .. } => {}
        }
    }

    pub(super) fn end_closing(&mut self) {
        if matches!(self.life, Life::Closing { .. }) && self.outbox.is_empty() {
            self.life = Life::Closed;
            self.rest();
            self.emit(Output::Closed);
        }
    }
}

/// A request that failed.
pub(super) fn refused(turn: super::TurnId, refusal: Refusal) -> Output {
    Output::Failed { turn, refusal }
}
