//! Of one record.

use std::{collections::BTreeSet, fmt};

use leasehold::machine::{BLOCK, Record, SessionId, Token, Waiter};

use crate::fit;

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsound {
    /// Two grants exclude each other (I5).
    ConflictingGrants,
    /// A request has two entries (I8).
    RequestTwice,
    /// A later queue entry stands ahead of an earlier one.
    QueueOutOfOrder,
    /// A session has two common queue entries for one mode (rule a).
    CommonPlaceTwice,
    /// Two holders upgrade at once.
    TwoUpgrades,
    /// A grant's tokens, or the last exclusive token, exceed the record's last token (I1).
    TokensBeyondLast,
}

impl fmt::Display for Unsound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::ConflictingGrants => "two grants exclude each other",
            Self::RequestTwice => "a request has two entries",
            Self::QueueOutOfOrder => "the queue is out of order",
            Self::CommonPlaceTwice => "a session has two common queue entries for one mode",
            Self::TwoUpgrades => "two holders upgrade at once",
            Self::TokensBeyondLast => "a token exceeds the last one",
        })
    }
}

/// Checks what needs no knowledge but the record.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(record: &Record) -> Result<(), Unsound> {
    let Record { grants, queue, last_token, last_exclusive, .. } = record;
    let fits = |(at, grant): (usize, &leasehold::machine::Grant)| {
        grants[at + 1..].iter().all(|other| fit(grant.mode, other.mode))
    };
    let granted = grants.iter().map(|grant| (grant.holder, grant.request));
    let places = queue.iter().map(|waiter| (waiter.holder, waiter.request));
    let common = queue.iter().filter(|waiter| !waiter.alone && waiter.upgrades.is_none());
    let bound = grants.iter().map(|grant| grant.block.last).chain([*last_exclusive]);
    let rules = [
        (grants.iter().enumerate().all(fits), Unsound::ConflictingGrants),
        (differ(granted.chain(places)), Unsound::RequestTwice),
        (queue.windows(2).all(|pair| rank(&pair[0]) < rank(&pair[1])), Unsound::QueueOutOfOrder),
        (differ(common.map(|waiter| (waiter.holder, waiter.mode))), Unsound::CommonPlaceTwice),
        (queue.iter().filter(|waiter| waiter.upgrades.is_some()).count() <= 1, Unsound::TwoUpgrades),
        (bound.into_iter().all(|last| last <= *last_token), Unsound::TokensBeyondLast),
    ];
    rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, unsound)| Err(unsound))
}

fn differ<T: Ord>(mut items: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    items.all(|item| seen.insert(item))
}

/// Where a queue entry belongs: upgrades first, then by priority, then by age.
pub fn rank(waiter: &Waiter) -> (bool, i64, u64) {
    (waiter.upgrades.is_none(), -i64::from(waiter.priority), waiter.ticket)
}

/// Rule f: whether the head of the queue, if there is one, waits for a conflicting grant to end, or for tokens. An upgrade at the head must
/// still have the grant that it upgrades.
pub fn head_waits(record: &Record, wall_ms: u64) -> bool {
    let Some(head) = record.queue.first() else { return true };
    let is_own =
        |token| move |grant: &&leasehold::machine::Grant| (grant.holder, grant.block.first) == (head.holder, token);
    let given = head.upgrades.and_then(|token| record.grants.iter().find(is_own(token)));
    let in_the_way = record.grants.iter().any(|grant| Some(grant) != given && !fit(grant.mode, head.mode));
    (in_the_way || is_exhausted(record.last_token, wall_ms)) && head.upgrades.is_some() == given.is_some()
}

/// S14: whether no grant and no head of the queue belongs to a session that has ended.
pub fn ended_are_gone(record: &Record, has_ended: impl Fn(SessionId) -> bool) -> bool {
    let head = record.queue.first().map(|waiter| waiter.holder);
    !record.grants.iter().map(|grant| grant.holder).chain(head).any(has_ended)
}

/// Rule r: whether no full block of tokens is left below 2^53. The next one would begin at `max(last + 1, min(now, 2^42) << 10)`.
pub fn is_exhausted(last: Token, wall_ms: u64) -> bool {
    let first = (u128::from(last.as_u64()) + 1).max(u128::from(wall_ms.min(1 << 42)) << 10);
    first + u128::from(BLOCK) > 1 << 53
}
