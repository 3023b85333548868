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
    /// Whether a context that is suspended leaves a tombstone.
    pub tombstones: bool,
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
    /// Whether the first context holds at the beginning, and the others wait.
    pub queue: bool,
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
    /// Beacons that are seen gone while they stand.
    FalseBeacons,
}

impl Configuration {
    /// Two contexts that want one turn each, in a world without faults, in which time stands still.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            clock: StoreClock::Observed,
            beacons: false,
            overtaking: false,
            tombstones: false,
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
            queue: false,
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

    /// With a store that takes tombstones.
    pub fn entombing(mut self) -> Self {
        self.tombstones = true;
        self
    }

    /// With hints that somebody waits.
    pub fn hints(mut self) -> Self {
        self.hints = true;
        self
    }

    /// From where the first context holds, and the others wait: the search goes deeper from there.
    pub fn queued(mut self) -> Self {
        self.queue = true;
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

    /// Whether anybody asks for the second key.
    pub fn has_second_key(&self) -> bool {
        self.users.iter().flatten().any(|(want, _)| want.keys().contains(&1))
    }

    /// Whether nothing may be left behind at all. What was applied without an answer is left until it is silent; so is
    /// what a store applied out of order for a name that its context had given up by then.
    pub fn is_strict(&self) -> bool {
        let former_names = self.overtaking && self.budget.suspends > 0;
        self.budget.losses == 0 && self.budget.doubts == 0 && !former_names
    }

    /// How long an entry must stand still before its holder may be taken for dead: SAFETY's rule 2, counted anew here.
    pub fn silence_ms(&self, lease_ms: u64) -> u64 {
        lease_ms + (lease_ms / 10).max(100)
    }
}
