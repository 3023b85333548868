//! The entries of a map in one vector.
//!
//! In a wasm that people download, each kind of B-tree costs 10 kB and more; this costs a few hundred bytes, and is fast for as many
//! entries as a page has.

use alloc::vec::{self, Vec};
use core::cmp::Ordering;

use super::{find_in, make_room};

/// Entries in order. A place is an index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entries<T>(Vec<T>);

impl<T> Entries<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.0.first()
    }

    pub(super) fn from(&self, from: usize) -> impl Iterator<Item = &T> {
        self.0[from..].iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    pub(super) fn at(&self, at: usize) -> &T {
        &self.0[at]
    }

    pub(super) fn at_mut(&mut self, at: usize) -> &mut T {
        &mut self.0[at]
    }

    pub(super) fn find(&self, compare: impl Fn(&T) -> Ordering) -> Result<usize, usize> {
        find_in(&self.0, compare)
    }

    pub(super) fn insert(&mut self, at: usize, entry: T, kept: &mut [usize]) -> usize {
        kept.iter_mut().filter(|kept| **kept >= at).for_each(|kept| *kept += 1);
        make_room(&mut self.0);
        self.0.insert(at, entry);
        at
    }

    pub(super) fn remove(&mut self, at: usize) -> T {
        self.0.remove(at)
    }

    pub(super) fn into_vec(self) -> Vec<T> {
        self.0
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.0.retain(keep);
    }
}

impl<T> IntoIterator for Entries<T> {
    type Item = T;
    type IntoIter = vec::IntoIter<T>;

    fn into_iter(self) -> vec::IntoIter<T> {
        self.0.into_iter()
    }
}
