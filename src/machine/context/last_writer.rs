//! Who held a key last: whether what a context remembers of it may be out of date.

use alloc::{collections::VecDeque, vec::Vec};

use super::{Machine, key::Key, mode::Mode, record::Granted, sorted::SortedMap, token::Token};

/// So many keys are remembered. The records of the others are forgotten, here and in the store.
const REMEMBERED: usize = 256;

/// How many keys that are in use are examined for each transaction.
const USED: usize = 16;

/// The keys that this context held, and whether another one wrote since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LastWriters {
    by_key: SortedMap<Key, Hand>,
    /// Counts the grants, to find the key that was held longest ago.
    grants: u64,
    /// A key was forgotten: of one that is not known, nobody can say that it did not change hands.
    forgot: bool,
    forgotten: VecDeque<Key>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Hand {
    /// The last token of the latest exclusive grant that this context knows of.
    known: Option<Token>,
    changed: bool,
    used: u64,
}

impl LastWriters {
    fn change(&mut self, key: &Key) -> &mut Hand {
        self.grants += 1;
        let (used, changed) = (self.grants, self.forgot && !self.by_key.contains_key(key));
        if self.by_key.len() >= REMEMBERED && !self.by_key.contains_key(key) {
            self.forget_oldest();
        }
        let hand = self.by_key.or_default(key.clone());
        hand.used = used;
        hand.changed |= changed;
        hand
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_key.iter().min_by_key(|(_, hand)| hand.used).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.by_key.remove(&key);
            self.forgot = true;
            // Of the records of locks, stores take care themselves.
            if !key.is_of_lock() {
                self.forgotten.push_back(key);
            }
        }
    }

    /// At most `most` keys whose records the store may forget if nobody else uses them. Keys that are in use here wait until they
    /// are not. Only some of these are examined each time, since a context may hold thousands.
    pub(super) fn take_forgotten(&mut self, most: usize, is_used: impl Fn(&Key) -> bool) -> Vec<Key> {
        let (mut taken, mut used) = (Vec::new(), 0);
        while taken.len() < most && used < USED {
            let Some(key) = self.forgotten.pop_front() else { break };
            if self.by_key.contains_key(&key) {
                continue;
            }
            if is_used(&key) {
                used += 1;
                self.forgotten.push_back(key);
            } else {
                taken.push(key);
            }
        }
        taken
    }

    /// The store did not confirm that it forgot them.
    pub(super) fn forget_later(&mut self, keys: &[Key]) {
        self.forgotten.extend(keys.iter().cloned());
    }

    /// A lease was granted; one that was resumed is no change of hands.
    pub(super) fn granted(&mut self, key: &Key, mode: Mode, granted: &Granted, resumed: bool) {
        let hand = self.change(key);
        hand.changed |= !resumed && hand.known.is_some_and(|known| known != granted.previous);
        hand.known = Some(if mode == Mode::Exclusive { granted.block.last } else { granted.previous });
    }

    /// An exclusive lease got more tokens.
    pub(super) fn refilled(&mut self, key: &Key, mode: Mode, last: Token) {
        if mode == Mode::Exclusive {
            self.change(key).known = Some(last);
        }
    }

    pub(super) fn clear_changed(&mut self, key: &Key) {
        self.change(key).changed = false;
    }
}

impl Machine {
    /// Whether another context held the key exclusively since this one did, and nobody
    /// [took note](super::input::Input::ClearChanged) of it.
    pub fn changed_hands(&self, key: &Key) -> bool {
        self.last_writers.by_key.get(key).map_or(self.last_writers.forgot, |hand| hand.changed)
    }
}
