//! Operations: what a context asks of the store, and what the store answers.

use alloc::{string::String, vec::Vec};

use super::{
    Body, Grant, Message, Sighting, Waiter,
    codec::Unreadable,
    id::{RequestId, SessionId, StoreId},
    key::Key,
    mode::Mode,
    session::{Beat, Session},
    time::{Monotonic, Now, Wall},
    token::{Token, TokenBlock},
};

/// One thing asked of one key's record. A store runs [`Batch::apply`] and decides nothing itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The key it is about; of several, the first.
    pub key: Key,
    /// What is asked.
    pub action: Action,
}

/// What is asked of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Get the lease, or a place in the queue; asked again, it adopts the grant.
    Acquire(Acquire),
    /// Get the leases of several keys at once, or none of them. Nobody waits.
    AcquireAll(Vec<(Key, Acquire)>),
    /// Ask whether a grant is current.
    Verify {
        /// The grant's first token.
        token: Token,
        /// The request that was granted.
        request: RequestId,
        /// Reserve more tokens too.
        refill: bool,
    },
    /// Let others share the key from now on.
    Downgrade {
        /// The grant's first token.
        token: Token,
        /// The request that it was granted to.
        request: RequestId,
    },
    /// Move a grant to a session of its own, which nobody beats: it lives for one lease, unless somebody
    /// [resumes](Way::Resume) it.
    Detach {
        /// The grant's first token.
        token: Token,
        /// The request that was granted: the same context may have resumed the grant by another one since.
        request: RequestId,
        /// The id of that session.
        to: SessionId,
        /// How long it lives, in ms.
        lease_ms: u64,
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
    /// End a session that is dead or silent, unless it was heard since, and remove what it left here.
    End {
        /// Whose session.
        target: SessionId,
        /// Its beat when it was seen.
        beat: u64,
    },
    /// See how far the asker's own requests got, for all of them at once.
    Look,
    /// Look, and change nothing.
    Inspect,
    /// Ask whether a grant is current, and change nothing: for a write that must not outlive its lease, in the same
    /// transaction.
    Fence {
        /// The grant's first token.
        token: Token,
        /// The request that was granted.
        request: RequestId,
        /// The request that is upgrading it: if that was granted meanwhile, its grant counts as well.
        upgrade: Option<RequestId>,
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
    /// Which transaction carries it: a later one has a larger number. An attempt below the
    /// [floor](Session::floor) of its session comes late, and is refused.
    pub attempt: u64,
    /// What the holder says of itself.
    pub info: String,
}

impl Acquire {
    /// A plain request: exclusive, not waiting.
    pub fn new(request: RequestId, attempt: u64) -> Self {
        Self {
            request,
            mode: Mode::Exclusive,
            wait: false,
            priority: 0,
            way: Way::Plain,
            alone: false,
            attempt,
            info: String::new(),
        }
    }

    /// The shared grant that the request gives for an exclusive one.
    pub(super) fn upgrades(&self) -> Option<Token> {
        match self.way {
            Way::Upgrade { token, .. } => Some(token),
            Way::Plain | Way::Steal | Way::Resume { .. } => None,
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
    /// A shared grant is given for an exclusive one, ahead of everybody who queues.
    Upgrade {
        /// Its first token.
        token: Token,
        /// The request that it was granted to.
        request: RequestId,
    },
    /// A detached grant goes over to this session.
    Resume {
        /// The session that it was [moved to](Action::Detach).
        from: SessionId,
        /// The session that held it before: the move may not be written yet.
        origin: SessionId,
        /// Its first token.
        token: Token,
        /// By which request it was granted: a lease is taken over once.
        request: RequestId,
    },
}

impl Way {
    /// The sessions that may have what a request takes over.
    pub(super) fn givers(self) -> Vec<SessionId> {
        match self {
            Self::Resume { from, origin, .. } => Vec::from([from, origin]),
            Self::Plain | Self::Steal | Self::Upgrade { .. } => Vec::new(),
        }
    }
}

/// What one transaction does: for one session, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Who asks.
    pub session: SessionId,
    /// What becomes of its row.
    pub step: SessionStep,
    /// Sessions that end.
    pub ends: Vec<Ending>,
    /// The operations, in order.
    pub operations: Vec<Operation>,
    /// Keys whose records are forgotten if nobody uses them.
    pub forgets: Vec<Key>,
    /// How long the sender is sure that its session exists, in ms from sending. Until then a store may [go by the records
    /// alone](Self::apply_alone). 0: it is not sure. A store that delays or reorders the batches of another one sets it to 0.
    pub sure_ms: u64,
}

/// What becomes of a session's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionStep {
    /// It is read only.
    #[default]
    Stay,
    /// It is inserted, before the operations.
    Open {
        /// Its first heartbeat.
        beat: Beat,
        /// The user's own name for the context; empty for none.
        instance: String,
    },
    /// It is written, if it is there, before the operations.
    Beat(Beat),
    /// It is deleted, after the operations.
    Close,
}

/// A session that is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ending {
    /// Which one.
    pub session: SessionId,
    /// Only if this is still its beat; `None` for the asker's own earlier ids.
    pub beat: Option<u64>,
}

