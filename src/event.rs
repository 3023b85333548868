//! What happens, for whoever looks on: counted, and told to `tracing` if the feature is on.

use crate::machine::{Incarnation, Key, LostReason, Mode, Token};

/// What a manager did so far: see [`LeaseManager::stats`](crate::LeaseManager::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Guards that were handed out.
    pub granted: u64,
    /// Requests that had to queue in the store.
    pub waited: u64,
    /// Renewals that were sent.
    pub renewed: u64,
    /// Guards that were given back.
    pub released: u64,
    /// Guards that were lost.
    pub lost: u64,
    /// Store transactions.
    pub transactions: u64,
}

/// Something that happened to a lease.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "nobody is told"))]
pub(crate) enum Event {
    Granted {
        key: Key,
        mode: Mode,
        token: Token,
        holder: Incarnation,
        waited_ms: u64,
    },
    Waiting {
        key: Key,
        ahead: usize,
    },
    WaitsLong {
        key: Key,
        waited_ms: u64,
    },
    Suspect {
        key: Key,
        token: Token,
    },
    Certain {
        key: Key,
        token: Token,
    },
    Lost {
        key: Key,
        token: Token,
        reason: LostReason,
        held_ms: u64,
    },
    Released {
        key: Key,
        token: Token,
        held_ms: u64,
    },
    /// A manager went while this key was still held.
    Leaked {
        key: Key,
    },
    Transaction {
        operations: usize,
    },
}

#[cfg(not(feature = "tracing"))]
impl Event {
    /// Whether anybody listens.
    pub(crate) fn are_heard() -> bool {
        false
    }

    pub(crate) fn tell(self) {}
}

#[cfg(feature = "tracing")]
impl Event {
    /// Whether anybody listens.
    pub(crate) fn are_heard() -> bool {
        use tracing::level_filters::LevelFilter;
        LevelFilter::current() != LevelFilter::OFF
    }

    /// Tells whoever subscribed. Nothing is formatted unless somebody did.
    pub(crate) fn tell(self) {
        use tracing::{debug, info, trace, warn};
        match self {
            Self::Granted { key, mode, token, holder, waited_ms } => {
                debug!(%key, mode = mode.name(), token = token.as_u64(), %holder, waited_ms, "lease granted");
            }
            Self::Waiting { key, ahead } => debug!(%key, ahead, "lease awaited"),
            Self::WaitsLong { key, waited_ms } => warn!(%key, waited_ms, "the wait for a lease gets long"),
            Self::Suspect { key, token } => warn!(%key, token = token.as_u64(), "lease in doubt"),
            Self::Certain { key, token } => info!(%key, token = token.as_u64(), "lease beyond doubt again"),
            Self::Lost { key, token, reason, held_ms } => {
                warn!(%key, token = token.as_u64(), reason = reason.name(), held_ms, "lease lost");
            }
            Self::Released { key, token, held_ms } => {
                debug!(%key, token = token.as_u64(), held_ms, "lease released");
            }
            Self::Leaked { key } => warn!(%key, "the lease manager went while a guard of this key lived"),
            Self::Transaction { operations } => trace!(operations, "store transaction"),
        }
    }
}

/// The span in which a lease is asked for.
#[cfg(feature = "tracing")]
pub(crate) fn span<F: Future>(key: &str, mode: Mode, future: F) -> impl Future<Output = F::Output> + use<F> {
    use tracing::Instrument as _;
    future.instrument(tracing::debug_span!("lease", key, mode = mode.name()))
}

/// Nobody looks on.
#[cfg(not(feature = "tracing"))]
pub(crate) fn span<F: Future>(_: &str, _: Mode, future: F) -> F {
    future
}
