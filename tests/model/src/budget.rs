//! How much of everything may happen in one run: with these, the space is finite and is searched to its end.

/// What is left of each event. Users' turns are counted by their contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Steps of time to the next timer of some context.
    pub ticks: u8,
    /// Those of them for which something that is due, or under way, is kept waiting: pauses and a slow store.
    pub delays: u8,
    /// Long steps of time in which nobody runs.
    pub leaps: u8,
    /// Contexts that vanish.
    pub crashes: u8,
    /// Transactions that vanish, applied or not, without an answer.
    pub losses: u8,
    /// Transactions that the store refuses.
    pub refusals: u8,
    /// Transactions that fail while they may still be applied, or were.
    pub doubts: u8,
    /// Signals that arrive twice.
    pub doubles: u8,
    /// Times that one context's monotonic clock stands still while all else goes on.
    pub sleeps: u8,
    /// Times that a context's wall clock is set ahead or back.
    pub jumps: u8,
    /// Requests that users give up.
    pub cancels: u8,
    /// Guards that users verify.
    pub verifies: u8,
    /// Guards that users want to be sure of for longer than a lease.
    pub extends: u8,
    /// Contexts that are closed.
    pub closes: u8,
    /// Fenced writes.
    pub writes: u8,
    /// Guards that want to hold exclusively what they share.
    pub upgrades: u8,
    /// Guards that let others share what they hold exclusively.
    pub downgrades: u8,
    /// Times that a context is suspended.
    pub suspends: u8,
    /// Times that the platform ends a context, whose code may run on.
    pub endings: u8,
    /// Guards that leave their leases for other guards.
    pub detaches: u8,
    /// Beacons that fall although nobody lowered them.
    pub falls: u8,
    /// Times that the store is wiped.
    pub wipes: u8,
}

impl Budget {
    /// Without any fault, for users who behave: this many steps of time.
    pub const fn calm(ticks: u8) -> Self {
        Self {
            ticks,
            delays: 0,
            leaps: 0,
            crashes: 0,
            losses: 0,
            refusals: 0,
            doubts: 0,
            doubles: 0,
            sleeps: 0,
            jumps: 0,
            cancels: 0,
            verifies: 0,
            extends: 0,
            closes: 0,
            writes: 0,
            upgrades: 0,
            downgrades: 0,
            suspends: 0,
            endings: 0,
            detaches: 0,
            falls: 0,
            wipes: 0,
        }
    }

    /// The faults and the rarer acts, for a table.
    pub fn describe(&self) -> String {
        let all = [
            (self.delays, "delay"),
            (self.leaps, "leap"),
            (self.crashes, "crash"),
            (self.losses, "loss"),
            (self.refusals, "refusal"),
            (self.doubts, "doubt"),
            (self.doubles, "double"),
            (self.sleeps, "sleep"),
            (self.jumps, "jump"),
            (self.cancels, "cancel"),
            (self.verifies, "verify"),
            (self.extends, "extension"),
            (self.closes, "close"),
            (self.writes, "write"),
            (self.upgrades, "upgrade"),
            (self.downgrades, "downgrade"),
            (self.suspends, "suspension"),
            (self.endings, "ending"),
            (self.detaches, "detachment"),
            (self.falls, "fall"),
            (self.wipes, "wipe"),
        ];
        let some = all.iter().filter(|(count, _)| *count > 0);
        let words: Vec<_> = some.map(|(count, what)| format!("{count} {what}")).collect();
        if words.is_empty() { "none".into() } else { words.join(", ") }
    }
}

/// Takes one from a budget; what is forced takes it from an empty one too.
pub(crate) fn spend(left: &mut u8) {
    *left = left.saturating_sub(1);
}
