//! The records of one store, or of one transaction.

use alloc::{boxed::Box, string::String, vec::Vec};

use super::{
    codec::Unreadable,
    id::Incarnation,
    key::Key,
    record::Record,
    sorted::SortedMap,
    tombstone::{Graves, Tombstone},
};

/// Records by key, and the tombstones of those who are gone. A key that nobody used yet has an empty record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records {
    by_key: SortedMap<Key, Stored>,
    graves: Graves,
}

/// What stands under a key. Boxed: however many keys there are, a new one moves little.
type Stored = Result<Box<Record>, Unreadable>;

impl Records {
    /// No records.
    pub const fn new() -> Self {
        Self { by_key: SortedMap::new(), graves: Graves::new() }
    }

    /// Puts in what a store has under a key.
    pub fn load(&mut self, key: Key, stored: Option<&str>) {
        let record = stored.map_or_else(|| Ok(Record::default()), Record::decode);
        self.by_key.insert(key, record.map(Box::new));
    }

    /// Puts in what a store has under the name of somebody who is gone.
    pub fn load_tombstone(&mut self, holder: Incarnation, stored: &str) {
        self.graves.add(holder, Tombstone::decode(holder, stored));
    }

    /// Notes that somebody is gone.
    pub fn entomb(&mut self, tombstone: Tombstone) {
        self.graves.add(tombstone.holder, Some(tombstone));
    }

    /// Whether others than this context have an entry here: then their tombstones matter.
    pub fn name_others(&self, holder: Incarnation) -> bool {
        self.by_key.values().any(|record| record.as_ref().is_ok_and(|record| record.names(|other| other != holder)))
    }

    /// The keys at which those who are gone may have left something, and which were not loaded.
    pub fn unvisited(&self) -> Vec<Key> {
        let mut keys = self.graves.keys();
        keys.retain(|key| !self.by_key.contains_key(key));
        keys
    }

    /// Removes what those who are gone left at keys where nobody waits: whoever waits does so itself.
    pub fn sweep(&mut self) {
        for record in self.by_key.values_mut().flatten() {
            let waits = record.queue.iter().any(|waiter| !self.graves.hold(waiter.holder));
            if !waits && record.clean(&self.graves) {
                record.changed();
            }
        }
    }

    /// What must be written of the tombstones: each one that became shorter, and `None` for what nothing names any more.
    pub fn changed_tombstones(&mut self) -> Vec<(Incarnation, Option<String>)> {
        let by_key = &self.by_key;
        self.graves.settle(|holder, key| match by_key.get(key) {
            Some(Ok(record)) => !record.names(|named| named == holder),
            _ => false,
        });
        self.graves.take_changed()
    }

    /// The record of a key.
    ///
    /// # Errors
    /// [`Unreadable`] if what the store has under the key cannot be used.
    pub fn record(&mut self, key: &Key) -> Result<&mut Record, Unreadable> {
        self.open(key).map(|(record, _)| record)
    }

    /// The record of a key, and who is gone.
    pub(super) fn open(&mut self, key: &Key) -> Result<(&mut Record, &Graves), Unreadable> {
        // Most keys are known: look first, so that only a new one is cloned.
        if !self.by_key.contains_key(key) {
            self.by_key.insert(key.clone(), Ok(Box::default()));
        }
        match self.by_key.get_mut(key) {
            Some(Ok(record)) => Ok((record, &self.graves)),
            Some(Err(unreadable)) => Err(*unreadable),
            None => Err(Unreadable::Corrupt),
        }
    }

    /// What a key's record looks like now, if it is known and readable.
    pub fn peek(&self, key: &Key) -> Option<&Record> {
        self.by_key.get(key)?.as_deref().ok()
    }

    /// The keys that begin like this, in order.
    pub fn keys(&self, prefix: &str) -> Vec<Key> {
        let mut keys = Vec::new();
        for (key, _) in self.by_key.from(|key| key.as_str() < prefix) {
            if !key.as_str().starts_with(prefix) {
                break;
            }
            keys.push(key.clone());
        }
        keys
    }

    /// The revision of each record, to tell later which ones changed.
    pub fn revisions(&self) -> Vec<u64> {
        let mut revisions = Vec::with_capacity(self.by_key.len());
        for record in self.by_key.values() {
            revisions.push(record.as_ref().map_or(0, |record| record.revision));
        }
        revisions
    }

    /// What must be written: the records whose revision is no longer that of `before`.
    pub fn changed_since(&self, before: &[u64]) -> Vec<(Key, String)> {
        let mut changed = Vec::new();
        for ((key, record), revision) in self.by_key.iter().zip(before) {
            if let Ok(record) = record
                && record.revision != *revision
            {
                changed.push((key.clone(), record.encode()));
            }
        }
        changed
    }
}
