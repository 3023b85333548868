//! What goes into a machine and what comes out.

use alloc::{string::String, vec::Vec};

use super::{
    context::Ticket,
    failure::StoreError,
    id::{RequestId, SessionId},
    key::Key,
    message::Message,
    mode::Mode,
    record::{Batch, Outcome, Reply, Unreadable},
    time::Monotonic,
    token::Token,
};

/// Names one local request, and the guard that comes of it. Whoever drives the machine draws it, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(pub u64);

/// A local request for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// Its name.
    pub id: TurnId,
    /// The key.
    pub key: Key,
    /// How to hold it.
    pub mode: Mode,
    /// Whether to wait if the key is taken.
    pub wait: bool,
    /// A larger one goes first.
    pub priority: i32,
    /// When to give up waiting.
    pub deadline: Option<Monotonic>,
    /// When the wait gets long.
    pub warn_at: Option<Monotonic>,
    /// Whether the context's requests that say so hold an exclusive lease together.
    pub share: bool,
    /// Whether to rob whoever holds the key.
    pub steal: bool,
    /// Whether it has a place in the record for itself, and shares nothing with other requests of the context.
    pub alone: bool,
    /// Whether the lease is renewed without being asked.
    pub renews: bool,
    /// How long the lease is held at most, in ms.
    pub max_hold_ms: Option<u64>,
    /// What the holder says of itself.
    pub info: String,
}

impl Turn {
    /// A plain request: exclusive, waiting without end.
    pub fn new(id: TurnId, key: Key) -> Self {
        Self {
            id,
            key,
            mode: Mode::Exclusive,
            wait: true,
            priority: 0,
            deadline: None,
            warn_at: None,
            share: false,
            steal: false,
            alone: false,
            renews: true,
            max_hold_ms: None,
            info: String::new(),
        }
    }

    /// Where the request stands among those of its context.
    pub fn slot(&self) -> Slot {
        Slot { key: self.key.clone(), mode: self.mode, own: self.alone.then_some(self.id) }
    }
}

/// Where local requests queue: they have one place in the record together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The key.
    pub key: Key,
    /// The one request that has it for itself. Before the mode: in this order they queue again.
    pub own: Option<TurnId>,
    /// How it is asked for.
    pub mode: Mode,
}

/// A lease on its way from one guard to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parcel {
    /// The session of its own that it is moved to.
    pub from: SessionId,
    /// The session that held it.
    pub origin: SessionId,
    /// The grant's first token.
    pub grant: Token,
    /// The token of the next guard: no two guards share one.
    pub next: Token,
    /// By which request it was granted.
    pub request: RequestId,
    /// How the key is held: shared, if that was asked for and nobody knows whether it came to pass.
    pub mode: Mode,
}

/// What happens to a context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Somebody asks for a lease.
    Acquire(Turn),
    /// Somebody asks for several leases, all at once or none. Each request is [alone](Turn::alone), and none waits;
    /// one that says so is going to ask anew, and is told the sooner that a key is taken.
    AcquireAll(Vec<Turn>),
    /// Somebody takes over a lease.
    Resume {
        /// Who takes it: [alone](Turn::alone).
        turn: Turn,
        /// What there is to take.
        parcel: Parcel,
    },
    /// Somebody no longer wants a lease that was not granted yet.
    Cancel {
        /// The request.
        turn: TurnId,
        /// Where it stands.
        slot: Slot,
    },
    /// A guard is given back.
    Release {
        /// The guard.
        turn: TurnId,
        /// Where it stands.
        slot: Slot,
    },
    /// A guard goes, and its lease stays in the record: see [`Machine::parcel`](super::Machine::parcel).
    Detach {
        /// The guard.
        turn: TurnId,
        /// Where it stands.
        slot: Slot,
        /// The session that the lease moves to.
        to: SessionId,
    },
    /// Ask the store whether a guard still holds, and renew it.
    Verify {
        /// Names the question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// Where it stands.
        slot: Slot,
        /// How long the lease is to last from now at least, in ms; 0 for as long as usual.
        span_ms: u64,
    },
    /// Let others share what a guard holds exclusively.
    Downgrade {
        /// Names the question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// Where it stands.
        slot: Slot,
    },
    /// Hold exclusively what a guard shares.
    Upgrade {
        /// Names the question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// Where it stands.
        slot: Slot,
    },
    /// The guard is to go on sharing.
    CancelUpgrade {
        /// The question.
        query: TurnId,
        /// Where its guard stands.
        slot: Slot,
    },
    /// Somebody knows by now that the key changed hands.
    ClearChanged {
        /// The key.
        key: Key,
    },
    /// Look at a key.
    Inspect {
        /// Names the question.
        query: TurnId,
        /// The key.
        key: Key,
    },
    /// Look at several keys at one moment: each question by its name.
    InspectAll(Vec<(TurnId, Key)>),
    /// A transaction of the user's with a [fence](super::Machine::ticket) in it found that the lease is gone; or it
    /// renewed the lease, and was committed.
    Fenced {
        /// Where the guard stands.
        slot: Slot,
        /// What was checked.
        ticket: Ticket,
        /// What came of it.
        reply: Reply,
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
    BeaconStands(SessionId),
    /// The own beacon stands no more, although nobody lowered it: whoever watches it takes this context for dead.
    BeaconLost(SessionId),
    /// The platform has no beacons.
    NoBeacon,
    /// A watched beacon is gone.
    BeaconGone {
        /// The watch that saw it.
        watch: u64,
    },
    /// Time has passed.
    Tick,
    /// Nobody looks at the context any more: what it does not use it gives back.
    Hide,
    /// The platform did something to the context: nothing is believed until the store has answered.
    Doubt,
    /// The context is about to be stopped, and gives up what it holds. Its requests stay.
    Suspend {
        /// Whether the store deletes a session blindly: then nothing else is sent.
        abandons: bool,
    },
    /// The context goes on, with a new session.
    Wake,
    /// The store is gone for good: its leases are given up, and requests ask it once more, to be told why.
    StoreGone {
        /// Whether the store may still delete a session blindly: then nothing else is sent.
        abandons: bool,
    },
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
    /// A request has its lease: a guard comes into being.
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
        /// How many grants and places stand before it; 0 if only this context's own guards do.
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
    /// A guard is beyond doubt again.
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
    /// The guard shares from now on.
    Downgraded {
        /// The turn.
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
    /// Whether a guard still holds: the answer to [`Input::Verify`] and [`Input::Downgrade`].
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
    /// Another living context has the same instance name, and holds the key.
    InstanceInUse,
    /// Somebody else who shares the key upgrades already.
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
    /// It ran out: it was not renewed in time, or was held for as long as it may be.
    Expired,
    /// Another context stole it.
    Stolen,
    /// The context was suspended.
    Suspended,
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

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseOutcome {
    /// The lease was given back.
    Released,
    /// It was lost before; nothing of the successor's was touched.
    Lost,
}
