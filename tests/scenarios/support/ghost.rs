//! What a key's record went through, seen from outside: every commit is held against the one before.

use std::collections::BTreeSet;

use leasehold::{
    Mode, Token,
    machine::{
        Acquire, Action, BLOCK, Batch, Beat, Grant, Key, Now, Operation, Record, Records, RequestId, SessionId,
        SessionStep, StoreClock, StoreId, StoreNow, TokenBlock, Waiter, Way,
    },
};

use leasehold_invariants::{check, head_waits};

/// The memory of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ghost {
    /// As the last commit left it; an idle one if the store has none.
    record: Record,
    /// The first tokens of the newest grant, and of the newest exclusive one.
    newest: u64,
    newest_exclusive: u64,
    high: u64,
    /// Every range of tokens that was ever reserved, in order.
    ranges: Vec<Range>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    first: u64,
    last: u64,
    grant: u64,
}

/// A transaction that was applied.
pub(crate) struct Commit<'a> {
    pub(crate) batch: &'a Batch,
    /// Who stood at its keys before it and had no row then.
    pub(crate) gone: &'a BTreeSet<SessionId>,
    /// Whether a session has a row after it.
    pub(crate) is_there: &'a dyn Fn(SessionId) -> bool,
    /// The store's clock.
    pub(crate) wall_ms: u64,
}

/// How a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    ByItsHolder,
    Stolen,
    /// It became an exclusive one.
    Upgraded,
    /// Its session had ended before, or ended by this very transaction.
    Lapsed,
}

impl Ghost {
    /// The grant that a guard's token is of.
    pub(crate) fn grant_of(&self, token: u64) -> Option<u64> {
        let at = self.ranges.partition_point(|range| range.last < token);
        self.ranges.get(at).filter(|range| range.first <= token).map(|range| range.grant)
    }

    /// Notes tokens that an answer told of: what was granted by one operation may be gone after the next.
    pub(crate) fn reserve(&mut self, block: TokenBlock) {
        let (first, last) = (block.first.as_u64(), block.last.as_u64());
        let at = self.ranges.partition_point(|range| range.first < first);
        if self.ranges.get(at).is_none_or(|range| range.first > first) {
            self.ranges.insert(at, Range { first, last, grant: first });
        }
    }

    /// The grants of this session, as the last commit left them.
    pub(crate) fn held_by(&self, holder: SessionId) -> impl Iterator<Item = u64> {
        self.record.grants.iter().filter(move |grant| grant.holder == holder).map(first)
    }

    /// Whether this grant stood after the last commit.
    pub(crate) fn has(&self, token: u64) -> bool {
        self.record.grants.iter().any(|grant| first(grant) == token)
    }

    /// Forgets a commit that was lost. What was reserved stays reserved: no token comes twice.
    pub(crate) fn roll_back(&mut self, before: Self) {
        let Self { record, newest, newest_exclusive, .. } = before;
        *self = Self { record, newest, newest_exclusive, ..std::mem::take(self) };
    }

    /// A write commits under this grant: no conflicting one may have come after it.
    pub(crate) fn write(&self, grant: u64, mode: Mode) -> Result<(), String> {
        let newer = if mode == Mode::Exclusive { self.newest } else { self.newest_exclusive };
        if newer > grant {
            Err(format!("a {mode:?} write under {grant} commits after the grant of {newer}"))
        } else {
            Ok(())
        }
    }

