//! What a key's record went through, seen from outside: every commit is held against the one before.

use std::collections::BTreeMap;

use leasehold::{
    Mode,
    machine::{
        Action, BLOCK, Batch, Entry, Grant, Incarnation, Key, Monotonic, Operation, Record, RequestId, StoreClock,
        TokenBlock, Way,
    },
};

/// The memory of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ghost {
    revision: u64,
    grants: Vec<Seen>,
    /// The first tokens of the newest grant, and of the newest exclusive one.
    newest: u64,
    newest_exclusive: u64,
    high: u64,
    /// Every range of tokens that was ever reserved, in order.
    ranges: Vec<Range>,
}

/// A grant as the last commit left it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    holder: Incarnation,
    request: RequestId,
    first: u64,
    last: u64,
    beat: u64,
    mode: Mode,
    lease_ms: u64,
    beaten_at: Monotonic,
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
    pub(crate) at: Monotonic,
    pub(crate) clock: StoreClock,
    /// Whose tombstones stood when it was applied.
    pub(crate) gone: &'a BTreeMap<Incarnation, Vec<Key>>,
}

/// How a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    ByItsHolder,
    Stolen,
    /// It became an exclusive one.
    Upgraded,
    /// Its holder was taken for dead.
    Evicted,
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

    /// The grants of this holder, as the last commit left them.
    pub(crate) fn held_by(&self, holder: Incarnation) -> impl Iterator<Item = u64> {
        self.grants.iter().filter(move |seen| seen.holder == holder).map(|seen| seen.first)
    }

    /// Forgets a commit that was lost. What was reserved stays reserved: no token comes twice.
    pub(crate) fn roll_back(&mut self, before: Self) {
        let Self { revision, grants, newest, newest_exclusive, .. } = before;
        *self = Self { revision, grants, newest, newest_exclusive, ..std::mem::take(self) };
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
        if std::mem::replace(&mut self.revision, record.revision) == record.revision {
            return Ok(());
        }
        is_sound(record)?;
        let before = std::mem::take(&mut self.grants);
        for seen in &before {
            if !record.grants.iter().any(|grant| grant.block.first.as_u64() == seen.first) {
                let end =
                    seen.ended_by(key, record, commit).ok_or_else(|| format!("{seen:?} went without a reason"))?;
                ended.push((seen.first, end));
            }
        }
        for grant in &record.grants {
            let seen = self.see(grant, &before, commit)?;
            self.grants.push(seen);
        }
        self.high = self.high.max(record.last_token.as_u64());
        Ok(())
    }

    fn see(&mut self, grant: &Grant, before: &[Seen], commit: &Commit<'_>) -> Result<Seen, String> {
        let (first, last) = (grant.block.first.as_u64(), grant.block.last.as_u64());
        let old = before.iter().find(|seen| seen.first == first);
        let beaten_at = old.filter(|old| old.beat == grant.beat).map_or(commit.at, |old| old.beaten_at);
        let Grant { holder, request, mode, beat, lease_ms, .. } = *grant;
        let seen = Seen { holder, request, first, last, beat, mode, lease_ms, beaten_at };
        let Some(old) = old else {
            if first <= self.high {
                return Err(format!("{first} was granted after {}", self.high));
            }
            self.newest = first;
            if mode == Mode::Exclusive {
                self.newest_exclusive = first;
            }
            self.reserve(grant.block);
            return Ok(seen);
        };
        let same = (old.beat, old.last, old.request, old.mode) == (beat, last, request, mode);
        let by_holder = |operation: &Operation| operation.holder == holder;
        if !same && !commit.batch.0.iter().any(by_holder) {
            return Err(format!("{old:?} was changed by another: {grant:?}"));
        }
        if old.holder != holder && !commit.batch.0.iter().any(|operation| old.is_resumed_by(operation)) {
            return Err(format!("{old:?} changed hands: {grant:?}"));
        }
        if last > old.last {
            self.ranges.push(Range { first: last + 1 - BLOCK, last, grant: first });
        }
        Ok(seen)
    }
}

/// What holds of every record at rest.
fn is_sound(record: &Record) -> Result<(), String> {
    let crowded = record.grants.len() > 1 && record.grants.iter().any(|grant| grant.mode == Mode::Exclusive);
    let stuck = record.grants.is_empty() && !record.queue.is_empty();
    if crowded || stuck { Err(format!("the record is unsound: {record:?}")) } else { Ok(()) }
}

impl Seen {
    fn ended_by(&self, key: &Key, record: &Record, commit: &Commit<'_>) -> Option<End> {
        let by_operation = |operation: &Operation| {
            let own = operation.holder == self.holder;
            match &operation.action {
                // It gives up what an earlier attempt got.
                Action::AcquireAll(asks) => {
                    let named = own && asks.iter().any(|(_, ask)| ask.request == self.request);
                    named.then_some(End::ByItsHolder)
                }
                _ if operation.key != *key => None,
                Action::Release { token, request } => {
                    let named = token.as_u64() == self.first || *request == self.request;
                    (own && named).then_some(End::ByItsHolder)
                }
                Action::Withdraw { request } => (own && *request == self.request).then_some(End::ByItsHolder),
                Action::Acquire(ask) => (ask.way == Way::Steal).then_some(End::Stolen),
                Action::Evict { target, entry: Entry::Grant(token), beat } => {
                    let named = (*target, token.as_u64(), *beat) == (self.holder, self.first, self.beat);
                    named.then_some(End::Evicted)
                }
                _ => None,
            }
        };
        let gone = commit.gone.contains_key(&self.holder);
        let upgraded = |grant: &Grant| grant.holder == self.holder && grant.mode == Mode::Exclusive;
        let over = commit.clock == StoreClock::Trusted && commit.at >= self.beaten_at.plus(self.lease_ms);
        (gone.then_some(End::ByItsHolder))
            .or_else(|| commit.batch.0.iter().find_map(by_operation))
            .or_else(|| record.grants.iter().any(upgraded).then_some(End::Upgraded))
            .or_else(|| over.then_some(End::Evicted))
    }

    fn is_resumed_by(&self, operation: &Operation) -> bool {
        let Action::Acquire(ask) = &operation.action else { return false };
        matches!(ask.way, Way::Resume { from, token, .. } if (from, token.as_u64()) == (self.holder, self.first))
    }
}
