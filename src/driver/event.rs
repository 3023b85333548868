//! What happens to leases: the counters, the events for listeners, and those for `tracing` if the feature is on.

use core::time::Duration;

#[cfg(feature = "tracing")]
use crate::executor::Shared;
use crate::machine::{Key, LostReason, Mode, SessionId, Token};

/// What a manager has done so far: see [`LeaseManager::stats`](crate::LeaseManager::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Guards that were handed out.
    pub granted: u64,
    /// How often a request had to queue in the store. A request that queues again, because its context passed the lease on, counts again.
    pub waited: u64,
    /// Heartbeats that were sent: each renews all leases of the context.
    pub renewed: u64,
    /// Guards that were released.
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
    /// The key, as the store knows it: with a [key codec](crate::LeaseManagerBuilder::key_codec) that is the store's name,
    /// not yours.
    pub key: Key,
    /// How the lease is held or requested at the time of the event.
    pub mode: Mode,
    /// What happened.
    pub kind: LeaseEventKind,
}

/// What happened to a lease.
///
/// Each guard emits one `Granted`, then any number of `Suspect`, each followed by `Certain` unless the lease ends first, then one `Lost` or
/// `Released`. A lease that cannot be renewed is `Suspect` before it is `Lost`. It is `Lost` without having been `Suspect` if its release
/// finds that it is gone or gets no answer, if it is stolen, if its manager is suspended or closed, if the store fails for good or is full, if its [`max_hold`](crate::LeaseRequest::max_hold) is
/// over, or if it expires without [`auto_renew`](crate::LeaseRequest::auto_renew).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseEventKind {
    /// A request waits: others hold the key or came first, or guards of this manager hold it. A request that joins others of
    /// its manager in the queue emits nothing, because they share one position. They emit this again when they take another
    /// position: at the end of the queue, or after a [suspension](crate::LeaseManager::suspend).
    Waiting {
        /// How many holders and waiters of other contexts the store shows ahead of this one. It is 0 if the request waits only for a guard
        /// of this manager. If the work under that guard made the request, it waits for ever, unless both requests
        /// [share](crate::LeaseRequest::share_in_process).
        ahead: usize,
    },
    /// A request that emitted `Waiting` got no lease: it timed out, was dropped, or was refused.
    Withdrawn {
        /// The time since the request.
        waited: Duration,
    },
    /// A guard was created.
    Granted {
        /// Its fencing token.
        token: Token,
        /// The session that this context has now.
        holder: SessionId,
        /// The time since the request.
        waited: Duration,
    },
    /// The guard is in doubt: not valid, and not lost. The context asks the store.
    Suspect {
        /// Its fencing token.
        token: Token,
    },
    /// The guard is valid again.
    Certain {
        /// Its fencing token.
        token: Token,
    },
    /// The guard is lost for good.
    Lost {
        /// Its fencing token.
        token: Token,
        /// How it was lost. It is [`StoreFailed`](LostReason::StoreFailed) also if the release got no answer: then the lease expires by
        /// itself.
        reason: LostReason,
        /// The time since the grant.
        held: Duration,
    },
    /// The guard was released.
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

    /// The guard's fencing token; `None` for events of requests.
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

/// What is reported to `tracing`.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "nobody is told"))]
pub(crate) enum Event {
    Lease(LeaseEvent),
    WaitsLong {
        key: Key,
        waited_ms: u64,
        /// Whether a guard of this manager holds the key: then a task may wait for itself.
        held_here: bool,
    },
    /// A manager was dropped or closed while this key was still held.
    Leaked {
        key: Key,
    },
    Transaction {
        operations: usize,
    },
}

/// The span in which a request was made. Every thread that reports on the request or its guard does so in this span, because the thread's
/// current span usually belongs to another request.
#[cfg(feature = "tracing")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin(Option<Shared<tracing::Span>>);

/// Stands for a span where the feature `tracing` is off.
#[cfg(not(feature = "tracing"))]
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {}

/// Stands for an entered span where the feature `tracing` is off.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Unseen;

#[cfg(not(feature = "tracing"))]
impl Origin {
    pub(crate) fn here() -> Self {
        Self {}
    }

    pub(crate) fn of_request(_: &str, _: Mode) -> Self {
        Self {}
    }

    pub(crate) fn enter(&self) -> Unseen {
        Unseen
    }

    pub(crate) fn is_known(&self) -> bool {
        false
    }
}

#[cfg(not(feature = "tracing"))]
impl Event {
    /// Whether anybody listens.
    pub(crate) fn are_heard() -> bool {
        false
    }

    pub(crate) fn tell(self, _: SessionId, _: &Origin) {}
}

