//! One line of the table: a world, its users, and how much may go wrong.

use leasehold::machine::{Machine, StoreClock};

use crate::{
    budget::Budget,
    port::{self, Want},
};

/// A world to be searched.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Its name.
    pub name: &'static str,
    /// What the store's clock is worth.
    pub clock: StoreClock,
    /// Whether there are beacons.
    pub beacons: bool,
    /// Whether transactions of one context may overtake each other.
    pub overtaking: bool,
    /// Whether it is compared with a store that reads rows one by one.
    pub rows: bool,
    /// Whether the store's transactions are several statements.
    pub statements: bool,
    /// Whether a context that is suspended deletes its session blindly.
    pub abandons: bool,
    /// Whether the hint "somebody waits" ever arrives. Without it the space is smaller.
    pub hints: bool,
    /// The users of each context.
    pub users: Vec<Users>,
    /// How much of everything may happen.
    pub budget: Budget,
    /// The times of all contexts, in ms.
    pub lease_ms: u64,
    /// See [`lease_ms`](Self::lease_ms).
    pub heartbeat_ms: u64,
    /// See [`lease_ms`](Self::lease_ms).
    pub timeout_ms: u64,
    /// How long a context keeps what nobody uses, in ms.
    pub linger_ms: u64,
    /// Whether the world is such that at most one context may believe.
    pub belief: bool,
    /// Of how many states one is run to rest; 0 for none.
    pub rest_every: u64,
    /// How long a step of time is in which nobody runs, in ms.
    pub leap_ms: u64,
    /// How many contexts asked before the beginning: the first one holds, and the others wait.
    pub queue: usize,
    /// Whether each context had the lease before the beginning, and has nothing now.
    pub idle: bool,
    /// What is broken on purpose, to see that it is found.
    pub flaw: Option<Flaw>,
}

/// What the users of one context may ask for, and how often.
pub type Users = Vec<(Want, u8)>;

/// A world that does not keep what the core builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A fence that is asked in a transaction of its own, before the write.
    FenceApart,
    /// A context that does not know of its fenced writes.
    FenceUntold,
    /// Beacons that are seen gone while they stand.
    FalseBeacons,
    /// A beat that brings a session back that has ended.
    BeatInserts,
    /// An end that takes no note of beats since.
    EndComparesNothing,
    /// A transaction of several statements that reads the sessions' rows before it locks the records.
    ReadsBeforeLock,
    /// A transaction of several statements that writes rows which others have written, or locked, since it read them.
    OverwritesUnread,
}