impl Batch {
    /// Operations for a session whose row only matters if it is gone.
    pub fn new(session: SessionId, operations: Vec<Operation>) -> Self {
        Self { session, step: SessionStep::Stay, ends: Vec::new(), operations, forgets: Vec::new(), sure_ms: 0 }
    }

    /// Whether its sender is still [sure](Self::sure_ms) of its session; both times are read from the same clocks. Both clocks must say
    /// so: a monotonic one may stand still while the machine sleeps.
    // Protocol: docs/protocol.md#s17.
    pub fn is_sure(&self, sent: Now, now: Now) -> bool {
        let by_wall_ms = now.wall.as_ms().saturating_sub(sent.wall.as_ms());
        now.monotonic.since(sent.monotonic).max(by_wall_ms) < self.sure_ms
    }

    /// Whether it only acquires, releases and withdraws, so that its session's row does not matter, as long as that is there.
    // Protocol: docs/protocol.md#s2, #s17.
    pub(in super::super) fn rests_on_records(&self) -> bool {
        let rests = |operation: &Operation| match &operation.action {
            Action::Acquire(ask) => ask.way == Way::Plain,
            Action::Release { .. } | Action::Withdraw { .. } => true,
            _ => false,
        };
        self.step == SessionStep::Stay
            && self.ends.is_empty()
            && self.forgets.is_empty()
            && self.operations.iter().all(rests)
    }

    /// Whether it only asks for the states of records, and writes nothing, whatever stands in the store.
    pub fn only_looks(&self) -> bool {
        let Self { step, ends, forgets, operations, .. } = self;
        let changes_nothing = *step == SessionStep::Stay && ends.is_empty() && forgets.is_empty();
        changes_nothing && operations.iter().all(|operation| operation.action == Action::Inspect)
    }

    /// The heartbeat that it carries, if any.
    pub fn beat(&self) -> Option<&Beat> {
        match &self.step {
            SessionStep::Open { beat, .. } | SessionStep::Beat(beat) => Some(beat),
            SessionStep::Stay | SessionStep::Close => None,
        }
    }

    /// How many other sessions a store should load beside those that [`Records::sessions_of`](super::Records::sessions_of) names: the
    /// next ones after the batch's own, in the order of their ids, and after the last one the first. Whoever opens a session looks
    /// whether they are alive, so that the rows of the dead do not stay for ever. Mostly it is none.
    pub const fn peers(&self) -> usize {
        if matches!(self.step, SessionStep::Open { .. }) { super::sessions::PEERS } else { 0 }
    }

    /// The keys whose records the transaction touches, each once, in the order in which they are locked.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for operation in &self.operations {
            operation.key.join(&mut keys);
            if let Action::AcquireAll(asks) = &operation.action {
                asks.iter().for_each(|(key, _)| key.join(&mut keys));
            }
        }
        self.forgets.iter().for_each(|key| key.join(&mut keys));
        keys
    }
}

/// What a transaction answers: one answer an operation, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// Which store answered.
    pub store: StoreId,
    /// The grants that were stolen from the asking session so far, key and first token; `None` if it has no row.
    pub robbed: Option<Vec<(Key, Token)>>,
    /// To a session that opens: some of the others.
    pub peers: Vec<Peer>,
    /// Its answers.
    pub answers: Vec<Answer>,
}

impl Reply {
    /// The waiters to whom the transaction granted a lease. A store may notify them, and then [says so](Promotion::told).
    pub fn promotions_mut(&mut self) -> impl Iterator<Item = &mut Promotion> {
        self.answers.iter_mut().flat_map(|answer| &mut answer.promoted)
    }
}

