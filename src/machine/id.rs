//! The ids of sessions, requests and stores.

use core::fmt;

/// The id of one session of one context: 128 bits that are used once. A context draws its first id at random, and each later one follows by
/// a fixed step.
///
/// As long as the store has a row for it, the context may be alive. Once the row is gone, the session has ended for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl SessionId {
    /// The id that [`Display`](fmt::Display) writes like this: 32 hexadecimal digits.
    pub(crate) fn from_digits(text: &str) -> Option<Self> {
        let digits = Some(text).filter(|text| text.len() == 32)?;
        u128::from_str_radix(digits, 16).ok().map(Self)
    }

    /// The id of the next session of the same context. It looks as random as the first one, but the last byte stays.
    pub(super) const fn next(self) -> Self {
        Self(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c800))
    }

    /// The id of a separate session, for a lease that leaves its context. Each number gives another id.
    pub(super) const fn beside(self, number: u64) -> Self {
        Self(self.0.wrapping_add(0x2545_f491_4f6c_dd1d_9fb2_1c65_1e98_df00_u128.wrapping_mul(number as u128)))
    }
}

/// The identity of a store's contents: 128 random bits, drawn when the store is created. A store that was wiped gets a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreId(pub u128);

/// One request of a session for a lease. Its retries repeat the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

/// In hexadecimal digits, as in the store, in the names of beacons and in logs.
impl fmt::Debug for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SessionId({self})")
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}
