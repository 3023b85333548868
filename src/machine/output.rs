//! What comes out of a machine: actions, and what to report to users.

use alloc::string::String;
use core::fmt;

use super::key::Quoted;
use super::{
    failure::StoreError,
    id::SessionId,
    input::TurnId,
    message::Message,
    record::{Batch, Outcome, Unreadable},
    time::Monotonic,
    token::Token,
};

/// What an input causes, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Do this.
    Command(Command),
    /// Report this.
    Event(Event),
    /// Nothing more to do until this time, if any.
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
        /// Names the transaction.
        id: u64,
        /// What to apply.
        batch: Batch,
    },
    /// Delete the row of this session at once, without waiting for anything.
    Abandon(SessionId),
    /// Tell the other contexts.
    Send(Message),
    /// Listen to the others, as this session.
    Wake {
        /// The session.
        session: SessionId,
        /// Whether to raise a beacon for it.
        beacon: bool,
    },
    /// Stop listening, lower the beacon.
    Rest,
    /// The same, although the row of the session may still be in the store: others must see at once that the beacon is gone.
    Fall,
    /// Watch for the beacon of a session to be gone.
    Watch {
        /// Names the watch.
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
    /// A request queues.
    Waiting {
        /// The request.
        turn: TurnId,
        /// How many grants and places are ahead of it; 0 if only this context's own guards are.
        ahead: usize,
    },
    /// A request has waited for long.
    WaitsLong {
        /// The request.
        turn: TurnId,
    },
    /// The key is taken, and the request did not want to wait.
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
    /// A guard is certain again.
    Certain {
        /// The guard.
        turn: TurnId,
    },
    /// A guard holds exclusively what it shared.
    Upgraded {
        /// The question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// The guard's new token.
        token: Token,
    },
    /// The guard is shared from now on.
    Downgraded {
        /// The turn.
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
        /// Why its lease had been lost before, if it had been.
        result: Result<Option<LostReason>, StoreError>,
    },
    /// Whether a guard still holds: the answer to [`Input::Verify`](super::Input::Verify) and
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
    /// Everything is released; nothing more comes.
    Closed,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// Its deadline passed.
    Timeout,
    /// The context was closed.
    Closed,
    /// Another living context has the same instance name as this one, and holds the key. The text is that name.
    InstanceInUse(String),
    /// Another holder that shares the key is already upgrading.
    UpgradeConflict,
    /// The lease that it is about is lost.
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
    /// It expired: it was not renewed in time, or was held for as long as allowed.
    Expired,
    /// Another context stole it.
    Stolen,
    /// The context was suspended.
    Suspended,
    /// It was evicted while its holder still considered it valid.
    Evicted,
    /// The store was cleared.
    StoreCleared,
    /// The store failed for good.
    StoreFailed,
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
            Self::FormatTooNew => "FormatTooNew",
            Self::Closed => "Closed",
        }
    }
}

impl LostReason {
    const fn words(self) -> &'static str {
        match self {
            Self::Expired => "it was not renewed in time, or was held for as long as it may be",
            Self::Stolen => "another context stole it",
            Self::Suspended => "the manager was suspended",
            Self::Evicted => "this context was silent for too long, and another one may hold it",
            Self::StoreCleared => "the store was cleared",
            Self::StoreFailed => "the store failed or was deleted",
            Self::FormatTooNew => "a newer version of this library rewrote its record",
            Self::Closed => "the manager was closed",
        }
    }

    /// Tells people about the loss, and what to do.
    pub(crate) fn explain(self, key: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = if self == Self::Closed { "make another manager" } else { "acquire another one" };
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
    /// It was lost before; the successor's lease is not affected.
    Lost,
}
