//! A map whose keys are kept in order.

#[cfg(not(feature = "js"))]
mod chunked;
#[cfg(feature = "js")]
mod flat;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::cmp::Ordering;

// A server may have 100,000 keys, but the wasm that pages download has no room for the code that they need. Only this line decides.
#[cfg(not(feature = "js"))]
use chunked::Entries;
#[cfg(feature = "js")]
use flat::Entries;

/// Whether a context may have enough keys that one search of its store queue for many of them is cheaper than a search for each.
pub(crate) const HAS_MANY_KEYS: bool = !cfg!(feature = "js");

/// A map whose keys are kept in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SortedMap<K, V>(Entries<(K, V)>);

impl<K, V> SortedMap<K, V> {
    pub(crate) const fn new() -> Self {
        Self(Entries::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn first(&self) -> Option<&(K, V)> {
        self.0.first()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.from(0).map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.from(0).map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.from(0).map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The entries after those of which `before` holds.
    pub(crate) fn from(&self, before: impl Fn(&K) -> bool) -> impl Iterator<Item = &(K, V)> {
        let start = self.find_by(|key| if before(key) { Ordering::Less } else { Ordering::Greater });
        self.0.from(start.unwrap_or_else(|start| start))
    }

    pub(crate) fn into_pairs(self) -> Vec<(K, V)> {
        self.0.into_vec()
    }

    pub(crate) fn into_values(self) -> Vec<V> {
        let mut values = Vec::with_capacity(self.len());
        for (_, value) in self {
            values.push(value);
        }
        values
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }
}

impl<K, V> SortedMap<K, V> {
    fn find_by(&self, compare: impl Fn(&K) -> Ordering) -> Result<usize, usize> {
        self.0.find(|(key, _)| compare(key))
    }

    /// Removes the entry for which `compare` returns `Equal`. The caller need not own a key to search for it.
    pub(crate) fn remove_by(&mut self, compare: impl Fn(&K) -> Ordering) -> Option<V> {
        let at = self.find_by(compare).ok()?;
        Some(self.0.remove(at).1)
    }
}

impl<K, V> SortedMap<K, V> {
    /// The entry at a place that [`find`](Self::find) returned. A place is valid until an entry is inserted or removed.
    pub(crate) fn at_mut(&mut self, at: usize) -> (&K, &mut V) {
        let (key, value) = self.0.at_mut(at);
        (key, value)
    }

    /// Inserts an entry at the place that [`find`](Self::find) returned for its key, and returns the place that it has then. The places in
    /// `kept` are corrected, so that they stay valid.
    pub(crate) fn insert_at(&mut self, at: usize, entry: (K, V), kept: &mut [usize]) -> usize {
        self.0.insert(at, entry, kept)
    }

    pub(crate) fn remove_at(&mut self, at: usize) {
        self.0.remove(at);
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// `Ok` with the place of the key, or `Err` with the place at which to insert it.
    pub(crate) fn find(&self, key: &K) -> Result<usize, usize> {
        self.find_by(|known| known.cmp(key))
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let at = self.find(key).ok()?;
        Some(&self.0.at(at).1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.find(key).ok()?;
        Some(&mut self.0.at_mut(at).1)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(at) => self.0.at_mut(at).1 = value,
            Err(at) => _ = self.0.insert(at, (key, value), &mut []),
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key).ok()?;
        Some(self.0.remove(at).1)
    }
}

impl<K: Ord + Clone, V: Default> SortedMap<K, V> {
    /// The value of a key, made if there is none.
    pub(crate) fn or_default(&mut self, key: &K) -> &mut V {
        let at = self.find(key).unwrap_or_else(|at| self.0.insert(at, (key.clone(), V::default()), &mut []));
        &mut self.0.at_mut(at).1
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = <Entries<(K, V)> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A binary search that, unlike the vector's own, stops at the first equal entry: most maps hold one entry.
#[cfg_attr(not(feature = "js"), inline(always))]
fn find_in<T>(entries: &[T], compare: impl Fn(&T) -> Ordering) -> Result<usize, usize> {
    let (mut start, mut end) = (0, entries.len());
    while start < end {
        let middle = start.midpoint(end);
        match compare(&entries[middle]) {
            Ordering::Less => start = middle + 1,
            Ordering::Equal => return Ok(middle),
            Ordering::Greater => end = middle,
        }
    }
    Err(start)
}

/// A vector would make room for four at once, and most maps of a context hold one entry.
fn make_room<T>(entries: &mut Vec<T>) {
    if entries.len() == entries.capacity() {
        entries.reserve_exact(entries.len() / 8 + 1);
    }
}
