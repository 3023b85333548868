//! A map in one sorted vector.
//!
//! In a wasm that people download, each kind of B-tree costs 10 kB and more; this costs a few hundred bytes, and is fast
//! for as many entries as a context has.

use alloc::vec::Vec;
use core::cmp::Ordering;

/// A map whose keys are kept in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> SortedMap<K, V> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn first(&self) -> Option<&(K, V)> {
        self.0.first()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The entries after those of which `before` holds.
    pub(crate) fn from(&self, before: impl Fn(&K) -> bool) -> &[(K, V)] {
        let start = self.0.partition_point(|(key, _)| before(key));
        &self.0[start..]
    }

    pub(crate) fn into_pairs(self) -> Vec<(K, V)> {
        self.0
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
    /// A vector would make room for four at once, and most maps of a context hold one entry.
    fn put_in(&mut self, at: usize, entry: (K, V)) {
        if self.len() == self.0.capacity() {
            self.0.reserve_exact(self.len() / 8 + 1);
        }
        self.0.insert(at, entry);
    }
}

impl<K, V> SortedMap<K, V> {
    /// A binary search that, unlike the vector's own, stops at the first equal key: most maps hold one entry.
    fn find_by(&self, compare: impl Fn(&K) -> Ordering) -> Result<usize, usize> {
        let (mut start, mut end) = (0, self.len());
        while start < end {
            let middle = start.midpoint(end);
            match compare(&self.0[middle].0) {
                Ordering::Less => start = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => end = middle,
            }
        }
        Err(start)
    }

    /// Removes the entry for which `compare` returns `Equal`. The caller need not own a key to search for it.
    pub(crate) fn remove_by(&mut self, compare: impl Fn(&K) -> Ordering) -> Option<V> {
        let at = self.find_by(compare).ok()?;
        Some(self.0.remove(at).1)
    }
}

impl<K, V> SortedMap<K, V> {
    /// The entry at an index that [`find`](Self::find) returned. An index is valid until an entry is inserted or removed.
    pub(crate) fn at_mut(&mut self, at: usize) -> (&K, &mut V) {
        let (key, value) = &mut self.0[at];
        (key, value)
    }

    pub(crate) fn remove_at(&mut self, at: usize) {
        self.0.remove(at);
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// `Ok` with the index of the key, or `Err` with the index at which to insert it.
    pub(crate) fn find(&self, key: &K) -> Result<usize, usize> {
        self.find_by(|known| known.cmp(key))
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let at = self.find(key).ok()?;
        Some(&self.0[at].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.find(key).ok()?;
        Some(&mut self.0[at].1)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.put_in(at, (key, value)),
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
        let at = self.find(key).unwrap_or_else(|at| {
            self.put_in(at, (key.clone(), V::default()));
            at
        });
        &mut self.0[at].1
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = alloc::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_in_order() {
        let mut map = SortedMap::new();
        for (key, value) in [(3, 'c'), (1, 'a'), (2, 'b'), (1, 'A')] {
            map.insert(key, value);
        }
        assert!(map.iter().eq([(&1, &'A'), (&2, &'b'), (&3, &'c')]));
        assert_eq!((map.get(&2), map.get(&4), map.len()), (Some(&'b'), None, 3));
        assert_eq!((map.remove(&1), map.remove(&1)), (Some('A'), None));
        *map.or_default(&9) = 'i';
        map.retain(|key, _| *key != 2);
        assert!(map.into_iter().eq([(3, 'c'), (9, 'i')]));
    }
}