#[cfg(feature = "tracing")]
impl Origin {
    /// The current span, or none if nobody listens. This calls the subscriber, so the caller must not hold the lock.
    pub(crate) fn here() -> Self {
        Self(Event::are_heard().then(|| Shared::new(tracing::Span::current())))
    }

    /// The span of a request for a lease; none if nobody listens. It is kept behind a pointer, because thousands of requests may wait.
    pub(crate) fn of_request(key: &str, mode: Mode) -> Self {
        let span = || tracing::debug_span!(target: TARGET, "lease", key, mode = mode.name());
        Self(Event::are_heard().then(|| Shared::new(span())))
    }

    /// Enters the span until the returned value is dropped.
    pub(crate) fn enter(&self) -> Option<tracing::span::Entered<'_>> {
        self.0.as_ref().map(|span| span.enter())
    }

    /// Whether there is a span. Dropping it calls the subscriber, which must not happen under the lock.
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_some()
    }
}

/// The target that programs filter by. Like the names of the events and of their fields, it is part of the interface that
/// `docs/a-native-worker.md` lists.
#[cfg(feature = "tracing")]
const TARGET: &str = "leasehold";

#[cfg(feature = "tracing")]
const LEAKED: &str = "the lease manager was closed or dropped while a guard of this key lived; a close gives the lease back, so end \
    the work before, or let it end with its lease, by `elect` or `OnLoss::Abort`";

#[cfg(feature = "tracing")]
impl Event {
    /// Whether anybody listens.
    pub(crate) fn are_heard() -> bool {
        use tracing::level_filters::LevelFilter;
        LevelFilter::current() != LevelFilter::OFF
    }

    /// Reports to `tracing` what happened to the manager whose session is `holder`. Nothing is formatted unless somebody subscribed.
    pub(crate) fn tell(self, holder: SessionId, Origin(span): &Origin) {
        use tracing::{Span, trace, warn};
        let nowhere = Span::none();
        let span = span.as_deref().unwrap_or(&nowhere);
        match self {
            Self::Lease(LeaseEvent { key, mode, kind }) => tell_of_lease(&key, mode, kind, holder, span),
            Self::WaitsLong { key, waited_ms, held_here } => {
                warn!(target: TARGET, parent: span, %key, %holder, waited_ms, held_here, "the wait for a lease gets long");
            }
            Self::Leaked { key } => warn!(target: TARGET, parent: span, %key, %holder, "{LEAKED}"),
            Self::Transaction { operations } => trace!(target: TARGET, %holder, operations, "store transaction"),
        }
    }
}

#[cfg(feature = "tracing")]
fn tell_of_lease(key: &Key, mode: Mode, kind: LeaseEventKind, holder: SessionId, span: &tracing::Span) {
    use crate::machine::whole_ms;
    use tracing::{debug, info, warn};
    let token = kind.token().map_or(0, Token::as_u64);
    match kind {
        LeaseEventKind::Granted { holder, waited, .. } => {
            let (mode, waited_ms) = (mode.name(), whole_ms(waited));
            debug!(target: TARGET, parent: span, %key, mode, token, %holder, waited_ms, "lease granted");
        }
        LeaseEventKind::Waiting { ahead } => {
            debug!(target: TARGET, parent: span, %key, %holder, ahead, "lease awaited");
        }
        LeaseEventKind::Withdrawn { waited } => {
            debug!(target: TARGET, parent: span, %key, %holder, waited_ms = whole_ms(waited), "lease awaited in vain");
        }
        LeaseEventKind::Suspect { .. } => warn!(target: TARGET, parent: span, %key, token, %holder, "lease in doubt"),
        LeaseEventKind::Certain { .. } => {
            info!(target: TARGET, parent: span, %key, token, %holder, "lease beyond doubt again");
        }
        LeaseEventKind::Lost { reason, held, .. } => {
            let (reason, held_ms, closed) = (reason.name(), whole_ms(held), reason == LostReason::Closed);
            if closed {
                // The closing has already warned of this guard.
                info!(target: TARGET, parent: span, %key, token, %holder, reason, held_ms, "lease lost");
            } else {
                warn!(target: TARGET, parent: span, %key, token, %holder, reason, held_ms, "lease lost");
            }
        }
        LeaseEventKind::Released { held, .. } => {
            debug!(target: TARGET, parent: span, %key, token, %holder, held_ms = whole_ms(held), "lease released");
        }
    }
}

/// Warns, in the caller's span, that an election goes on although the store fails.
#[cfg(feature = "tracing")]
pub(crate) fn tell_of_outage(key: &Key, holder: SessionId, cause: &str) {
    tracing::warn!(target: TARGET, %key, %holder, cause, "the election waits for a store that fails");
}

/// Does nothing, as the feature `tracing` is off.
#[cfg(not(feature = "tracing"))]
pub(crate) fn tell_of_outage(_: &Key, _: SessionId, _: &str) {}