    /// Looks at what a commit left. What is wrong with it, and which grants it ended.
    pub(crate) fn commit(
        &mut self,
        key: &Key,
        record: &Record,
        commit: &Commit<'_>,
        ended: &mut Vec<(u64, End)>,
    ) -> Result<(), String> {
        if self.record == *record {
            return Ok(());
        }
        check(record).map_err(|unsound| format!("{unsound}: {record:?}"))?;
        if !head_waits(record, commit.wall_ms) {
            return Err(format!("the head of the queue is grantable: {record:?}"));
        }
        let before = std::mem::replace(&mut self.record, record.clone());
        for old in &before.grants {
            if !self.has(first(old)) {
                let end = how_it_ended(old, key, (&before, record), commit);
                let end = end.ok_or_else(|| format!("{old:?} went without a reason"))?;
                ended.push((first(old), end));
            }
        }
        for grant in &record.grants {
            match before.grants.iter().find(|old| first(old) == first(grant)) {
                Some(old) => self.see_again(old, grant, key, commit)?,
                None => self.see_new(grant, commit)?,
            }
        }
        self.high = self.high.max(record.last_token.as_u64());
        Ok(())
    }

    fn see_new(&mut self, grant: &Grant, commit: &Commit<'_>) -> Result<(), String> {
        let token = first(grant);
        if token <= self.high {
            return Err(format!("{token} was granted after {}", self.high));
        }
        if commit.gone.contains(&grant.holder) {
            return Err(format!("{token} was granted to {:04x}, which is gone", short(grant.holder)));
        }
        self.newest = token;
        if grant.mode == Mode::Exclusive {
            self.newest_exclusive = token;
        }
        self.reserve(grant.block);
        Ok(())
    }

    fn see_again(&mut self, old: &Grant, grant: &Grant, key: &Key, commit: &Commit<'_>) -> Result<(), String> {
        let same = (old.block, old.request, old.mode) == (grant.block, grant.request, grant.mode);
        if old.holder != grant.holder && !is_moved_by(old, grant, key, commit.batch) {
            return Err(format!("{old:?} changed hands: {grant:?}"));
        }
        if !same && ![old.holder, grant.holder].contains(&commit.batch.session) {
            return Err(format!("{old:?} was changed by another: {grant:?}"));
        }
        let (last, token) = (grant.block.last.as_u64(), first(grant));
        if last > old.block.last.as_u64() {
            self.ranges.push(Range { first: last + 1 - BLOCK, last, grant: token });
        }
        Ok(())
    }
}

/// The last two bytes tell sessions apart in a trace, and the last one tells the context.
pub(crate) fn short(session: SessionId) -> u128 {
    session.0 & 0xffff
}

fn first(grant: &Grant) -> u64 {
    grant.block.first.as_u64()
}

/// Who may take a grant out of the record: its holder, a thief, an upgrade; or its session has ended.
fn how_it_ended(old: &Grant, key: &Key, (before, record): (&Record, &Record), commit: &Commit<'_>) -> Option<End> {
    let own = commit.batch.session == old.holder;
    // A transaction may upgrade the grant by one operation, and withdraw the upgrade by the next. The release of the lease follows: in the
    // same transaction, or in the next one if there was no room for it.
    let upgrades = |request| {
        let is_it = |waiter: &Waiter| (waiter.holder, waiter.request) == (old.holder, request);
        before.queue.iter().any(|waiter| is_it(waiter) && waiter.upgrades == Some(old.block.first))
    };
    let mut ends = commit.batch.operations.iter().filter_map(|operation| match &operation.action {
        // It gives up what an earlier attempt got.
        Action::AcquireAll(asks) => {
            let named = own && asks.iter().any(|(_, ask)| ask.request == old.request);
            named.then_some(End::ByItsHolder)
        }
        _ if operation.key != *key => None,
        Action::Release { token, request } => {
            let named = *token == old.block.first || *request == old.request;
            (own && named).then_some(End::ByItsHolder)
        }
        Action::Withdraw { request } => {
            (own && (*request == old.request || upgrades(*request))).then_some(End::ByItsHolder)
        }
        Action::Acquire(ask) => (ask.way == Way::Steal).then_some(End::Stolen),
        _ => None,
    });
    let upgraded = |grant: &Grant| grant.holder == old.holder && grant.mode == Mode::Exclusive;
    (ends.next())
        .or_else(|| record.grants.iter().any(upgraded).then_some(End::Upgraded))
        .or_else(|| (commit.gone.contains(&old.holder) || !(commit.is_there)(old.holder)).then_some(End::Lapsed))
}

