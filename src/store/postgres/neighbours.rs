//! Whom a transaction probably meets at a key. It reads their rows along with the record, instead of asking for them in one more round
//! trip once it knows the record.
//!
//! These are guesses. A transaction asks for whoever is missing among them, and does not look at anybody too many.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    vec::Vec,
};

use crate::machine::{Body, Key, Message, SessionId};

/// A transaction looks at a few more at most, however many wait.
const MOST_AT_A_KEY: usize = 16;
/// A transaction for more keys takes long anyway.
const MOST_KEYS: usize = 8;
/// Of so many keys the neighbours are remembered. It is a matter of memory: 400 bytes each at most, and the name of the key.
const MOST_REMEMBERED: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Neighbours(Mutex<HashMap<Key, Vec<SessionId>>>);

impl Neighbours {
    /// Nothing outside is called under the lock, so a poisoned one guards a sound value.
    fn known(&self) -> MutexGuard<'_, HashMap<Key, Vec<SessionId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those at these keys, each once, without the one that asks.
    pub(super) fn at(&self, keys: &[Key], asker: SessionId) -> Vec<SessionId> {
        if keys.len() > MOST_KEYS {
            return Vec::new();
        }
        let known = self.known();
        let mut near: Vec<_> = keys.iter().filter_map(|key| known.get(key)).flatten().copied().collect();
        drop(known);
        near.retain(|session| *session != asker);
        near.sort_unstable();
        near.dedup();
        near
    }

    /// A transaction met these at the key. As long as there is anybody, those of before will come again.
    pub(super) fn met(&self, key: &Key, sessions: impl IntoIterator<Item = SessionId>) {
        let mut met: Vec<_> = sessions.into_iter().take(MOST_AT_A_KEY).collect();
        let mut known = self.known();
        if met.is_empty() {
            known.remove(key);
            return;
        }
        make_room(&mut known, key);
        let near = known.entry(key.clone()).or_default();
        near.retain(|session| !met.contains(session));
        near.truncate(MOST_AT_A_KEY - met.len());
        met.append(near);
        *near = met;
    }

    /// Somebody says that it waits for a key.
    pub(super) fn heard(&self, message: &Message) {
        let Body::Wanted { by, .. } = message.body else { return };
        let mut known = self.known();
        make_room(&mut known, &message.key);
        let near = known.entry(message.key.clone()).or_default();
        if near.len() < MOST_AT_A_KEY && !near.contains(&by) {
            near.push(by);
        }
    }
}

/// Whoever uses so many keys that others want meets them again soon.
fn make_room(known: &mut HashMap<Key, Vec<SessionId>>, key: &Key) {
    if known.len() >= MOST_REMEMBERED && !known.contains_key(key) {
        known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_takes_no_more_room_than_its_neighbours_need() {
        let (neighbours, key) = (Neighbours::default(), Key::new("k").unwrap());
        for first in 0..20 {
            neighbours.met(&key, (first..first + 20).map(SessionId));
        }
        assert_eq!(neighbours.at(core::slice::from_ref(&key), SessionId(99)).len(), MOST_AT_A_KEY);
        assert_eq!(neighbours.known()[&key].capacity(), MOST_AT_A_KEY);
    }
}
