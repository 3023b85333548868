//! Which holders and waiters of a status are alive, as far as one look can tell.

use std::{collections::BTreeMap, time::Duration};

use leasehold::{
    HolderStatus, LeaseStatus, Mode, WaiterStatus,
    machine::{LONGEST_SILENCE_MS, SessionId, Wall},
    signal::DirectorySignals,
    store::Reach,
};

use super::table::wall_ms;

/// A request that waits notices a dead process within this time, even if its beacon file was deleted. That takes 3 s, and several times
/// as long on a busy machine.
const DEATH: Duration = Duration::from_secs(20);
/// How long the store may take to answer, on top of the silence that proves a death.
const ANSWERS: Duration = Duration::from_secs(1);

/// Whether this version cannot read a session's row, which then seems to have been written in 1970.
pub(crate) fn is_unreadable(expires_at: Wall) -> bool {
    expires_at.as_ms() <= LONGEST_SILENCE_MS
}

/// Whether a holder or waiter is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Nothing speaks against it.
    Alive,
    /// Its lease has expired by the clocks. Nobody has proved yet that it is dead.
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

    /// A remark for people, behind the name.
    pub(crate) const fn remark(self) -> &'static str {
        match self {
            Self::Alive => "",
            Self::Silent => " (silent for longer than its lease)",
            Self::Dead => " (its process has ended)",
        }
    }
}

/// When the sessions in the way expire, as the first of several looks saw it. Each heartbeat changes that. So a change between two looks
/// shows that a session is alive, even if its clock or ours is wrong.
#[derive(Default)]
pub(crate) struct Heartbeats(BTreeMap<SessionId, Wall>);

impl Heartbeats {
    /// Whether this session sent a heartbeat since the first look at it. A session without a lease has ended.
    fn beat(&mut self, session: SessionId, expires_at: Wall, lease: Duration) -> bool {
        !lease.is_zero() && *self.0.entry(session).or_insert(expires_at) != expires_at
    }
}

/// Looks at beacons if the processes of the store share a machine. For other stores it sees none.
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

    /// For how long a request has to wait until the store grants it the key; `None` if somebody alive is in the way. A request that
    /// only tries never learns that a holder is dead: each process would be refused for ever. Once this process waits, it is not in its
    /// own way, nor are those who came later.
    pub(crate) fn patience(&self, status: &LeaseStatus, wanted: Mode, heartbeats: &mut Heartbeats) -> Option<Duration> {
        let shares = |holder: &HolderStatus| wanted == Mode::Shared && holder.mode == Mode::Shared;
        let holders = status.holders.iter().filter(|holder| !holder.own && !shares(holder));
        let holders = holders.map(|it| (self.holder(it), it.holder, it.expires_at, it.lease));
        let waiters = status.queue.iter().take_while(|waiter| !waiter.own);
        let waiters = waiters.map(|it| (self.waiter(it), it.holder, it.expires_at, it.lease));
        // With nobody left in the way, the store only has to answer.
        let mut longest = Duration::ZERO;
        for (life, session, expires_at, lease) in holders.chain(waiters) {
            if heartbeats.beat(session, expires_at, lease) {
                return None;
            }
            longest = longest.max(match life {
                Life::Alive => return None,
                // Nobody knows how long its lease is. To prove it dead takes longer than any lease lasts.
                Life::Silent if is_unreadable(expires_at) => return None,
                Life::Silent => lease + lease / 4 + ANSWERS,
                Life::Dead => DEATH,
            });
        }
        Some(longest.max(ANSWERS))
    }
}
