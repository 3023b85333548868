//! A lease without a guard, on its way to another.

use alloc::{borrow::ToOwned, string::String};

use crate::machine::{Incarnation, Mode, Parcel, Token};

/// A lease that was taken out of its guard: made by [`LeaseGuard::into_parts`](crate::LeaseGuard::into_parts), and made
/// a guard again by [`LeaseManager::resume`](crate::LeaseManager::resume), of the same context or of another one on the
/// same store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the lease runs out unless it is resumed"]
pub struct LeaseParts {
    key: String,
    holder: Incarnation,
    token: Token,
    mode: Mode,
    parcel: Option<Parcel>,
}

impl LeaseParts {
    pub(crate) fn new(key: &str, holder: Incarnation, token: Token, mode: Mode, parcel: Option<Parcel>) -> Self {
        Self { key: key.to_owned(), holder, token, mode, parcel }
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The context that held the lease.
    pub fn holder(&self) -> Incarnation {
        self.holder
    }

    /// The token of the guard that was taken apart. The next one has a larger.
    pub fn token(&self) -> Token {
        self.token
    }

    /// How the key is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What the machine needs to know; `None` if the lease could not be taken out.
    pub(crate) fn parcel(&self) -> Option<&Parcel> {
        self.parcel.as_ref()
    }
}
