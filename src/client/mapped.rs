//! A guard together with what it protects.

use core::ops::{Deref, DerefMut};

use crate::client::guard::LeaseGuard;

/// A lease and what it protects: made by [`LeaseGuard::map`]. It derefs to the value; dropping it releases the lease.
#[derive(Debug)]
#[must_use = "the lease is released when the guard is dropped"]
pub struct MappedLeaseGuard<T> {
    // They are dropped in this order: the value is dropped while the lease is still held.
    value: T,
    guard: LeaseGuard,
}

impl<T> MappedLeaseGuard<T> {
    pub(crate) fn new(guard: LeaseGuard, value: T) -> Self {
        Self { guard, value }
    }

    /// The guard. This is an associated function, so that it hides no method of the value.
    pub fn guard(this: &Self) -> &LeaseGuard {
        &this.guard
    }

    /// Replaces the value with one that is made from it.
    pub fn map<U>(this: Self, map: impl FnOnce(T) -> U) -> MappedLeaseGuard<U> {
        MappedLeaseGuard { guard: this.guard, value: map(this.value) }
    }

    /// Splits it into the guard and the value.
    pub fn into_inner(this: Self) -> (LeaseGuard, T) {
        (this.guard, this.value)
    }
}

impl<T> Deref for MappedLeaseGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MappedLeaseGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
