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

/// One operation on the record of one key. A store runs [`Batch::apply`] and decides nothing itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The key; of several keys, the first.
    pub key: Key,
    /// What to do.
    pub action: Action,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Acquire the lease, or an entry in the queue. If this is repeated after the grant, it returns that grant.
    Acquire(Acquire),
    /// Acquire the leases of several keys at once, or none of them. This never waits.
    AcquireAll(Vec<(Key, Acquire)>),
    /// Check whether a grant is current.
    Verify {
        /// The grant's first token.
        token: Token,
        /// The request that was granted.
        request: RequestId,
        /// Whether to reserve more tokens, too.
        refill: bool,
    },
    /// Let others share the key from now on.
    Downgrade {
        /// The grant's first token.
        token: Token,
        /// The request that it was granted to.
        request: RequestId,
    },
    /// Move a grant to a separate session, which nobody renews: it lives for one lease, unless somebody [resumes](Way::Resume) it.
    Detach {
        /// The grant's first token.
        token: Token,
        /// The request that was granted. The same context may have resumed the grant by another request since.
        request: RequestId,
        /// The id of the separate session.
        to: SessionId,
        /// How long it lives, in ms.
        lease_ms: u64,
    },
    /// Release the lease, and remove the request's queue entry, too.
    Release {
        /// The grant's first token.
        token: Token,
        /// The request that was granted.
        request: RequestId,
    },
    /// Give up a request: remove its queue entry or its grant.
    Withdraw {
        /// The request.
        request: RequestId,
    },
    /// End a session that is dead or silent, unless it has sent a heartbeat since, and remove its entries from this record.
    End {
        /// The session.
        target: SessionId,
        /// Its beat when it was found dead or silent.
        beat: u64,
    },
    /// Read the state of all requests of this session for the key.
    Look,
    /// Read the state of the record, and change nothing.
    Inspect,
    /// Check whether a grant is current, and change nothing: for a write in the same transaction that must not outlive its lease.
    Fence {
        /// The grant's first token.
        token: Token,
        /// The request that was granted.
        request: RequestId,
        /// The request that is upgrading the grant. If it was granted meanwhile, its grant counts, too.
        upgrade: Option<RequestId>,
        /// How the guard held the key when the fence began. If exclusively, the grant must still be exclusive.
        mode: Mode,
    },
}

/// A request for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The id of the request. Only retries repeat it.
    pub request: RequestId,
    /// How to hold the key.
    pub mode: Mode,
    /// Whether to queue if the key is taken. A repetition that does not wait gives up the request's queue entry.
    pub wait: bool,
    /// Requests with a larger priority go first.
    pub priority: i32,
    /// How the request differs from a plain one.
    pub way: Way,
    /// Whether the request gets a queue entry of its own, and not the one for all requests of its context.
    pub alone: bool,
    /// The number of the transaction that carries this attempt, which grows with each transaction. An attempt below the
    /// [floor](Session::floor) of its session is too late, and is refused.
    pub attempt: u64,
    /// The holder's description of itself.
    pub info: String,
}

impl Acquire {
    /// A plain request: exclusive, without waiting.
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

    /// The shared grant that the request upgrades.
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
    /// It is a plain request.
    #[default]
    Plain,
    /// It takes the lease from its holders.
    Steal,
    /// It turns a shared grant into an exclusive one, ahead of everybody in the queue.
    Upgrade {
        /// Its first token.
        token: Token,
        /// The request that it was granted to.
        request: RequestId,
    },
    /// It moves a detached grant to this session.
    Resume {
        /// The session that it was [moved to](Action::Detach).
        from: SessionId,
        /// The session that held it before, because the move may not have been written yet.
        origin: SessionId,
        /// Its first token.
        token: Token,
        /// The request by which it was granted, because a lease is resumed only once.
        request: RequestId,
    },
}

impl Way {
    /// The sessions that may have the grant that a request takes over.
    pub(super) fn givers(self) -> Vec<SessionId> {
        match self {
            Self::Resume { from, origin, .. } => Vec::from([from, origin]),
            Self::Plain | Self::Steal | Self::Upgrade { .. } => Vec::new(),
        }
    }
}