impl Configuration {
    /// Two contexts that want one turn each, in a world without faults, in which time stands still.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            clock: StoreClock::Observed,
            beacons: false,
            overtaking: false,
            rows: false,
            statements: false,
            abandons: false,
            hints: false,
            users: vec![vec![(Want::Wait, 1)]; 2],
            budget: Budget::default(),
            lease_ms: 1_000,
            heartbeat_ms: 400,
            timeout_ms: 200,
            linger_ms: 0,
            belief: true,
            rest_every: 16,
            leap_ms: 1_500,
            queue: 0,
            idle: false,
            flaw: None,
        }
    }

    /// With a trusted store clock.
    pub fn trusted(mut self) -> Self {
        self.clock = StoreClock::Trusted;
        self
    }

    /// With beacons.
    pub fn beacons(mut self) -> Self {
        self.beacons = true;
        self
    }

    /// With a store whose transactions overtake each other, as those of several connections do.
    pub fn overtaking(mut self) -> Self {
        self.overtaking = true;
        self
    }

    /// Compared with a store that reads rows one by one.
    pub fn by_rows(mut self) -> Self {
        self.rows = true;
        self
    }

    /// With a store whose transactions are several statements.
    pub fn by_statements(mut self) -> Self {
        self.statements = true;
        self
    }

    /// With a store that deletes sessions blindly.
    pub fn abandoning(mut self) -> Self {
        self.abandons = true;
        self
    }

    /// With hints that somebody waits.
    pub fn hints(mut self) -> Self {
        self.hints = true;
        self
    }

    /// From where the first context holds, and the others wait: the search goes deeper from there.
    pub fn queued(self) -> Self {
        self.queued_up_to(usize::MAX)
    }

    /// The same for this many of the contexts.
    pub fn queued_up_to(mut self, contexts: usize) -> Self {
        self.queue = contexts;
        self
    }

    /// From where each context had the lease, and has an open session that it does not need.
    pub fn idle(mut self) -> Self {
        self.idle = true;
        self
    }

    /// Where several may believe at once: a store that was wiped knows nothing of those who believe.
    pub fn unbelieving(mut self) -> Self {
        self.belief = false;
        self
    }

    /// With long pauses that nobody notices: longer than an onlooker waits, shorter than what a context takes for sleep.
    pub fn unnoticed(mut self) -> Self {
        self.leap_ms = self.silence_ms(self.lease_ms) + 50;
        self
    }

    /// With this much that may happen.
    pub fn budget(mut self, ticks: u8, change: impl FnOnce(&mut Budget)) -> Self {
        self.budget = Budget::calm(ticks);
        change(&mut self.budget);
        self
    }

    /// With users who want this of each context: turns that wait, turns that only try.
    pub fn users(mut self, users: &[(u8, u8)]) -> Self {
        let wants = |&(waits, tries): &(u8, u8)| vec![(Want::Wait, waits), (Want::Try, tries)];
        self.users = users.iter().map(wants).collect();
        self
    }

    /// With users who want just this of each context.
    pub fn wants(mut self, users: &[&[Want]]) -> Self {
        let counted = |wants: &&[Want]| {
            let mut counted: Users = Vec::new();
            for want in *wants {
                match counted.iter_mut().find(|(known, _)| known == want) {
                    Some((_, count)) => *count += 1,
                    None => counted.push((*want, 1)),
                }
            }
            counted
        };
        self.users = users.iter().map(counted).collect();
        self
    }

    /// With contexts that keep what nobody uses for a while, and hints that somebody wants it.
    pub fn lingering(mut self) -> Self {
        self.linger_ms = 100;
        self.hints()
    }

    /// Broken on purpose.
    pub fn flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// A fresh machine for a context.
    pub fn machine(&self, who: usize) -> Machine {
        port::machine(who, self)
    }

    /// For each key that anybody asks for, a plain request.
    pub fn probes(&self) -> Vec<Want> {
        let all = [(0, Want::Wait), (1, Want::Second), (2, Want::Lock)];
        let asked = |at: usize| self.users.iter().flatten().any(|(want, _)| want.keys().contains(&at));
        all.into_iter().filter(|(at, _)| asked(*at)).map(|(_, want)| want).collect()
    }

    /// Whether nothing may be left behind at all. What was applied without an answer is left until it is silent; so is
    /// what a store applied out of order for a session that its context had given up by then.
    pub fn is_strict(&self) -> bool {
        let former_sessions = self.overtaking && self.budget.suspends + self.budget.endings > 0;
        self.budget.losses == 0 && self.budget.doubts == 0 && !former_sessions
    }

    /// Whether a context always knows if it still holds the lease that it releases: no answer is missing or late, and nothing puts its
    /// belief in doubt.
    pub fn knows_what_it_holds(&self) -> bool {
        let Budget { delays, sleeps, jumps, leaps, suspends, endings, falls, .. } = self.budget;
        self.is_strict() && delays + sleeps + jumps + leaps + suspends + endings + falls == 0
    }

    /// How long a session must stand still before it may be taken for dead: SAFETY's rule 2, counted anew here.
    pub fn silence_ms(&self, lease_ms: u64) -> u64 {
        lease_ms + (lease_ms / 10).max(100)
    }
}
