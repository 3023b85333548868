//! Records and operations, as far as the model looks at them.

use leasehold::machine::{
    Acquire, Action as Act, Batch, Key, Mode, Operation, Outcome, Record, Records, SessionId, StoreClock, Ticket,
    Token, Way,
};

use leasehold_invariants::fit;

use crate::port::{KEYS, number_of, store_now};

/// A grant or a place, as far as the model looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryView {
    /// Of which key.
    pub key: usize,
    /// Whose it is: the number of the context.
    pub who: usize,
    /// And its session.
    pub session: SessionId,
    /// How it is held, or is to be.
    pub mode: Mode,
    /// The priority of a place: a larger one goes first.
    pub priority: i32,
    /// The first token of the grant that it is to take the place of.
    pub upgrades: Option<u64>,
    /// The request that made it.
    pub request: u64,
    /// The first of its tokens; of a grant only.
    pub token: Option<Token>,
    /// Its tokens, first and last; of a grant only.
    pub block: Option<(u64, u64)>,
}

/// A record, as far as the model looks at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordView {
    /// The end of the tokens that were granted.
    pub last_token: u64,
    /// Who holds.
    pub grants: Vec<EntryView>,
    /// Who waits.
    pub queue: Vec<EntryView>,
}

/// What one operation is about, as far as the model looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// It asks for a lease.
    Acquire,
    /// It asks for a lease, and robs whoever has it.
    Steal,
    /// It asks to hold exclusively what the grant with this first token shares.
    Upgrade(u64),
    /// It lets others share the grant with this first token.
    Downgrade(u64),
    /// It asks whether the grant with this first token is current.
    Verify(u64),
    /// It gives back the grant with this first token, and this request's place.
    Release(u64, u64),
    /// It ends this request.
    Withdraw(u64),
    /// It ends a session, unless that was heard since.
    End,
    /// It moves a grant to a session of its own.
    Detach,
    /// It takes over a grant that was left.
    Resume,
    /// It looks.
    Look,
}

/// What an operation asks for at one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Of which key.
    pub key: usize,
    /// How it is to be held.
    pub mode: Mode,
    /// A larger one goes first.
    pub priority: i32,
    /// Whether it takes a place in the queue if the key is taken.
    pub waits: bool,
    /// How else it asks.
    pub deal: Deal,
}

impl EntryView {
    /// Whether it is the same grant or place.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.key, self.session, self.request, self.block) == (other.key, other.session, other.request, other.block)
    }

    /// Whether it is the same grant, whoever holds it.
    pub fn is_of_one(&self, other: &Self) -> bool {
        self.key == other.key && self.block.is_some() && self.block == other.block
    }

    /// Its first token; of a grant only.
    pub fn first(&self) -> Option<u64> {
        self.block.map(|block| block.0)
    }

    /// Whether two grants exclude each other.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.key == other.key && !self.is_of_one(other) && !fit(self.mode, other.mode)
    }
}

/// The numbers of the keys that an operation is about.
pub fn keys_of(operation: &Operation) -> Vec<usize> {
    let keys = Batch::new(SessionId(0), vec![operation.clone()]).keys();
    (0..KEYS.len()).filter(|at| keys.contains(&KEYS[*at])).collect()
}

/// The record of a key, if there is one.
pub fn stored(records: &Records, at: usize) -> Option<&Record> {
    records.peek(&KEYS[at])
}

/// What stands in the store under a key.
pub fn record(records: &Records, at: usize) -> RecordView {
    stored(records, at).map_or_else(RecordView::default, |record| view(record, at))
}

/// Whether an operation for several keys asks for this grant.
pub fn asks_for(session: SessionId, operation: &Operation, grant: &EntryView) -> bool {
    let Act::AcquireAll(asks) = &operation.action else { return false };
    let asks = asks.iter().any(|(at, ask)| *at == KEYS[grant.key] && ask.request.0 == grant.request);
    asks && session == grant.session
}

