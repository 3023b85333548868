//! What goes into a machine: the users' requests, the store's answers, other contexts' messages, the platform's events.

use alloc::{boxed::Box, string::String, vec::Vec};

use super::{
    context::Ticket,
    failure::StoreError,
    id::{RequestId, SessionId},
    key::Key,
    message::Message,
    mode::Mode,
    record::Reply,
    time::Monotonic,
    token::Token,
};

/// Names one local request, and the guard that it becomes. The driver of the machine draws it, once.
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
    /// Whether the context's requests that set this hold an exclusive lease together.
    pub share: bool,
    /// Whether to take the lease from its holder.
    pub steal: bool,
    /// Whether it has a place of its own in the record, and shares nothing with other requests of the context.
    pub alone: bool,
    /// Whether the lease is renewed in the background.
    pub renews: bool,
    /// How long the lease is held at most, in ms.
    pub max_hold_ms: Option<u64>,
    /// The holder's description of itself.
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

    /// The slot in which the request queues among those of its context.
    pub fn slot(&self) -> Slot {
        Slot { key: self.key.clone(), mode: self.mode, own: self.alone.then_some(self.id) }
    }
}

/// Where local requests queue: they have one place in the record together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The key.
    pub key: Key,
    /// The one request that has the slot for itself. This comes before the mode: requests queue again in this order.
    pub own: Option<TurnId>,
    /// The requested mode.
    pub mode: Mode,
}

/// A lease on its way from one guard to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parcel {
    /// The separate session that the lease is moved to.
    pub from: SessionId,
    /// The session that held it.
    pub origin: SessionId,
    /// The grant's first token.
    pub grant: Token,
    /// The token of the next guard: no two guards share one.
    pub next: Token,
    /// The request by which it was granted.
    pub request: RequestId,
    /// How the key is held: shared, if that was requested and the outcome is unknown.
    pub mode: Mode,
}

/// What happens to a context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A request for a lease.
    Acquire(Turn),
    /// A request for several leases, all at once or none. Each single request is [alone](Turn::alone), and none waits. One that is marked
    /// as waiting will be repeated, and so is answered sooner if a key is taken.
    AcquireAll(Vec<Turn>),
    /// Somebody takes over a lease.
    Resume {
        /// Who takes it: [alone](Turn::alone).
        turn: Turn,
        /// What there is to take.
        parcel: Parcel,
    },
    /// Somebody no longer wants a lease. If it was granted meanwhile, this is its release.
    Cancel {
        /// The request.
        turn: TurnId,
        /// Its slot.
        slot: Slot,
    },
    /// A guard is released.
    Release {
        /// The guard.
        turn: TurnId,
        /// Its slot.
        slot: Slot,
    },
    /// A guard ends, and its lease stays in the record: see [`Machine::parcel`](super::Machine::parcel).
    Detach {
        /// The guard.
        turn: TurnId,
        /// Its slot.
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
        /// Its slot.
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
        /// Its slot.
        slot: Slot,
    },
    /// Hold exclusively what a guard shares.
    Upgrade {
        /// Names the question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// Its slot.
        slot: Slot,
    },
    /// The guard stays shared: its upgrade is given up.
    CancelUpgrade {
        /// The question.
        query: TurnId,
        /// The slot of its guard.
        slot: Slot,
    },
    /// The user has noted that the key changed hands.
    ClearChanged {
        /// The key.
        key: Key,
    },
    /// Read the state of a key.
    Inspect {
        /// Names the question.
        query: TurnId,
        /// The key.
        key: Key,
    },
    /// Read the state of several keys at one moment: each question by its name.
    InspectAll(Vec<(TurnId, Key)>),
    /// A user's transaction with a [fence](super::Machine::ticket) found that the lease is gone; or it renewed the lease, and was
    /// committed.
    Fenced {
        /// The slot of the guard.
        slot: Slot,
        /// What was checked. It is boxed, because otherwise each input would be as large as a ticket.
        ticket: Box<Ticket>,
        /// The outcome.
        reply: Reply,
    },
    /// The store answered, or failed.
    Reply {
        /// Which transaction.
        id: u64,
        /// Its result.
        result: Result<Reply, StoreError>,
    },
    /// A message of another context.
    Message(Message),
    /// This context's own beacon is raised.
    BeaconStands(SessionId),
    /// This context's own beacon is gone, although nobody lowered it: contexts that watch it consider this context dead.
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
    /// Nobody sees the context any more: it releases leases that are not in use.
    Hide,
    /// The platform did something to the context: no lease is certain until the store has answered.
    Doubt,
    /// The store may have lost its latest writes, and messages may have been lost: the context verifies each grant that it holds, reads the
    /// state of its requests, and repeats its latest releases.
    Recheck,
    /// The context is about to be stopped, and gives up what it holds. Its requests stay.
    Suspend {
        /// Whether the store deletes a session blindly: then nothing else is sent.
        abandons: bool,
    },
    /// The platform ends the context for good, and its code may still run for a moment. The session is given up as at
    /// [`Suspend`](Self::Suspend). If a lease is in use and others know the beacon, only the end of the beacon ends the session.
    Ending {
        /// Whether the store deletes a session blindly: then nothing else is sent.
        abandons: bool,
    },
    /// The context goes on, with a new session.
    Wake,
    /// The store is gone for good: its leases are given up, and requests try it once more, to learn why.
    StoreGone {
        /// Whether the store may still delete a session blindly: then nothing else is sent.
        abandons: bool,
    },
    /// Release everything and refuse new requests.
    Close,
}
