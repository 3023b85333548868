//! The errors that a caller may have to deal with.

use alloc::{format, string::String};
use core::{fmt, time::Duration};

use crate::executor::DROPS_TASKS;
use crate::machine::{
    InvalidKey, InvalidOptions, LostReason, Quoted, Refusal, StoreError, StoreErrorKind, Unreadable, whole_ms,
};

/// Why a lease was not granted, extended or changed. For [`try_acquire`](crate::LeaseRequest::try_acquire), a taken key is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The time-out passed before the lease was granted. A new request waits again. If the store's last answer was a failure and it named
    /// no holder of the key, the error is [`Store`](Self::Store) instead.
    Timeout {
        /// The key; of several that were tried at once, all of them.
        key: String,
        /// The time since the request.
        waited: Duration,
        /// Whether a guard of this same manager holds the key. A task that requests a key that it already holds waits for itself.
        held_here: bool,
        /// Whether the store answered that others hold the key, or came first. If this and `held_here` are false, the store did
        /// not answer, or the manager was [suspended](crate::LeaseManager::suspend).
        held_elsewhere: bool,
    },
    /// The manager was closed.
    Closed,
    /// Another living context has the same [instance name](crate::LeaseManagerBuilder::instance) and holds the key.
    InstanceInUse {
        /// The key.
        key: String,
        /// The instance name of both.
        instance: String,
    },
    /// The key is invalid.
    InvalidKey(InvalidKey),
    /// The options are invalid, or do not fit the call.
    InvalidOptions(InvalidOptions),
    /// Another holder or guard upgrades this key, or has upgraded it. If another holder that shares the key upgrades, it waits until this
    /// guard is released: release it, and acquire the key again. Do the same if the lease is already exclusive, and other guards of its
    /// manager have joined it. If an earlier call of `upgrade` on this guard or on a clone is under way, await that call.
    UpgradeConflict {
        /// The key.
        key: String,
    },
    /// The lease is lost. Acquire a new one, which has a larger token; if this manager was closed, from another manager.
    Lost {
        /// The key.
        key: String,
        /// How it was lost.
        reason: LostReason,
    },
    /// This guard was already released, so it cannot be used any more.
    Released {
        /// The key.
        key: String,
    },
    /// The parts hold no lease: their guard had clones, shared its lease with other requests, or was released or lost.
    EmptyParts,
    /// The store does not have the lease of these parts: it expired, was taken over or resumed before, or is in another store.
    NotResumable,
    /// A newer version of this library wrote the record, which is left unchanged.
    FormatTooNew {
        /// The format that was found.
        found: u64,
        /// The newest format that this version knows.
        known: u64,
    },
    /// The store cannot be used as it is, and trying again will not help: the platform or this build has no such store, the URL is wrong,
    /// the server refuses the user, the tables are another program's, or the executor has no runtime here. The message names the remedy.
    Unsupported(StoreError),
    /// The store is full.
    Quota(StoreError),
    /// The store failed; the error says whether the operation was applied and whether trying again may help.
    Store(StoreError),
}

impl AcquireError {
    pub(crate) const fn timeout(key: String, waited: Duration, held_here: bool, held_elsewhere: bool) -> Self {
        Self::Timeout { key, waited, held_here, held_elsewhere }
    }

    /// The store refused at once, because the key is taken.
    pub(crate) const fn taken(key: String, held_here: bool) -> Self {
        Self::timeout(key, Duration::ZERO, held_here, !held_here)
    }
}

impl AcquireError {
    /// The error for a refusal by the machine. `key` is the user's name for the key.
    pub(crate) fn refused(refusal: Refusal, key: &str) -> Self {
        let permanent = |message| Self::Store(StoreError::permanent(StoreErrorKind::Unavailable, message));
        match refusal {
            // The caller fills this in, since it knows how long it waited.
            Refusal::Timeout => Self::timeout(key.into(), Duration::ZERO, false, false),
            Refusal::Closed => Self::Closed,
            Refusal::InstanceInUse(instance) => Self::InstanceInUse { key: key.into(), instance },
            Refusal::UpgradeConflict => Self::UpgradeConflict { key: key.into() },
            Refusal::Lost(reason) => Self::Lost { key: key.into(), reason },
            Refusal::Exhausted => permanent("the key has used up its tokens; use another key"),
            Refusal::Unreadable(unreadable) => Self::unreadable(unreadable, key),
            Refusal::Store(error) => error.into(),
        }
    }

    /// The error for a record that cannot be read. `key` is the user's name for the key.
    pub(crate) fn unreadable(unreadable: Unreadable, key: &str) -> Self {
        match unreadable {
            Unreadable::FormatTooNew { found, known } => Self::FormatTooNew { found, known },
            Unreadable::Corrupt => Self::Store(StoreError::permanent(
                StoreErrorKind::Unavailable,
                format!("the key {}: {unreadable}", Quoted(key)),
            )),
        }
    }
}

