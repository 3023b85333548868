//! Operations: what a context asks of the store, and what the store answers.

use alloc::{string::String, vec::Vec};

use super::{
    codec::Unreadable,
    id::{Incarnation, RequestId, StoreId},
    key::Key,
    mode::Mode,
    record::{Entry, Grant, Sighting, Waiter},
    time::{Monotonic, Now, Wall},
    token::{Token, TokenBlock},
};

/// One thing asked of one key's record. A store runs [`Operation::apply`](Self::apply) and decides nothing itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The key it is about; of several, the first.
    pub key: Key,
    /// Who asks.
    pub holder: Incarnation,
    /// What is asked.
    pub action: Action,
}

/// What is asked of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Get the lease, or a place in the queue; asked again, it renews the place or adopts the grant.
    Acquire(Acquire),
    /// Get the leases of several keys at once, or none of them. Nobody waits.
    AcquireAll(Vec<(Key, Acquire)>),
    /// Make the lease last longer.
    Renew {
        /// The grant's first token.
        token: Token,
        /// Larger than any that this holder sent for the grant before.
        beat: u64,
        /// The beacon that stands, 0 for none.
        beacon: u64,
        /// How long the lease lasts from now, in ms.
        lease_ms: u64,
        /// Reserve more tokens too.
        refill: bool,
    },
    /// Let others share the key from now on.
    Downgrade {
        /// The grant's first token.
        token: Token,
    },
    /// Give the lease back, and the request's place with it.
    Release {
        /// The grant's first token.
        token: Token,
        /// The request that was granted.
        request: RequestId,
    },
    /// Give up a request: its place or its grant.
    Withdraw {
        /// The request.
        request: RequestId,
    },
    /// Remove an entry whose holder is dead or silent, unless it moved since it was seen.
    Evict {
        /// Whose entry.
        target: Incarnation,
        /// Which entry.
        entry: Entry,
        /// Its beat when it was seen.
        beat: u64,
    },
    /// Look, and change nothing.
    Inspect,
    /// Ask whether a grant is current, and change nothing: for a write that must not outlive its lease, in the same
    /// transaction.
    Fence {
        /// The grant's first token.
        token: Token,
        /// The request that was granted.
        request: RequestId,
    },
}

/// A request for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// Names the attempt. Only its retries repeat it.
    pub request: RequestId,
    /// How to hold the key.
    pub mode: Mode,
    /// Queue if the key is taken. Asked again without it, the request gives up its place.
    pub wait: bool,
    /// A larger one goes first.
    pub priority: i32,
    /// How the request differs from a plain one.
    pub way: Way,
    /// Whether its place is its own, and not for all requests of its context.
    pub alone: bool,
    /// Larger than any that this holder sent for the key before.
    pub beat: u64,
    /// The beacon that stands, 0 for none.
    pub beacon: u64,
    /// How long the lease lasts, in ms.
    pub lease_ms: u64,
    /// How long it lasts at first if somebody else's transaction grants it, in ms.
    pub heir_ms: u64,
    /// The user's own name for the context; empty for none.
    pub instance: String,
    /// What the holder says of itself.
    pub info: String,
}

impl Acquire {
    /// A plain request: exclusive, not waiting, without a beacon.
    pub fn new(request: RequestId, beat: u64, lease_ms: u64) -> Self {
        Self {
            request,
            mode: Mode::Exclusive,
            wait: false,
            priority: 0,
            way: Way::Plain,
            alone: false,
            beat,
            beacon: 0,
            lease_ms,
            heir_ms: lease_ms,
            instance: String::new(),
            info: String::new(),
        }
    }
}

/// How a request differs from a plain one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Way {
    /// It does not.
    #[default]
    Plain,
    /// Whoever holds the key is robbed.
    Steal,
    /// The shared grant with this first token is given for an exclusive one, ahead of everybody who queues.
    Upgrade(Token),
    /// A grant goes over from another incarnation, or from an earlier request of this one.
    Resume {
        /// Who held it.
        from: Incarnation,
        /// Its first token.
        token: Token,
        /// By which request it was granted: a lease is taken over once.
        request: RequestId,
    },
}

/// The operations of one transaction, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch(pub Vec<Operation>);

impl Batch {
    /// The keys that the transaction touches, each once.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for operation in &self.0 {
            operation.key.join(&mut keys);
            if let Action::AcquireAll(asks) = &operation.action {
                asks.iter().for_each(|(key, _)| key.join(&mut keys));
            }
        }
        keys
    }
}

