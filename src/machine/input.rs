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

/// The id of one local request, and of the guard that it becomes. The driver of the machine chooses it, and uses it once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(pub u64);

/// A local request for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// Its id.
    pub id: TurnId,
    /// The key.
    pub key: Key,
    /// How to hold it.
    pub mode: Mode,
    /// Whether to wait if the key is taken.
    pub wait: bool,
    /// Requests with a larger priority go first.
    pub priority: i32,
    /// When to give up waiting.
    pub deadline: Option<Monotonic>,
    /// When the wait counts as long, and is to be reported.
    pub warn_at: Option<Monotonic>,
    /// Whether the context's requests that set this hold an exclusive lease together.
    pub share: bool,
    /// Whether to take the lease from its holder.
    pub steal: bool,
    /// Whether it has an entry of its own in the record, instead of one that it shares with other requests of the context.
    pub alone: bool,
    /// Whether the lease is renewed in the background.
    pub renews: bool,
    /// The longest time for which the lease may be held, in ms.
    pub max_hold_ms: Option<u64>,
    /// The holder's description of itself.
    pub info: String,
}

impl Turn {
    /// A plain request: exclusive, and without a limit to its wait.
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

/// Where local requests queue: those of one slot share one entry in the record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The key.
    pub key: Key,
    /// The request that has the slot alone, if it is such a slot. This field stands before the mode because requests queue again in the
    /// order of their slots.
    pub own: Option<TurnId>,
    /// The requested mode.
    pub mode: Mode,
}

impl Slot {
    /// The slot of an operation that concerns a key, whichever requests wait there.
    pub(super) const fn of_key(key: Key) -> Self {
        Self { key, own: None, mode: Mode::Exclusive }
    }
}

/// A lease on its way from one guard to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parcel {
    /// The separate session to which the lease was moved.
    pub from: SessionId,
    /// The session that held it.
    pub origin: SessionId,
    /// The grant's first token.
    pub grant: Token,
    /// The token of the next guard: no two guards share one.
    pub next: Token,
    /// The request by which it was granted.
    pub request: RequestId,
    /// How the key is held. It is shared if a downgrade was requested and its outcome is unknown.
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
    /// A request takes over a lease that was taken out of its guard.
    Resume {
        /// The request, which is [alone](Turn::alone).
        turn: Turn,
        /// The lease.
        parcel: Parcel,
    },
    /// A request is given up. If it was granted meanwhile, this releases the lease.
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
        /// The id of the question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// Its slot.
        slot: Slot,
        /// How long the lease must last from now at least, in ms; 0 for as long as usual.
        span_ms: u64,
    },
    /// Let others share what a guard holds exclusively.
    Downgrade {
        /// The id of the question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// Its slot.
        slot: Slot,
    },
    /// Hold exclusively what a guard shares.
    Upgrade {
        /// The id of the question.
        query: TurnId,
        /// The guard.
        turn: TurnId,
        /// Its slot.
        slot: Slot,
    },
    /// An upgrade is given up, and the guard stays shared.
    CancelUpgrade {
        /// The question.
        query: TurnId,
        /// The slot of its guard.
        slot: Slot,
    },
    /// The user has taken note that the key changed hands.
    ClearChanged {
        /// The key.
        key: Key,
    },
    /// Read the state of a key.
    Inspect {
        /// The id of the question.
        query: TurnId,
        /// The key.
        key: Key,
    },
    /// Read the state of several keys at one moment: the id of each question, and its key.
    InspectAll(Vec<(TurnId, Key)>),
    /// A user's transaction with a [fence](super::Machine::ticket) found that the lease is gone; or it renewed the lease and was committed.
    Fenced {
        /// The slot of the guard.
        slot: Slot,
        /// What was checked. It is boxed, because otherwise each input would be as large as a ticket.
        ticket: Box<Ticket>,
        /// The outcome.
        reply: Reply,
    },
    /// A transaction has ended: the store answered, or failed.
    Reply {
        /// The id of the transaction.
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
    /// The context is hidden, as a page is: it releases leases that are not in use.
    Hide,
    /// The platform may have paused the context: no lease is certain until the store has answered.
    Doubt,
    /// The store may have lost its latest writes, and messages may have been lost: the context verifies each grant that it holds, reads the
    /// state of its requests, and repeats its latest releases.
    Recheck,
    /// The platform is about to stop the context, which gives up its leases and keeps its requests.
    Suspend {
        /// Whether the store can delete a session without a transaction: then nothing else is sent.
        abandons: bool,
    },
    /// The platform ends the context for good, and its code may still run for a moment. The session is given up as at
    /// [`Suspend`](Self::Suspend). If a lease is in use and others know the beacon, only the end of the beacon ends the session.
    Ending {
        /// Whether the store can delete a session without a transaction: then nothing else is sent.
        abandons: bool,
    },
    /// The context runs again, with a new session.
    Wake,
    /// The store is gone for good: the leases are lost, and requests try it once more to learn the reason.
    StoreGone {
        /// Whether the store may still delete a session without a transaction: then nothing else is sent.
        abandons: bool,
    },
    /// Release everything and refuse new requests.
    Close,
}
