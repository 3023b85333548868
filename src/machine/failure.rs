//! The failures of a store, as far as decisions depend on them.

use alloc::string::String;
use core::fmt;

/// The failure of a store operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreError {
    /// What kind of failure it is.
    pub kind: StoreErrorKind,
    /// Whether the transaction may have been applied nevertheless.
    pub applied: Applied,
    /// Whether trying again may help. If not, the operations of the transaction are sent again in smaller transactions, because one of
    /// them may be to blame, and only that one fails. After eight operations in a row were refused while each stood alone, with nothing
    /// accepted in between, all others fail at once. The stores of the npm package refuse for good only what concerns them as a whole, so
    /// there all operations fail.
    pub retry: bool,
    /// What happened, in words, and the remedy if there is one.
    pub message: String,
}

/// Whether a store may say that a key is [locked](StoreErrorKind::Locked). The stores of the npm package never do, so its wasm has no code
/// for it.
pub(crate) const KEYS_MAY_BE_LOCKED: bool = !cfg!(feature = "js");

/// Kinds of store failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The platform has no such store, or forbids it here.
    Unsupported,
    /// The store does not answer, or not in time. If trying again may help, a request with a time limit goes on until that limit. One
    /// without a limit fails after three attempts, or after a lease if nobody knows whether the transaction took effect.
    Unavailable,
    /// The store was too slow, or others kept it busy, and the transaction took no effect. A request that waits goes on until its time
    /// limit; without one it fails after a lease.
    Busy,
    /// Somebody else keeps a record locked that the transaction needs. The transaction took no effect. Transactions with other keys may
    /// succeed, so the context sends the operations of this one again, key by key. A store that returns this must wait for a lock only for
    /// a fraction of the time limit, because the context sends nothing else meanwhile.
    Locked,
    /// The store is full.
    Quota,
    /// The transaction is too large for the store. The context sends half as much and so learns the limit; a request that cannot be
    /// divided fails.
    TooLarge,
    /// The store was closed.
    Closed,
}

/// Whether a transaction that failed took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// It certainly took no effect.
    No,
    /// It is unknown until the record is read again.
    Unknown,
}

impl StoreError {
    /// A failure of a transaction that took no effect, and may succeed if it is tried again.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { kind: StoreErrorKind::Unavailable, applied: Applied::No, retry: true, message: message.into() }
    }

    /// A failure of a transaction that took no effect, and will fail again.
    pub fn permanent(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, applied: Applied::No, retry: false, message: message.into() }
    }

    /// The failure of a transaction that took no effect, because the store was too slow, or others kept it busy.
    pub fn busy(message: impl Into<String>) -> Self {
        Self { kind: StoreErrorKind::Busy, ..Self::transient(message) }
    }

    /// The failure of a transaction that took no effect, because somebody else keeps one of its records locked.
    pub fn locked(message: impl Into<String>) -> Self {
        Self { kind: StoreErrorKind::Locked, ..Self::transient(message) }
    }

    /// The failure of a transaction that may or may not have taken effect, and may succeed if it is tried again.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self { applied: Applied::Unknown, ..Self::transient(message) }
    }

    /// The same failure. If an earlier attempt may have been applied, the request may be, too: its outcome is unknown.
    pub(crate) fn after(&self, may_be_applied: bool) -> Self {
        let applied = if may_be_applied { Applied::Unknown } else { self.applied };
        Self { applied, ..self.clone() }
    }

    /// Whether a request goes on until its time limit, if it has one. A server that refuses connections may be about to start. A full store
    /// stays full until somebody makes room, so the caller is told.
    pub(crate) fn may_pass(&self) -> bool {
        self.retry && self.kind != StoreErrorKind::Quota
    }

    /// Whether a part of the transaction may succeed: it was too large, or one of its operations is refused for good, and nobody knows
    /// which one.
    pub(crate) fn may_blame_one(&self) -> bool {
        self.kind == StoreErrorKind::TooLarge || (KEYS_MAY_BE_LOCKED && !self.retry)
    }

    /// Whether the store was too slow or too busy, rather than unable. A request that waits goes on for a lease, even without a time limit.
    pub(crate) fn is_slowness(&self) -> bool {
        let is_kept_waiting = matches!(self.kind, StoreErrorKind::Busy | StoreErrorKind::Locked);
        self.retry && (self.applied == Applied::Unknown || is_kept_waiting)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let applied = match self.applied {
            Applied::No => "not applied",
            Applied::Unknown => "outcome unknown",
        };
        let remedy = match self.kind {
            _ if !self.retry => "trying again will not help",
            StoreErrorKind::Quota => "make room",
            _ => "trying again may help",
        };
        write!(out, "the store failed: {} ({applied}; {remedy})", self.message)
    }
}

impl core::error::Error for StoreError {}