impl From<StoreError> for AcquireError {
    fn from(error: StoreError) -> Self {
        match error.kind {
            StoreErrorKind::Unsupported => Self::Unsupported(error),
            StoreErrorKind::Quota => Self::Quota(error),
            StoreErrorKind::Busy
            | StoreErrorKind::Closed
            | StoreErrorKind::Locked
            | StoreErrorKind::TooLarge
            | StoreErrorKind::Unavailable => Self::Store(error),
        }
    }
}

impl From<InvalidKey> for AcquireError {
    fn from(invalid: InvalidKey) -> Self {
        Self::InvalidKey(invalid)
    }
}

impl From<InvalidOptions> for AcquireError {
    fn from(invalid: InvalidOptions) -> Self {
        Self::InvalidOptions(invalid)
    }
}

/// What to do if others hold a key for too long. The npm package leaves these words out, for its size.
const ASK_WHO: &str = if DROPS_TASKS { "; raise the time-out, or ask `LeaseManager::status` who holds it" } else { "" };

/// Why the store had perhaps not answered when the time-out passed. In a browser there is no server.
const WHY_UNSAID: &str = if DROPS_TASKS {
    "; the store's server may be slow or out of reach, an open transaction may block the store, or this manager was suspended"
} else {
    "; an open transaction may block it, or this manager was suspended"
};

impl fmt::Display for AcquireError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { key, waited, held_here, held_elsewhere } => {
                let (before, after) = match (held_here, held_elsewhere) {
                    (true, _) => (
                        "a guard of this manager held",
                        "; if this task has it, release it first, or share it",
                    ),
                    (_, true) => ("others held", ASK_WHO),
                    _ => ("the store did not say who held", WHY_UNSAID),
                };
                write!(out, "the time-out passed after {} ms while {before} the key {}{after}", whole_ms(*waited), Quoted(key))
            }
            Self::Closed => out.write_str("the lease manager was closed; make another one"),
            Self::InstanceInUse { key, instance } => write!(
                out,
                "another living context with the same instance name {} holds the key {}; give each context an instance name of its own",
                Quoted(instance),
                Quoted(key)
            ),
            Self::InvalidKey(invalid) => invalid.fmt(out),
            Self::InvalidOptions(invalid) => invalid.fmt(out),
            Self::UpgradeConflict { key } => write!(
                out,
                "another holder or guard upgrades the key {}, or has upgraded it; release this lease and acquire the key again; if an \
                 earlier call on this lease upgrades it, await that call",
                Quoted(key)
            ),
            // The constant keeps the words out of the npm package, which shows the name.
            Self::Lost { key, reason } if DROPS_TASKS => reason.explain(key, out),
            Self::Lost { key, reason } => {
                write!(out, "the lease of the key {} is lost: {}; acquire another one", Quoted(key), reason.name())
            }
            Self::Released { key } => {
                write!(out, "the lease of the key {} was released; acquire another one", Quoted(key))
            }
            Self::EmptyParts => out.write_str(
                "the parts hold no lease, since clones or other requests still used it, or it was gone; acquire the key again",
            ),
            Self::NotResumable => out.write_str(
                "this store does not have the lease: it expired, was taken over or resumed, or is in another store; acquire the key again",
            ),
            Self::FormatTooNew { found, known } => Unreadable::FormatTooNew { found: *found, known: *known }.fmt(out),
            Self::Unsupported(error) => out.write_str(&error.message),
            Self::Quota(error) | Self::Store(error) => error.fmt(out),
        }
    }
}

impl core::error::Error for AcquireError {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::store::FenceError;

    #[test]
    fn a_refusal_names_the_key_and_the_remedy() {
        for (refusal, words) in [
            (
                Refusal::InstanceInUse("node-7".into()),
                ["the same instance name \"node-7\"", "the key \"k\"", "give each context"],
            ),
            (Refusal::UpgradeConflict, ["the key \"k\"", "release this lease", "await that call"]),
            (
                Refusal::Unreadable(Unreadable::Corrupt),
                ["the key \"k\"", "left as it is", "the object store `leasehold`"],
            ),
        ] {
            let text = AcquireError::refused(refusal, "k").to_string();
            for word in words {
                assert!(text.contains(word), "{word} is not in {text:?}");
            }
        }
    }

    #[test]
    fn a_loss_is_told_in_words_with_its_remedy() {
        for (reason, words) in [
            (LostReason::Stolen, "is lost: another context stole it; acquire another one"),
            (LostReason::Closed, "is lost: the manager was closed; make another manager"),
        ] {
            let of_a_request = AcquireError::Lost { key: "k".into(), reason }.to_string();
            let of_a_fence = FenceError::Lost { key: "k".into(), reason }.to_string();
            for text in [of_a_request, of_a_fence] {
                assert!(text.ends_with(words), "{text:?}");
            }
        }
    }

    #[test]
    fn a_key_with_control_characters_is_escaped() {
        let key = || String::from("k\u{1b}[2J");
        for error in [
            AcquireError::taken(key(), true),
            AcquireError::Lost { key: key(), reason: LostReason::Expired },
            AcquireError::InvalidOptions(InvalidOptions::SameKeyTwice { key: key() }),
        ] {
            let text = error.to_string();
            assert!(text.contains("the key \"k\\u{1b}[2J\""), "{text:?}");
        }
    }
}
