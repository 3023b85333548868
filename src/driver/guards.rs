//! The guards that exist, by the ids of their requests.

use crate::client::fate::Fate;
use crate::executor::Shared;
use crate::machine::{SortedMap, TurnId};

/// A guard that is removed leaves a gap. When there are more gaps than guards, all gaps are closed at once. So the removal of one guard
/// usually moves no other guard.
#[derive(Default)]
pub(crate) struct Guards {
    by_turn: SortedMap<TurnId, Option<Shared<Fate>>>,
    gaps: usize,
}

impl Guards {
    pub(crate) fn insert(&mut self, turn: TurnId, fate: Shared<Fate>) {
        self.by_turn.insert(turn, Some(fate));
    }

    pub(crate) fn get(&self, turn: TurnId) -> Option<&Shared<Fate>> {
        self.by_turn.get(&turn)?.as_ref()
    }

    pub(crate) fn remove(&mut self, turn: TurnId) -> Option<Shared<Fate>> {
        let fate = self.by_turn.get_mut(&turn)?.take()?;
        self.gaps += 1;
        if self.gaps > self.by_turn.len() / 2 {
            self.gaps = 0;
            self.by_turn.retain(|_, fate| fate.is_some());
        }
        Some(fate)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TurnId, &Shared<Fate>)> {
        self.by_turn.iter().filter_map(|(turn, fate)| Some((turn, fate.as_ref()?)))
    }
}
