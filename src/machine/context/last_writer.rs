//! Whether another context held a key last, so that a cache of what the key guards may be out of date.

use alloc::{collections::VecDeque, vec::Vec};

use super::{Machine, key::Key, mode::Mode, record::Granted, sorted::SortedMap, token::Token};

/// How many keys are remembered. The records of other keys are deleted, here and in the store.
const REMEMBERED: usize = 256;

/// How many keys in use are examined, at most, for each transaction that has operations.
pub(super) const USED: usize = 16;

/// The keys that this context has held, and whether another context has held them exclusively since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LastWriters {
    by_key: SortedMap<Key, Hand>,
    /// A count of grants, to find the key that was granted longest ago.
    grants: u64,
    /// Whether a key was forgotten. Then any key that is not known counts as having changed hands.
    forgot: bool,
    /// The keys that were forgotten. A key that was used again may occur twice.
    forgotten: VecDeque<Key>,
    /// The length of that list at which duplicates are removed.
    most: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Hand {
    /// The last token of the latest exclusive grant that this context knows of.
    known: Option<Token>,
    changed: bool,
    /// The next token of a detached lease, which another context may resume.
    detached_at: Option<Token>,
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

    /// Removes duplicates only when the list is twice as long as after the last time. Otherwise each key would cost as much as all of them.
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

    /// Keeps keys for a later transaction, because this one was too large. After any other failure they stay in the store: somebody may
    /// keep one of them locked, and each transaction that carries it would fail.
    pub(super) fn forget_later(&mut self, keys: &[Key]) {
        self.forgotten.extend(keys.iter().cloned());
        self.drop_doubles();
    }

    /// Notes a grant. `cursor` is the next token of a lease that was resumed: if it equals `detached_at`, nobody has held the lease since.
    pub(super) fn granted(&mut self, key: &Key, mode: Mode, granted: &Granted, cursor: Option<Token>) {
        let hand = self.change(key);
        let detached_at = hand.detached_at.take();
        if cursor.is_some() && detached_at == cursor {
            return;
        }
        let was_elsewhere = detached_at.is_some() || (mode == Mode::Exclusive && cursor.is_some());
        hand.changed |= hand.known.is_some_and(|known| was_elsewhere || known != granted.previous);
        hand.known = Some(if mode == Mode::Exclusive { granted.block.last } else { granted.previous });
    }

    /// Notes that a lease is detached.
    pub(super) fn detached(&mut self, key: &Key, next: Token) {
        self.change(key).detached_at = Some(next);
    }

    /// Notes that an exclusive lease got more tokens.
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
    /// Whether another context has held the key exclusively since this one did, and nobody has [taken
    /// note](super::input::Input::ClearChanged) of that.
    pub fn changed_hands(&self, key: &Key) -> bool {
        self.last_writers.by_key.get(key).map_or(self.last_writers.forgot, |hand| hand.changed)
    }
}