/// What a transaction answers: one answer an operation, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// Which store answered.
    pub store: StoreId,
    /// Its answers.
    pub answers: Vec<Answer>,
}

/// What one operation did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// To who asked.
    pub outcome: Outcome,
    /// Who was granted by it.
    pub promoted: Vec<Promotion>,
    /// Whose grants were stolen by it, with their first tokens.
    pub robbed: Vec<(Incarnation, Token)>,
}

/// The result of one operation for who asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// `Acquire`: the lease is held.
    Granted(Granted),
    /// `AcquireAll`: all leases are held, in the order of the asking.
    GrantedAll(Vec<Granted>),
    /// `Acquire`: the request has a place in the queue.
    Waiting {
        /// A later grant has a larger token than this one.
        last_token: Token,
        /// Who stands before it: the grants, then the queue.
        ahead: Vec<Sighting>,
    },
    /// `Acquire` without `wait`: the key is taken.
    Busy {
        /// Who stands before it.
        ahead: Vec<Sighting>,
    },
    /// `AcquireAll`: some of the keys are taken; who stands before each, in the order of the asking.
    BusyAll(Vec<Vec<Sighting>>),
    /// `Acquire` that upgrades: somebody else upgrades already.
    UpgradeConflict,
    /// `Acquire`: a later request of the same holder has the place.
    Superseded,
    /// `Acquire`: the key has used up its tokens.
    Exhausted,
    /// `Renew`: the lease goes on.
    Renewed {
        /// The lease that was written down, in ms.
        lease_ms: u64,
        /// Whether others queue for it.
        contended: bool,
        /// More tokens, if it asked for them.
        refill: Option<TokenBlock>,
    },
    /// `Downgrade`: others may share the key.
    Downgraded,
    /// `Release`: the lease was given back.
    Released,
    /// `Fence`: the grant is current.
    Current,
    /// The grant that was named is no longer there, and nothing changed.
    NotCurrent {
        /// The last token of the record; smaller than the holder's own if the store was cleared.
        last_token: Token,
        /// Whether the grant was stolen.
        stolen: bool,
    },
    /// `Withdraw`: the request has neither place nor grant.
    Withdrawn,
    /// `Evict`: the entry is gone.
    Evicted,
    /// `Evict`: the entry moved since it was seen, and nothing changed.
    Moved,
    /// `Inspect`: the state of the record.
    Status {
        /// The last token that was reserved.
        last_token: Token,
        /// Who holds the key.
        grants: Vec<Grant>,
        /// Who waits.
        queue: Vec<Waiter>,
    },
    /// The record cannot be read, and was left as it is.
    Unreadable(Unreadable),
}

/// A lease as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// Its tokens.
    pub block: TokenBlock,
    /// The lease that was written down, in ms. Nothing else may be counted with.
    pub lease_ms: u64,
    /// The last token of the exclusive grant before it.
    pub previous: Token,
    /// Whether others queue for it.
    pub contended: bool,
}

/// A waiter that was granted: its holder is told by signal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Promotion {
    /// The key.
    pub key: Key,
    /// Who was granted.
    pub holder: Incarnation,
    /// Its request.
    pub request: RequestId,
    /// Its tokens.
    pub block: TokenBlock,
    /// How long its first lease lasts, in ms.
    pub lease_ms: u64,
    /// The last token of the exclusive grant before it.
    pub previous: Token,
}

/// What a store's clock is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreClock {
    /// One monotonic clock for everybody who uses the store: what ran out by it is over at once.
    Trusted,
    /// Wall clocks, or several clocks: a holder is judged by watching it stand still.
    Observed,
}

/// The time by which operations are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreNow {
    /// For tokens and for display.
    pub wall: Wall,
    /// For judging leases, where the store's clock is trusted.
    pub trusted: Option<Monotonic>,
}

impl StoreNow {
    /// The time of a store with this kind of clock, read by who runs the transaction.
    pub fn new(clock: StoreClock, now: Now) -> Self {
        let trusted = (clock == StoreClock::Trusted).then_some(now.monotonic);
        Self { wall: now.wall, trusted }
    }

    /// When something that lasts `span_ms` from now is over by a trusted clock.
    pub(super) fn deadline(self, span_ms: u64) -> Option<Monotonic> {
        Some(self.trusted?.plus(span_ms))
    }

    /// Whether a deadline has passed by a trusted clock.
    pub(super) fn is_over(self, deadline: Option<Monotonic>) -> bool {
        matches!((self.trusted, deadline), (Some(now), Some(deadline)) if deadline <= now)
    }
}
