//! What comes out of a machine: actions, and what to report to users.

use alloc::string::String;
use core::fmt;

use super::key::Quoted;
use super::{
    failure::{StoreError, StoreErrorKind},
    id::SessionId,
    input::TurnId,
    message::Message,
    record::{Batch, Outcome, Unreadable},
    time::Monotonic,
    token::Token,
};

/// One thing that an input causes. The machine returns them in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Do this.
    Command(Command),
    /// Report this.
    Event(Event),
    /// Nothing more is to be done until this time, if there is one.
    Timeout(Option<Monotonic>),
}

impl From<Command> for Output {
    fn from(command: Command) -> Self {
        Self::Command(command)
    }
}

impl From<Event> for Output {
    fn from(event: Event) -> Self {
        Self::Event(event)
    }
}

/// What a context is to do to the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Run a transaction, and bring its result as [`Input::Reply`](super::Input::Reply).
    Store {
        /// The id of the transaction.
        id: u64,
        /// What to apply.
        batch: Batch,
    },
    /// Delete the row of this session, which is dead. Nothing waits for an answer.
    Abandon(SessionId),
    /// Send this message to the other contexts.
    Send(Message),
    /// Listen for messages, as this session.
    Wake {
        /// The session.
        session: SessionId,
        /// Whether to raise a beacon for it.
        beacon: bool,
    },
    /// Stop listening, and lower the beacon.
    Rest,
    /// The same, although the row of the session may still be in the store: others must see at once that the beacon is gone.
    Fall,
    /// Watch for the beacon of a session to be gone.
    Watch {
        /// The id of the watch.
        watch: u64,
        /// The session.
        session: SessionId,
    },
    /// End a watch.
    Unwatch {
        /// The watch.
        watch: u64,
    },
}

/// What to report in this context: to the caller of a request, or to the owner of a guard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A request has its lease: it becomes a guard.
    Granted {
        /// The request.
        turn: TurnId,
        /// The guard's own token.
        token: Token,
    },
    /// A request has entered the queue.
    Waiting {
        /// The request.
        turn: TurnId,
        /// How many grants and queue entries of other contexts are ahead of it.
        ahead: usize,
    },
    /// A request has waited for a long time.
    WaitsLong {
        /// The request.
        turn: TurnId,
    },
    /// The key is taken, and the request does not wait.
    Busy {
        /// The request.
        turn: TurnId,
    },
    /// A request failed.
    Failed {
        /// The request.
        turn: TurnId,
        /// Why.
        refusal: Refusal,
    },
    /// A guard is in doubt: not valid, not lost.
    Suspect {
        /// The guard.
        turn: TurnId,
    },
    /// A guard is valid again.
    Certain {
        /// The guard.
        turn: TurnId,
    },
    /// A guard holds its key exclusively from now on.
    Upgraded {
        /// The question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// The guard's new token.
        token: Token,
    },
    /// A guard shares its key from now on.
    Downgraded {
        /// The guard.
        turn: TurnId,
    },
    /// A guard is lost for good.
    Lost {
        /// The guard.
        turn: TurnId,
        /// Why.
        reason: LostReason,
    },
    /// A guard was released.
    Released {
        /// The guard.
        turn: TurnId,
        /// How its lease had been lost before, if it had; or the store's failure.
        result: Result<Option<LostReason>, StoreError>,
    },
    /// Whether a guard still holds its lease: the answer to [`Input::Verify`](super::Input::Verify) and
    /// [`Input::Downgrade`](super::Input::Downgrade).
    Verified {
        /// The question.
        query: TurnId,
        /// The answer.
        result: Result<bool, StoreError>,
    },
    /// The state of a key.
    Status {
        /// The question.
        query: TurnId,
        /// The answer: [`Outcome::Status`] or [`Outcome::Unreadable`].
        result: Result<Outcome, StoreError>,
    },
    /// Everything is released, and no event follows.
    Closed,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The request's deadline passed.
    Timeout,
    /// The context was closed.
    Closed,
    /// Another living context has the same instance name, which this contains, and holds the key.
    InstanceInUse(String),
    /// Another holder that shares the key is already upgrading.
    UpgradeConflict,
    /// Its lease is lost.
    Lost(LostReason),
    /// The key has used up its tokens.
    Exhausted,
    /// The record cannot be read.
    Unreadable(Unreadable),
    /// The store failed.
    Store(StoreError),
}

/// Why a lease was lost: see [`LeaseGuard::lost`](crate::LeaseGuard::lost).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// It expired: it was not renewed in time, or its `max_hold` was over.
    Expired,
    /// Another context stole it.
    Stolen,
    /// The context was suspended.
    Suspended,
    /// Another context considered this one dead and ended its session, although this context still considered the lease valid.
    Evicted,
    /// The store was cleared.
    StoreCleared,
    /// The store failed for good.
    StoreFailed,
    /// The store is full.
    StoreFull,
    /// A newer version rewrote the record.
    FormatTooNew,
    /// The manager was closed.
    Closed,
}

impl LostReason {
    /// The reason's name, as JavaScript shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "Expired",
            Self::Stolen => "Stolen",
            Self::Suspended => "Suspended",
            Self::Evicted => "Evicted",
            Self::StoreCleared => "StoreCleared",
            Self::StoreFailed => "StoreFailed",
            Self::StoreFull => "StoreFull",
            Self::FormatTooNew => "FormatTooNew",
            Self::Closed => "Closed",
        }
    }
}

impl LostReason {
    /// The reason of a loss by this permanent error.
    pub(crate) fn by_failure(error: &StoreError) -> Self {
        if error.kind == StoreErrorKind::Quota { Self::StoreFull } else { Self::StoreFailed }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Expired => "it was not renewed in time, or was held for as long as it may be",
            Self::Stolen => "another context stole it",
            Self::Suspended => "the manager was suspended",
            Self::Evicted => {
                "another context considered this one dead and ended its session, or somebody deleted the session's row"
            }
            Self::StoreCleared => "the store was cleared",
            Self::StoreFailed => "the store failed or was deleted",
            Self::StoreFull => "the store is full",
            Self::FormatTooNew => "a newer version of this library rewrote its record",
            Self::Closed => "the manager was closed",
        }
    }

    /// Writes how the lease was lost, and the remedy.
    pub(crate) fn explain(self, key: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = match self {
            Self::Closed => "make another manager",
            Self::StoreFull => "make room, and acquire another one",
            _ => "acquire another one",
        };
        write!(out, "the lease of the key {} is lost: {}; {remedy}", Quoted(key), self.words())
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseOutcome {
    /// The lease was released.
    Released,
    /// The lease had been lost before. The lease of a successor is not affected.
    Lost,
}
