//! The records of one store, or of one transaction.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use super::{codec::Unreadable, key::Key, record::Record};

/// Records by key. A key that nobody used yet has an empty record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records(BTreeMap<Key, Result<Record, Unreadable>>);

impl Records {
    /// No records.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Puts in what a store has under a key.
    pub fn load(&mut self, key: Key, stored: Option<&str>) {
        self.0.insert(key, stored.map_or_else(|| Ok(Record::default()), Record::decode));
    }

    /// The record of a key.
    ///
    /// # Errors
    /// [`Unreadable`] if what the store has under the key cannot be used.
    pub fn record(&mut self, key: &Key) -> Result<&mut Record, Unreadable> {
        // Most keys are known: look first, so that only a new one is cloned.
        if !self.0.contains_key(key) {
            self.0.insert(key.clone(), Ok(Record::default()));
        }
        match self.0.get_mut(key) {
            Some(Ok(record)) => Ok(record),
            Some(Err(unreadable)) => Err(*unreadable),
            None => Err(Unreadable::Corrupt),
        }
    }

    /// What a key's record looks like now, if it is known and readable.
    pub fn peek(&self, key: &Key) -> Option<&Record> {
        self.0.get(key)?.as_ref().ok()
    }

    /// The keys that begin like this, in order.
    pub fn keys(&self, prefix: &str) -> Vec<Key> {
        let later = self.0.keys().skip_while(|key| key.as_str() < prefix);
        later.take_while(|key| key.as_str().starts_with(prefix)).cloned().collect()
    }

    /// The revision of each record, to tell later which ones changed.
    pub fn revisions(&self) -> Vec<u64> {
        self.0.values().map(|record| record.as_ref().map_or(0, |record| record.revision)).collect()
    }

    /// What must be written: the records whose revision is no longer that of `before`.
    pub fn changed_since(&self, before: &[u64]) -> Vec<(Key, String)> {
        let changed = self.0.iter().zip(before).filter_map(|((key, record), revision)| {
            let record = record.as_ref().ok()?;
            (record.revision != *revision).then(|| (key.clone(), record.encode()))
        });
        changed.collect()
    }
}
