//! What happens, for whoever looks on: counted, told to listeners, and to `tracing` if the feature is on.

use core::time::Duration;

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

/// Something that happened to a lease of this manager: see [`LeaseManager::events`](crate::LeaseManager::events).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseEvent {
    /// The key, as the store knows it: with a [key codec](crate::LeaseManagerBuilder::key_codec) that is its name for it.
    pub key: Key,
    /// How the lease is held or asked for, by the time of the event.
    pub mode: Mode,
    /// What happened.
    pub kind: LeaseEventKind,
}

/// What happened to a lease.
///
/// A guard is told by one `Granted`, then by `Suspect` and `Certain` in turns, and in the end by one `Lost` or `Released`. A
/// lease that ran out was `Suspect` before it is `Lost`, unless it was its release that found it gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseEventKind {
    /// A request queues in the store: others hold the key, or came before. A request that waits for its own context only is
    /// not told. Told anew after a [suspension](crate::LeaseManager::suspend), when it queues again.
    Waiting {
        /// How many contexts hold the key or stand before it.
        ahead: usize,
    },
    /// A request that was told as waiting got no lease: its time was up, it was dropped or refused.
    Withdrawn {
        /// The time since the request.
        waited: Duration,
    },
    /// A guard came into being.
    Granted {
        /// Its fencing token.
        token: Token,
        /// The context that holds it: this one, by the name that it has now.
        holder: Incarnation,
        /// The time since the request.
        waited: Duration,
    },
    /// The guard is in doubt: not valid, not lost. The store is asked.
    Suspect {
        /// Its fencing token.
        token: Token,
    },
    /// The guard is beyond doubt again.
    Certain {
        /// Its fencing token.
        token: Token,
    },
    /// The guard is lost, once and for good.
    Lost {
        /// Its fencing token.
        token: Token,
        /// Why. [`StoreFailed`](LostReason::StoreFailed) also if its release got no answer: then the lease runs out by
        /// itself.
        reason: LostReason,
        /// The time since the grant.
        held: Duration,
    },
    /// The guard was given back.
    Released {
        /// Its fencing token.
        token: Token,
        /// The time since the grant.
        held: Duration,
    },
}

impl LeaseEventKind {
    /// The kind's name, as JavaScript shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Withdrawn { .. } => "withdrawn",
            Self::Granted { .. } => "granted",
            Self::Suspect { .. } => "suspect",
            Self::Certain { .. } => "certain",
            Self::Lost { .. } => "lost",
            Self::Released { .. } => "released",
        }
    }

    /// The guard's fencing token; `None` of what happens to requests.
    pub const fn token(self) -> Option<Token> {
        match self {
            Self::Waiting { .. } | Self::Withdrawn { .. } => None,
            Self::Granted { token, .. }
            | Self::Suspect { token }
            | Self::Certain { token }
            | Self::Lost { token, .. }
            | Self::Released { token, .. } => Some(token),
        }
    }
}

/// What `tracing` is told.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "nobody is told"))]
pub(crate) enum Event {
    Lease(LeaseEvent),
    WaitsLong {
        key: Key,
        waited_ms: u64,
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
        use tracing::{trace, warn};
        match self {
            Self::Lease(LeaseEvent { key, mode, kind }) => tell_of_lease(&key, mode, kind),
            Self::WaitsLong { key, waited_ms } => warn!(%key, waited_ms, "the wait for a lease gets long"),
            Self::Leaked { key } => warn!(%key, "the lease manager went while a guard of this key lived"),
            Self::Transaction { operations } => trace!(operations, "store transaction"),
        }
    }
}

#[cfg(feature = "tracing")]
fn tell_of_lease(key: &Key, mode: Mode, kind: LeaseEventKind) {
    use crate::machine::whole_ms;
    use tracing::{debug, info, warn};
    match kind {
        LeaseEventKind::Granted { token, holder, waited } => {
            let (mode, token, waited_ms) = (mode.name(), token.as_u64(), whole_ms(waited));
            debug!(%key, mode, token, %holder, waited_ms, "lease granted");
        }
        LeaseEventKind::Waiting { ahead } => debug!(%key, ahead, "lease awaited"),
        LeaseEventKind::Withdrawn { waited } => debug!(%key, waited_ms = whole_ms(waited), "lease awaited in vain"),
        LeaseEventKind::Suspect { token } => warn!(%key, token = token.as_u64(), "lease in doubt"),
        LeaseEventKind::Certain { token } => info!(%key, token = token.as_u64(), "lease beyond doubt again"),
        LeaseEventKind::Lost { token, reason, held } => {
            let (token, reason, held_ms) = (token.as_u64(), reason.name(), whole_ms(held));
            warn!(%key, token, reason, held_ms, "lease lost");
        }
        LeaseEventKind::Released { token, held } => {
            debug!(%key, token = token.as_u64(), held_ms = whole_ms(held), "lease released");
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