/// What a batch asks for.
pub fn asks(batch: &Batch) -> impl Iterator<Item = Ask> {
    let ask = |key: &Key, ask: &Acquire, deal| {
        let at = KEYS.iter().position(|known| known == key).unwrap_or_default();
        Ask { key: at, mode: ask.mode, priority: ask.priority, waits: ask.wait, deal }
    };
    batch.operations.iter().flat_map(move |operation| match &operation.action {
        Act::Acquire(one) => vec![ask(&operation.key, one, deal(operation))],
        Act::AcquireAll(all) => all.iter().map(|(key, one)| ask(key, one, deal(operation))).collect(),
        _ => Vec::new(),
    })
}

/// The requests that a batch asks for, or releases, each with its key.
pub fn requests_of(batch: &Batch) -> impl Iterator<Item = (usize, u64)> {
    batch.operations.iter().flat_map(|operation| {
        let requests: Vec<_> = match &operation.action {
            Act::AcquireAll(asks) => asks.iter().map(|(_, ask)| ask.request).collect(),
            Act::Acquire(Acquire { request, .. })
            | Act::Release { request, .. }
            | Act::Withdraw { request }
            | Act::Detach { request, .. } => vec![*request],
            _ => Vec::new(),
        };
        keys_of(operation).into_iter().zip(requests).map(|(key, request)| (key, request.0)).collect::<Vec<_>>()
    })
}

/// What stands in the store under every key.
pub fn all_records(records: &Records) -> impl Iterator<Item = RecordView> {
    (0..KEYS.len()).map(|at| record(records, at))
}

fn view(record: &Record, at: usize) -> RecordView {
    let grants = record.grants.iter().map(|grant| EntryView {
        key: at,
        who: number_of(grant.holder),
        session: grant.holder,
        mode: grant.mode,
        priority: 0,
        upgrades: None,
        request: grant.request.0,
        token: Some(grant.block.first),
        block: Some((grant.block.first.as_u64(), grant.block.last.as_u64())),
    });
    let queue = record.queue.iter().map(|waiter| EntryView {
        key: at,
        who: number_of(waiter.holder),
        session: waiter.holder,
        mode: waiter.mode,
        priority: waiter.priority,
        upgrades: waiter.upgrades.map(Token::as_u64),
        request: waiter.request.0,
        token: None,
        block: None,
    });
    RecordView { last_token: record.last_token.as_u64(), grants: grants.collect(), queue: queue.collect() }
}

/// The grant for which the shipped fence lets an effect with this ticket through.
pub fn passes(records: &Records, ticket: &Ticket) -> Option<EntryView> {
    let reply = ticket.batch.apply(&mut records.clone(), store_now(StoreClock::Observed, 0, 0));
    let passes = reply.answers.iter().all(|answer| matches!(answer.outcome, Outcome::Current { .. }));
    let key = ticket.batch.operations.first().filter(|_| passes)?.key.clone();
    let at = KEYS.iter().position(|known| *known == key)?;
    let block = ticket.grant_in(records, &key)?.block;
    record(records, at).grants.into_iter().find(|grant| grant.token == Some(block.first))
}

/// What an operation is about.
pub fn deal(operation: &Operation) -> Deal {
    match &operation.action {
        Act::Acquire(ask) => match ask.way {
            Way::Steal => Deal::Steal,
            Way::Upgrade { token, .. } => Deal::Upgrade(token.as_u64()),
            Way::Resume { .. } => Deal::Resume,
            Way::Plain => Deal::Acquire,
        },
        Act::AcquireAll(_) => Deal::Acquire,
        Act::Downgrade { token, .. } => Deal::Downgrade(token.as_u64()),
        Act::Verify { token, .. } => Deal::Verify(token.as_u64()),
        Act::Release { token, request } => Deal::Release(token.as_u64(), request.0),
        Act::Withdraw { request } => Deal::Withdraw(request.0),
        Act::End { .. } => Deal::End,
        Act::Detach { .. } => Deal::Detach,
        Act::Look | Act::Inspect | Act::Fence { .. } => Deal::Look,
    }
}