/// What one transaction does for one session, in the order of these fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The session that sends the batch.
    pub session: SessionId,
    /// What happens to the session's row.
    pub step: SessionStep,
    /// Sessions to end.
    pub ends: Vec<Ending>,
    /// The operations, in order.
    pub operations: Vec<Operation>,
    /// Keys whose records are deleted if nobody uses them.
    pub forgets: Vec<Key>,
    /// How long, in ms from sending, the sender is sure that its session exists; 0 if it is not sure. Until then a store may [use the
    /// records alone](Self::apply_alone). A store that wraps another one, and delays or reorders its batches, sets this to 0.
    pub sure_ms: u64,
}

/// What happens to a session's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionStep {
    /// It is only read.
    #[default]
    Stay,
    /// It is inserted, before the operations.
    Open {
        /// Its first heartbeat.
        beat: Beat,
        /// The context's instance name; empty if it has none.
        instance: String,
    },
    /// It is written before the operations, if it exists.
    Beat(Beat),
    /// It is deleted, after the operations.
    Close,
}

/// A session to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ending {
    /// The session.
    pub session: SessionId,
    /// It ends only if this is still its beat. `None` for earlier sessions of the sender itself.
    pub beat: Option<u64>,
}

impl Batch {
    /// Operations of a session whose row is only read, to see whether it is gone.
    pub fn new(session: SessionId, operations: Vec<Operation>) -> Self {
        Self { session, step: SessionStep::Stay, ends: Vec::new(), operations, forgets: Vec::new(), sure_ms: 0 }
    }

    /// Whether the sender is still [sure](Self::sure_ms) of its session. Both times must come from the same clocks. Both clocks must agree,
    /// because a monotonic one may stand still while the machine sleeps.
    // Protocol: docs/protocol.md#s17.
    pub fn is_sure(&self, sent: Now, now: Now) -> bool {
        let by_wall_ms = now.wall.as_ms().saturating_sub(sent.wall.as_ms());
        now.monotonic.since(sent.monotonic).max(by_wall_ms) < self.sure_ms
    }

    /// Whether the batch only acquires, releases and withdraws, so that the content of its session's row does not matter.
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

    /// Whether the batch only reads the states of records, and writes nothing, whatever is in the store.
    pub fn only_looks(&self) -> bool {
        let Self { step, ends, forgets, operations, .. } = self;
        let changes_nothing = *step == SessionStep::Stay && ends.is_empty() && forgets.is_empty();
        changes_nothing && operations.iter().all(|operation| operation.action == Action::Inspect)
    }

    /// The heartbeat in the batch, if there is one.
    pub fn beat(&self) -> Option<&Beat> {
        match &self.step {
            SessionStep::Open { beat, .. } | SessionStep::Beat(beat) => Some(beat),
            SessionStep::Stay | SessionStep::Close => None,
        }
    }

    /// How many other sessions a store should load beside those that [`Records::sessions_of`](super::Records::sessions_of) names: the
    /// next ones after the batch's own, in the order of their ids, starting over with the smallest id after the largest. A context that
    /// opens a session checks whether they are alive, so that the rows of dead sessions do not stay for ever. For all other batches this
    /// is 0.
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

/// The answer of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The id of the store that answered.
    pub store: StoreId,
    /// The grants that were stolen from the session so far, by key and first token; `None` if the session has no row.
    pub robbed: Option<Vec<(Key, Token)>>,
    /// For a session that opens: some of the other sessions.
    pub peers: Vec<Peer>,
    /// One answer for each operation, in order.
    pub answers: Vec<Answer>,
}

impl Reply {
    /// The waiters to whom the transaction granted a lease. A store may notify them, and then [says so](Promotion::told).
    pub fn promotions_mut(&mut self) -> impl Iterator<Item = &mut Promotion> {
        self.answers.iter_mut().flat_map(|answer| &mut answer.promoted)
    }
}

