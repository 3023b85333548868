//! A shared part of a state that remembers its hash: most actions change one part and leave the others.

use std::{
    hash::{Hash, Hasher},
    ops::Deref,
    sync::{Arc, OnceLock},
};

/// A value, cheap to clone, hashed once.
#[derive(Clone, Debug)]
pub struct Hashed<T>(Arc<Inner<T>>);

#[derive(Clone, Debug)]
struct Inner<T> {
    value: T,
    hash: OnceLock<u64>,
}

impl<T: Clone + Hash> Hashed<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Inner { value, hash: OnceLock::new() }))
    }

    /// The value, to be changed in this state alone.
    pub fn change(&mut self) -> &mut T {
        let inner = Arc::make_mut(&mut self.0);
        inner.hash = OnceLock::new();
        &mut inner.value
    }
}

impl<T> Deref for Hashed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Hash> Hash for Hashed<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let hash = self.0.hash.get_or_init(|| fingerprint(&self.0.value));
        hasher.write_u64(*hash);
    }
}

impl<T: PartialEq> PartialEq for Hashed<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.value == other.0.value
    }
}

/// The same for the same value in every thread and every run of one build.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    ahash::RandomState::with_seeds(1, 2, 3, 4).hash_one(value)
}