/// Whether the transaction detaches the grant from its session, or has another one take it over.
fn is_moved_by(old: &Grant, grant: &Grant, key: &Key, batch: &Batch) -> bool {
    batch.operations.iter().any(|operation| match &operation.action {
        _ if operation.key != *key => false,
        Action::Detach { token, request, to, .. } => {
            let named = (*token, *request) == (old.block.first, old.request);
            named && (*to, batch.session) == (grant.holder, old.holder)
        }
        Action::Acquire(ask) => match ask.way {
            Way::Resume { from, origin, token, request } => {
                let named = (token, request) == (old.block.first, old.request);
                named && [from, origin].contains(&old.holder) && grant.holder == batch.session
            }
            Way::Plain | Way::Steal | Way::Upgrade { .. } => false,
        },
        _ => false,
    })
}

/// A context shares a key with one that has fallen silent, and waits to hold it alone. It ends the silent session, so its own lease is
/// upgraded, and gives up in the same transaction. Its transactions are small, so the release comes with the next one.
#[test]
fn a_lease_may_go_with_the_withdrawal_of_its_upgrade() {
    let mut world = Small::new();
    let (ask, upgrade) = (Acquire::new(RequestId(1), 1), RequestId(2));
    let ask = Acquire { mode: Mode::Shared, wait: true, ..ask };
    let token = [SILENT, ME].map(|session| world.granted(session, &ask))[1];
    let way = Way::Upgrade { token, request: ask.request };
    world.commit(ME, vec![Action::Acquire(Acquire { request: upgrade, mode: Mode::Exclusive, way, ..ask })]).unwrap();
    let end = Action::End { target: SILENT, beat: 1 };
    let ended = world.commit(ME, vec![end, Action::Withdraw { request: upgrade }]).unwrap();
    assert_eq!(ended[1], (token.as_u64(), End::ByItsHolder));
}

const ME: SessionId = SessionId(1);
const SILENT: SessionId = SessionId(2);

/// A store with one key, and its ghost.
struct Small {
    records: Records,
    ghost: Ghost,
}

impl Small {
    fn new() -> Self {
        Self { records: Records::whole(StoreId(1)), ghost: Ghost::default() }
    }

    fn granted(&mut self, session: SessionId, ask: &Acquire) -> Token {
        let beat = Beat { beat: 1, lease_ms: 20_000, ..Beat::default() };
        let open = Batch::new(session, Vec::new());
        let open = Batch { step: SessionStep::Open { beat, instance: String::new() }, ..open };
        open.apply(&mut self.records, StoreNow::new(StoreClock::Observed, Now::default()));
        self.commit(session, vec![Action::Acquire(ask.clone())]).unwrap();
        let record = self.records.peek(&key()).unwrap();
        record.grants.iter().find(|grant| grant.holder == session).unwrap().block.first
    }

    fn commit(&mut self, session: SessionId, actions: Vec<Action>) -> Result<Vec<(u64, End)>, String> {
        let operations = actions.into_iter().map(|action| Operation { key: key(), action }).collect();
        let batch = Batch::new(session, operations);
        batch.apply(&mut self.records, StoreNow::new(StoreClock::Observed, Now::default()));
        let (records, mut ended) = (&self.records, Vec::new());
        let is_there = |session| records.session(session).is_some();
        let commit = Commit { batch: &batch, gone: &BTreeSet::new(), is_there: &is_there, wall_ms: 0 };
        let idle = Record::default();
        self.ghost.commit(&key(), records.peek(&key()).unwrap_or(&idle), &commit, &mut ended)?;
        Ok(ended)
    }
}

fn key() -> Key {
    Key::new("k").unwrap()
}
