//! Who of those in a status is alive, as far as one look can tell.

use std::time::Duration;

use leasehold::{
    HolderStatus, LeaseStatus, Mode, WaiterStatus,
    machine::{SessionId, Wall},
    signal::DirectorySignals,
    store::Reach,
};

use super::table::wall_ms;

/// A request that waits sees a dead process within this span, even if somebody swept its beacon away.
const DEATH: Duration = Duration::from_secs(10);
/// What the store may take, beside the silence that proves a death.
const ANSWERS: Duration = Duration::from_secs(1);

/// Whether a holder or waiter is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Nothing speaks against it.
    Alive,
    /// By the clocks its lease has run out. Nobody has proved yet that it is dead.
    Silent,
    /// Its process has ended.
    Dead,
}

impl Life {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Silent => "silent",
            Self::Dead => "dead",
        }
    }

    /// What is added to a name, for people.
    pub(crate) const fn remark(self) -> &'static str {
        match self {
            Self::Alive => "",
            Self::Silent => " (not heard for longer than its lease)",
            Self::Dead => " (its process has ended)",
        }
    }
}

/// Sees the beacons of a store whose processes share a machine; of other stores, none.
pub(crate) struct Eyes(Option<DirectorySignals>);

impl Eyes {
    pub(crate) fn over(reach: &Reach) -> Self {
        match reach {
            Reach::Machine(directory) => Self(Some(DirectorySignals::new(directory))),
            Reach::Process(_) | Reach::Named(_) => Self(None),
        }
    }

    pub(crate) fn holder(&self, holder: &HolderStatus) -> Life {
        self.judge(holder.holder, holder.beacon, holder.expires_at)
    }

    pub(crate) fn waiter(&self, waiter: &WaiterStatus) -> Life {
        self.judge(waiter.holder, waiter.beacon, waiter.expires_at)
    }

    fn judge(&self, session: SessionId, beacon: bool, expires_at: Wall) -> Life {
        let falls = |signals: &DirectorySignals| beacon && !signals.stands(session);
        match &self.0 {
            Some(signals) if falls(signals) => Life::Dead,
            _ if expires_at.as_ms() < wall_ms() => Life::Silent,
            _ => Life::Alive,
        }
    }

    /// Who only tries never learns that a holder is dead: each process would be refused for ever. If nobody alive is in the
    /// way, this is for how long a request has to wait until the store grants it the key.
    pub(crate) fn patience(&self, status: &LeaseStatus, wanted: Mode) -> Option<Duration> {
        let shares = |holder: &HolderStatus| wanted == Mode::Shared && holder.mode == Mode::Shared;
        let holders = status.holders.iter().filter(|holder| !shares(holder));
        let holders = holders.map(|holder| (self.holder(holder), holder.lease));
        let waiters = status.queue.iter().map(|waiter| (self.waiter(waiter), waiter.lease));
        // Nobody is left in the way: who was, has gone meanwhile.
        let mut longest = Duration::ZERO;
        for (life, lease) in holders.chain(waiters) {
            longest = longest.max(match life {
                Life::Alive => return None,
                Life::Silent => lease + lease / 4 + ANSWERS,
                Life::Dead => DEATH,
            });
        }
        Some(longest.max(ANSWERS))
    }
}
