//! Names of contexts, requests, stores and beacons.

use core::fmt;

/// One run of one context: 128 random bits, drawn when it starts. A context that comes back is a new incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// The identity of a store's contents: 128 random bits, drawn when the store is made. A wiped store has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(pub u128);

/// One attempt of an incarnation to get a lease. Numbers only grow, so that a late duplicate is known as such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A sign of life that an incarnation keeps up while it holds or waits, and that vanishes when it dies.
///
/// A generation is never raised twice: an absent beacon stays absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Beacon {
    /// Whose sign of life it is.
    pub holder: Incarnation,
    /// Counts from 1; in a record, 0 means that none stood when it was written.
    pub generation: u64,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Display for Beacon {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.holder, self.generation)
    }
}