/// Another session, as one that opened saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Which one.
    pub session: SessionId,
    /// Its beat.
    pub beat: u64,
    /// How long it may be silent, in ms.
    pub lease_ms: u64,
}

/// What one operation did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// To who asked.
    pub outcome: Outcome,
    /// Who was granted by it.
    pub promoted: Vec<Promotion>,
    /// Whose grants were stolen by it, with their first tokens.
    pub robbed: Vec<(SessionId, Token)>,
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
        /// How many grants and places stand before it.
        position: usize,
        /// The nearest of them: the grants, then the last of the queue before it.
        ahead: Vec<Sighting>,
    },
    /// `Look`: the requests that have a place, the foremost first, and what that one has to wait for. Grants are
    /// [promotions](Answer::promoted).
    Looked {
        /// The requests.
        requests: Vec<RequestId>,
        /// A later grant has a larger token than this one.
        last_token: Token,
        /// Who stands right before the foremost.
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
    UpgradeConflict {
        /// Who stands before it.
        ahead: Vec<Sighting>,
    },
    /// `Acquire`: a later request of the same holder has the place.
    Superseded,
    /// `Acquire`: the attempt is older than what its session last said. What an earlier one of the request was granted stands.
    TooLate,
    /// `Acquire`: the session has ended.
    NoSession,
    /// `Acquire`: the key has used up its tokens.
    Exhausted,
    /// `Downgrade`: others may share the key.
    Downgraded,
    /// `Release`: the lease was given back.
    Released,
    /// `Detach`: the grant has a session of its own.
    Detached,
    /// `Verify`, `Fence`: the grant is current.
    Current {
        /// Whether others queue for it.
        contended: bool,
        /// More tokens, if it asked for them.
        refill: Option<TokenBlock>,
    },
    /// The grant that was named is no longer there, and nothing changed.
    NotCurrent {
        /// The last token of the record; smaller than the holder's own if the store was cleared.
        last_token: Token,
        /// Whether the grant was stolen.
        stolen: bool,
    },
    /// `Withdraw`: the request has neither place nor grant.
    Withdrawn,
    /// `End`: the session has ended.
    Ended,
    /// `End`: the session was heard since it was seen, and nothing changed.
    Moved,
    /// `Inspect`: the state of the record.
    Status {
        /// The last token that was reserved.
        last_token: Token,
        /// Who holds the key.
        grants: Vec<Grant>,
        /// Who waits.
        queue: Vec<Waiter>,
        /// The sessions of the holders and the waiters, each once, sorted by id.
        sessions: Vec<(SessionId, Session)>,
    },
    /// The record cannot be read, and was left as it is.
    Unreadable(Unreadable),
}

/// A lease as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// Its tokens.
    pub block: TokenBlock,
    /// The last token of the exclusive grant before it.
    pub previous: Token,
    /// Whether others queue for it.
    pub contended: bool,
}

/// A waiter that was granted the lease. The store, or the context that granted it, sends a message to the waiter's session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Promotion {
    /// The key.
    pub key: Key,
    /// Who was granted.
    pub holder: SessionId,
    /// Its request.
    pub request: RequestId,
    /// Its tokens.
    pub block: TokenBlock,
    /// The last token of the exclusive grant before it.
    pub previous: Token,
    /// Whether others queue behind it.
    pub contended: bool,
    /// The store sent the [message](Self::message) with the transaction, and the recipient listens. Applying a batch leaves this false.
    pub told: bool,
}

impl Promotion {
    /// The message that tells the new holder of the grant.
    pub fn message(&self, store: StoreId) -> Message {
        let Self { ref key, holder, request, block, previous, contended, .. } = *self;
        Message { store, key: key.clone(), body: Body::Granted { holder, request, block, previous, contended } }
    }
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
    // Protocol: docs/protocol.md#l.
    pub fn new(clock: StoreClock, now: Now) -> Self {
        let trusted = (clock == StoreClock::Trusted).then_some(now.monotonic);
        Self { wall: now.wall, trusted }
    }

    /// When something that lasts `span_ms` from now is over by a trusted clock.
    pub(crate) fn deadline(self, span_ms: u64) -> Option<Monotonic> {
        Some(self.trusted?.plus(span_ms))
    }

    /// Whether a deadline has passed by a trusted clock.
    pub(super) fn is_over(self, deadline: Option<Monotonic>) -> bool {
        matches!((self.trusted, deadline), (Some(now), Some(deadline)) if deadline <= now)
    }
}
