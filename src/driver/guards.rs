//! The guards that live, by the ids of their requests.

use alloc::vec::Vec;

use crate::client::fate::Fate;
use crate::executor::Shared;
use crate::machine::{SortedMap, TurnId};

/// So many ids stand together, as a power of two.
const TOGETHER: u32 = 9;

/// Guards whose ids have the same upper bits stand together. So whoever drops one of many guards moves few others. The ids are drawn in
/// order: most groups are full at first, and go with the last of their guards.
#[derive(Default)]
pub(crate) struct Guards(SortedMap<u64, SortedMap<TurnId, Shared<Fate>>>);

impl Guards {
    pub(crate) fn insert(&mut self, turn: TurnId, fate: Shared<Fate>) {
        let group = turn.0 >> TOGETHER;
        if self.0.get(&group).is_none() {
            // An empty group stays until the next one is made, so that a single guard that comes and goes makes none.
            self.0.retain(|_, guards| !guards.is_empty());
        }
        self.0.or_default(&group).insert(turn, fate);
    }

    pub(crate) fn get(&self, turn: TurnId) -> Option<&Shared<Fate>> {
        self.0.get(&(turn.0 >> TOGETHER))?.get(&turn)
    }

    pub(crate) fn remove(&mut self, turn: TurnId) -> Option<Shared<Fate>> {
        self.0.get_mut(&(turn.0 >> TOGETHER))?.remove(&turn)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TurnId, &Shared<Fate>)> {
        self.0.values().flat_map(SortedMap::iter)
    }

    pub(crate) fn take_all(&mut self) -> Vec<Shared<Fate>> {
        let mut all = Vec::new();
        for (_, guards) in core::mem::take(&mut self.0) {
            all.extend(guards.into_values());
        }
        all
    }
}
