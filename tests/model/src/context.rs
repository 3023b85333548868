//! One context: the shipped machine, its clocks, its beacon and its users.

use leasehold::machine::{Batch, Machine, Mode, SessionId};

use crate::{
    configuration::Users,
    port::{self, Ticket, Want},
};

/// A context and all that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    /// The shipped machine.
    pub machine: Machine,
    /// Whether it is still there.
    pub alive: bool,
    /// When it wants to be woken, on its own clock.
    pub wake_ms: Option<u64>,
    /// How long its monotonic clock stood still.
    pub slept_ms: u64,
    /// Since when that clock stands still now.
    pub asleep_since: Option<u64>,
    /// How far its wall clock was set ahead.
    pub wall_ahead_ms: i64,
    /// Whether the answer to its last transaction was lost, and it has sent no other since.
    pub waits_in_vain: bool,
    /// What failed, and is still to be sent again.
    pub owed: Vec<Owed>,
    /// The number of its latest transaction.
    pub last_sent: u64,
    /// Whether signals reach it.
    pub listens: bool,
    /// The session whose beacon it asked for, and that does not stand yet.
    pub rising: Option<SessionId>,
    /// The session whose beacon stands.
    pub standing: Option<SessionId>,
    /// The sessions whose beacons it watches.
    pub watches: Vec<(u64, SessionId)>,
    /// Its users' turns, by number less one.
    pub guards: Vec<Guard>,
    /// What its users may still ask for.
    pub may_ask: Users,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Whether it was closed.
    pub closed: bool,
}

/// An operation that failed: it is tried again after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owed {
    /// At which key.
    pub key: usize,
    /// The request that it asks for, or releases.
    pub request: u64,
    /// When it is tried again at the latest, on its context's own clock.
    pub by_ms: u64,
}

/// One turn of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// How far it got.
    pub stage: Stage,
    /// What was asked for.
    pub want: Want,
    /// At which key.
    pub key: usize,
    /// How it holds.
    pub mode: Mode,
    /// Whether it wants to hold exclusively what it shares.
    pub upgrading: bool,
    /// Whether it had a rival at any time since it began to want that, or could not know in time that it had none.
    pub has_rival: bool,
    /// Which grant of the history it stands on.
    pub grant: Option<usize>,
}

/// How far a turn got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It was asked for.
    Waiting,
    /// There is a guard.
    Granted,
    /// The guard is being given back.
    Returning,
    /// The guard was lost.
    Lost,
    /// It was refused, cancelled or given back.
    Ended,
}

impl Context {
    /// A fresh one.
    pub fn new(machine: Machine, may_ask: Users) -> Self {
        Self {
            machine,
            alive: true,
            wake_ms: None,
            slept_ms: 0,
            asleep_since: None,
            waits_in_vain: false,
            owed: Vec::new(),
            last_sent: 0,
            wall_ahead_ms: 0,
            listens: false,
            rising: None,
            standing: None,
            watches: Vec::new(),
            guards: Vec::new(),
            may_ask,
            suspended: false,
            closed: false,
        }
    }

    /// Its own monotonic clock at a moment of true time.
    pub fn own_ms(&self, true_ms: u64) -> u64 {
        self.asleep_since.unwrap_or(true_ms).saturating_sub(self.slept_ms)
    }

    /// When it wants to be woken, in true time; nobody who sleeps is woken.
    pub fn wakes_at(&self) -> Option<u64> {
        self.wake_ms.filter(|_| self.runs()).map(|own| own + self.slept_ms)
    }

    /// Whether anything can happen in it.
    pub const fn runs(&self) -> bool {
        self.alive && self.asleep_since.is_none()
    }

    /// Whether it is due to be woken.
    pub fn is_due(&self, true_ms: u64) -> bool {
        self.wakes_at().is_some_and(|at| at <= true_ms)
    }

    /// Turns in this stage, by their numbers.
    pub fn turns(&self, stage: Stage) -> impl Iterator<Item = u64> {
        (1..).zip(&self.guards).filter(move |(_, guard)| guard.stage == stage).map(|(turn, _)| turn)
    }

    /// A transaction failed. Its operations must be tried again by then.
    pub fn owe(&mut self, batch: &Batch, by_ms: u64) {
        self.owed.extend(port::requests_of(batch).map(|(key, request)| Owed { key, request, by_ms }));
    }

    /// A batch is sent: its operations are no longer owed.
    pub fn pay(&mut self, batch: &Batch) {
        if !self.owed.is_empty() {
            let sent: Vec<_> = port::requests_of(batch).collect();
            self.owed.retain(|owed| !sent.contains(&(owed.key, owed.request)));
        }
    }

    /// A context that does not ask to be woken in time does not plan to try again.
    pub fn forgive(&mut self) {
        let wake_ms = self.wake_ms;
        self.owed.retain(|owed| wake_ms.is_some_and(|at| at <= owed.by_ms));
    }

    /// A user asks: it gets a turn for each key.
    pub fn ask(&mut self, want: Want) -> Vec<Ticket> {
        if let Some((_, left)) = self.may_ask.iter_mut().find(|(asked, _)| *asked == want) {
            *left = left.saturating_sub(1);
        }
        let first = self.guards.len() as u64 + 1;
        let tickets = (first..).zip(want.keys()).map(|(turn, &key)| Ticket { turn, want, key }).collect();
        let fresh = |key: &usize| Guard {
            stage: Stage::Waiting,
            want,
            key: *key,
            mode: want.mode(),
            upgrading: false,
            has_rival: false,
            grant: None,
        };
        self.guards.extend(want.keys().iter().map(fresh));
        tickets
    }

    /// How the machine knows a turn.
    pub fn ticket(&self, turn: u64) -> Option<Ticket> {
        let guard = self.guards.get(usize::try_from(turn).ok()?.checked_sub(1)?)?;
        Some(Ticket { turn, want: guard.want, key: guard.key })
    }

    /// Whether somebody is still to be answered.
    pub fn owes(&self) -> bool {
        self.guards.iter().any(|guard| guard.stage == Stage::Waiting || guard.upgrading)
    }

    /// The guard of a turn.
    pub fn guard_mut(&mut self, turn: u64) -> Option<&mut Guard> {
        self.guards.get_mut(usize::try_from(turn).ok()?.checked_sub(1)?)
    }

    /// Nothing of it is left but what it sent.
    pub fn vanish(&mut self, blank: Machine) {
        let gone = Self::new(blank, Vec::new());
        *self = Self { alive: false, slept_ms: self.slept_ms, wall_ahead_ms: self.wall_ahead_ms, ..gone };
    }
}
