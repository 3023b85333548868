//! What a key's record went through, seen from outside: every commit is held against the one before.

use std::collections::BTreeSet;

use leasehold::{
    Mode,
    machine::{Action, BLOCK, Batch, Grant, Key, Record, SessionId, TokenBlock, Way},
};

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
        is_sound(record)?;
        let before = std::mem::replace(&mut self.record, record.clone());
        for old in &before.grants {
            if !self.has(first(old)) {
                let end = how_it_ended(old, key, record, commit);
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

/// What holds of every record at rest.
fn is_sound(record: &Record) -> Result<(), String> {
    let crowded = record.grants.len() > 1 && record.grants.iter().any(|grant| grant.mode == Mode::Exclusive);
    let stuck = record.grants.is_empty() && !record.queue.is_empty();
    if crowded || stuck { Err(format!("the record is unsound: {record:?}")) } else { Ok(()) }
}

/// Who may take a grant out of the record: its holder, a thief, an upgrade; or its session has ended.
fn how_it_ended(old: &Grant, key: &Key, record: &Record, commit: &Commit<'_>) -> Option<End> {
    let own = commit.batch.session == old.holder;
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
        Action::Withdraw { request } => (own && *request == old.request).then_some(End::ByItsHolder),
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
