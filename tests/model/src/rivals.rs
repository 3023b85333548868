//! Who upgrades at the same time: only a rival that lives may be the reason why an upgrade is refused.

use leasehold::machine::Mode;

use crate::{
    context::{Guard, Stage},
    port,
    state::State,
};

impl State {
    /// Notes for each upgrade whether somebody alive stands in its way now.
    pub(crate) fn note_rivals(&mut self) {
        for (who, turn) in self.upgrades(|guard| !guard.has_rival) {
            if self.has_rival(who, turn) {
                self.contexts[who].change().guard_mut(turn).into_iter().for_each(|guard| guard.has_rival = true);
            }
        }
    }

    /// Time passes. Who watches a beacon that is gone, and is not told in time, cannot know that its rival is dead.
    pub(crate) fn note_unseen(&mut self) {
        for (who, turn) in self.upgrades(|guard| !guard.has_rival) {
            if self.contexts[who].watches.iter().any(|(_, session)| !self.stands(*session)) {
                self.contexts[who].change().guard_mut(turn).into_iter().for_each(|guard| guard.has_rival = true);
            }
        }
    }

    /// The upgrades under way: each with its context and its turn.
    fn upgrades(&self, is_meant: impl Fn(&Guard) -> bool) -> Vec<(usize, u64)> {
        let under_way = |guard: &Guard| guard.upgrading && is_meant(guard);
        let of_one = |(who, context): (usize, &crate::Hashed<crate::Context>)| {
            let turns = (1..).zip(&context.guards).filter(|(_, guard)| under_way(guard));
            turns.map(|(turn, _)| (who, turn)).collect::<Vec<_>>()
        };
        self.contexts.iter().enumerate().flat_map(of_one).collect()
    }

    /// Whether somebody else upgrades in the same context, or in one that is alive. An upgrade that was given up stands in
    /// the way until its place is gone.
    fn has_rival(&self, who: usize, turn: u64) -> bool {
        let Some(key) = self.contexts[who].ticket(turn).map(|ticket| ticket.key) else { return false };
        let at_once = |guard: &Guard| guard.key == key && guard.upgrading;
        let has_it = |guard: &Guard| guard.key == key && guard.stage == Stage::Granted && guard.mode == Mode::Exclusive;
        let mut own = (1..).zip(&self.contexts[who].guards).filter(|(other, _)| *other != turn);
        let queue = port::record(&self.ledger.records, key).queue;
        own.any(|(_, guard)| at_once(guard) || has_it(guard))
            || self.contexts.iter().enumerate().filter(|(other, context)| *other != who && context.alive).any(
                |(other, context)| {
                    let has_place = queue.iter().any(|place| place.who == other && place.upgrades.is_some());
                    has_place || context.guards.iter().any(at_once)
                },
            )
    }
}
