//! Who held a key last: whether what a context remembers of it may be out of date.

use alloc::{collections::VecDeque, vec::Vec};

use super::{Machine, key::Key, mode::Mode, record::Granted, sorted::SortedMap, token::Token};

/// How many keys are remembered. The records of other keys are deleted, here and in the store.
const REMEMBERED: usize = 256;

/// How many keys in use are examined, at most, for each transaction that has operations.
pub(super) const USED: usize = 16;

/// The keys that this context held, and whether another one wrote since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LastWriters {
    by_key: SortedMap<Key, Hand>,
    /// Counts the grants, to find the key that was held longest ago.
    grants: u64,
    /// A key was forgotten: of one that is not known, nobody can say that it did not change hands.
    forgot: bool,
    /// A key that was used again may stand here twice.
    forgotten: VecDeque<Key>,
    /// How many may stand there until somebody looks for those that do.
    most: usize,
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
        let hand = self.by_key.or_default(key);
        hand.used = used;
        hand.changed |= changed;
        hand
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_key.iter().min_by_key(|(_, hand)| hand.used).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.by_key.remove(&key);
            self.forgot = true;
            self.forgotten.push_back(key);
            self.drop_doubles();
        }
    }

    /// Looked for only when there are twice as many as after the last look: else each key would cost as much as all of them.
    fn drop_doubles(&mut self) {
        if self.forgotten.len() > self.most {
            let mut keys = Vec::from(core::mem::take(&mut self.forgotten));
            keys.sort_unstable();
            keys.dedup();
            self.most = REMEMBERED.max(keys.len() * 2);
            self.forgotten = keys.into();
        }
    }

    /// At most `most` keys whose records the store may forget if nobody else uses them. Keys that are in use here wait until they
    /// are not. At most `examined` of these are examined each time, since a context may hold thousands.
    // Protocol: docs/protocol.md#p2.
    pub(super) fn take_forgotten(&mut self, most: usize, examined: usize, is_used: impl Fn(&Key) -> bool) -> Vec<Key> {
        let (mut taken, mut used) = (Vec::new(), 0);
        while taken.len() < most && used < examined {
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

    /// There was no room for them. After any other failure they stay in the store: somebody may keep one of them locked, and all that
    /// goes along with it would fail for as long.
    pub(super) fn forget_later(&mut self, keys: &[Key]) {
        self.forgotten.extend(keys.iter().cloned());
        self.drop_doubles();
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
