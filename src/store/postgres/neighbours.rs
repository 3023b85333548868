//! The sessions that a transaction probably meets at a key. The transaction reads their rows along with the record, instead of asking
//! for them in one more round trip once it knows the record.
//!
//! These are guesses. A transaction asks for the sessions that were not guessed, and ignores those that were guessed wrongly.

use std::{collections::HashMap, sync::MutexGuard, vec::Vec};

use crate::executor::Mutex;
use crate::machine::{Body, Key, Message, SessionId};

/// A transaction reads at most this many guessed sessions for a key, however many wait.
const MOST_AT_A_KEY: usize = 16;
/// A transaction for more keys than this does not guess: it takes long anyway.
const MOST_KEYS: usize = 8;
/// The sessions at this many keys are remembered. The limit saves memory: each key takes its name and 400 bytes at most.
const MOST_REMEMBERED: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Neighbours(Mutex<HashMap<Key, Vec<SessionId>>>);

impl Neighbours {
    fn known(&self) -> MutexGuard<'_, HashMap<Key, Vec<SessionId>>> {
        self.0.lock()
    }

    /// The sessions at these keys, each once, without the one that asks.
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

    /// A transaction met these sessions at the key. As long as there are any, those that it met before will probably come again.
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

    /// A session says that it waits for a key.
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

/// Forgets everything when too much is known. A context that shares that many keys with others soon meets them again.
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
