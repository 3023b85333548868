//! What goes into a machine and what comes out.

use alloc::string::String;

use super::{
    codec::Unreadable,
    failure::StoreError,
    id::Beacon,
    key::Key,
    message::Message,
    operation::{Batch, Outcome, Reply},
    time::Monotonic,
    token::Token,
};

/// Names one local request, and the guard that comes of it. Whoever drives the machine draws it, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(pub u64);

/// A local request for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// Its name.
    pub id: TurnId,
    /// The key.
    pub key: Key,
    /// Whether to wait if the key is taken.
    pub wait: bool,
    /// When to give up waiting.
    pub deadline: Option<Monotonic>,
    /// What the holder says of itself.
    pub info: String,
}

/// What happens to a context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Somebody asks for a lease.
    Acquire(Turn),
    /// Somebody no longer wants a lease that was not granted yet.
    Cancel {
        /// The request.
        turn: TurnId,
        /// Its key.
        key: Key,
    },
    /// A guard is given back.
    Release {
        /// The guard.
        turn: TurnId,
        /// Its key.
        key: Key,
    },
    /// Ask the store whether a guard still holds.
    Verify {
        /// Names the question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// Its key.
        key: Key,
    },
    /// Look at a key.
    Inspect {
        /// Names the question.
        query: TurnId,
        /// The key.
        key: Key,
    },
    /// The store answered, or failed.
    Reply {
        /// Which transaction.
        id: u64,
        /// Its result.
        result: Result<Reply, StoreError>,
    },
    /// Another context says something.
    Message(Message),
    /// The own beacon stands.
    BeaconStands(Beacon),
    /// The platform has no beacons.
    NoBeacon,
    /// A watched beacon is gone.
    BeaconGone {
        /// The watch that saw it.
        watch: u64,
    },
    /// Time has passed.
    Tick,
    /// Release everything and refuse what comes.
    Close,
}

/// What a context is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Run a transaction, and bring its result as [`Input::Reply`].
    Store {
        /// Names the transaction.
        id: u64,
        /// What to apply.
        batch: Batch,
    },
    /// Tell the other contexts.
    Send(Message),
    /// Listen to the others, and raise this beacon.
    Wake {
        /// The beacon, unless it is not wanted.
        beacon: Option<Beacon>,
    },
    /// Stop listening, lower the beacon.
    Rest,
    /// Watch for a beacon to be gone.
    Watch {
        /// Names the watch.
        watch: u64,
        /// The beacon.
        beacon: Beacon,
    },
    /// End a watch.
    Unwatch {
        /// The watch.
        watch: u64,
    },
    /// A request has its lease: a guard comes into being.
    Granted {
        /// The request.
        turn: TurnId,
        /// The guard's own token.
        token: Token,
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
    /// A guard is lost, once and for good.
    Lost {
        /// The guard.
        turn: TurnId,
        /// Why.
        reason: LostReason,
    },
    /// A guard was given back.
    Released {
        /// The guard.
        turn: TurnId,
        /// What the store said.
        result: Result<ReleaseOutcome, StoreError>,
    },
    /// Whether a guard still holds.
    Verified {
        /// The question.
        query: TurnId,
        /// The answer.
        result: Result<bool, StoreError>,
    },
    /// What a key looks like.
    Status {
        /// The question.
        query: TurnId,
        /// The answer: [`Outcome::Status`] or [`Outcome::Unreadable`].
        result: Result<Outcome, StoreError>,
    },
    /// Everything is released; nothing more comes.
    Closed,
    /// Nothing more to do until this time, if any.
    Timeout(Option<Monotonic>),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// Its deadline passed.
    Timeout,
    /// The context was closed.
    Closed,
    /// The key has used up its tokens.
    Exhausted,
    /// The record cannot be read.
    Unreadable(Unreadable),
    /// The store failed.
    Store(StoreError),
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// It was not renewed in time, and somebody took it over.
    Expired,
    /// It was evicted while its holder still believed in it.
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
            Self::Evicted => "Evicted",
            Self::StoreCleared => "StoreCleared",
            Self::StoreFailed => "StoreFailed",
            Self::FormatTooNew => "FormatTooNew",
            Self::Closed => "Closed",
        }
    }
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseOutcome {
    /// The lease was given back.
    Released,
    /// It was lost before; nothing of the successor's was touched.
    Lost,
}