/// Another session, as a session that opens sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The session.
    pub session: SessionId,
    /// The session's beat.
    pub beat: u64,
    /// How long it may be silent, in ms.
    pub lease_ms: u64,
}

/// What one operation did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The result for the sender.
    pub outcome: Outcome,
    /// The waiters that were granted the lease because of it.
    pub promoted: Vec<Promotion>,
    /// The sessions from which it stole grants, with the first tokens of these grants.
    pub robbed: Vec<(SessionId, Token)>,
}

/// The result of one operation for its sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// `Acquire`: the lease is held.
    Granted(Granted),
    /// `AcquireAll`: all leases are held, in the order of the request.
    GrantedAll(Vec<Granted>),
    /// `Acquire`: the request is in the queue.
    Waiting {
        /// A token: every later grant has a larger one.
        last_token: Token,
        /// How many grants and queue entries are ahead of it.
        position: usize,
        /// The nearest of them: the grants, and then the last queue entries ahead of it.
        ahead: Vec<Sighting>,
    },
    /// `Look`: the session's requests that are in the queue, in order, and what the first one waits for. Those that were granted are among
    /// the [promotions](Answer::promoted).
    Looked {
        /// The requests.
        requests: Vec<RequestId>,
        /// A token: every later grant has a larger one.
        last_token: Token,
        /// The entries right ahead of the first request.
        ahead: Vec<Sighting>,
    },
    /// `Acquire` without `wait`: the key is taken.
    Busy {
        /// The entries ahead of it.
        ahead: Vec<Sighting>,
    },
    /// `AcquireAll`: some of the keys are taken. For each key, in the order of the request, the entries ahead of it.
    BusyAll(Vec<Vec<Sighting>>),
    /// `Acquire` that upgrades: another holder is already upgrading.
    UpgradeConflict {
        /// The entries ahead of it.
        ahead: Vec<Sighting>,
    },
    /// `Acquire`: a later request of the same session has the queue entry.
    Superseded,
    /// `Acquire`: the attempt is below the session's floor. If an earlier attempt was granted, that grant stays.
    TooLate,
    /// `Acquire`: the session has ended.
    NoSession,
    /// `Acquire`: the key has used up its tokens.
    Exhausted,
    /// `Downgrade`: others may share the key. `Fence`: the grant was exclusive when the fence began, and no longer
    /// is.
    Downgraded,
    /// `Release`: the lease was released.
    Released,
    /// `Detach`: the grant was moved to its separate session.
    Detached,
    /// `Verify`, `Fence`: the grant is current.
    Current {
        /// Whether others wait for it.
        contended: bool,
        /// More tokens, if the operation asked for them.
        refill: Option<TokenBlock>,
    },
    /// The named grant no longer exists, and nothing changed.
    NotCurrent {
        /// The last token of the record; smaller than the holder's own if the store was cleared.
        last_token: Token,
        /// Whether the grant was stolen.
        stolen: bool,
    },
    /// `Withdraw`: the request has neither a queue entry nor a grant.
    Withdrawn,
    /// `End`: the session has ended.
    Ended,
    /// `End`: the session has sent a heartbeat since, and nothing changed.
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
    /// `AcquireAll`: the record of the key at this index cannot be read, and all were left as they are.
    UnreadableAt(usize, Unreadable),
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// Its tokens.
    pub block: TokenBlock,
    /// The last token of the exclusive grant before it.
    pub previous: Token,
    /// Whether others wait for it.
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
    /// Whether others wait behind it.
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

/// How far a store's clock can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreClock {
    /// All contexts that use the store read one monotonic clock. A lease that has expired by this clock is over at once.
    Trusted,
    /// The contexts have wall clocks, or several clocks. A holder counts as silent only if another context sees its heartbeats stop.
    Observed,
}

/// The time at which operations are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreNow {
    /// For tokens and for display.
    pub wall: Wall,
    /// For judging leases, if the store's clock is trusted.
    pub trusted: Option<Monotonic>,
}

impl StoreNow {
    /// The time for a store with this kind of clock. Whoever runs the transaction reads `now`.
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
