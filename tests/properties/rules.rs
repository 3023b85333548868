//! What holds after every operation, whatever happened before.

use std::collections::BTreeSet;

use leasehold::machine::{
    Acquire, Action, Answer, Entry, Grant, Granted, Incarnation, Key, Mode, Operation, Outcome, Promotion, Record,
    Records, Token, Waiter,
};

use crate::{extras, world::World};

/// What one operation did to one key.
pub(crate) struct Moved<'a> {
    pub(crate) key: &'a Key,
    pub(crate) before: &'a Record,
    pub(crate) after: &'a Record,
    pub(crate) operation: &'a Operation,
    pub(crate) answer: &'a Answer,
    /// The entries that had run out by the store's own clock.
    pub(crate) over: BTreeSet<(Incarnation, Entry)>,
    exhausted: bool,
}

/// Panics at the first rule that is broken.
pub(crate) fn hold(world: &mut World, operation: &Operation, answer: &Answer, before: &Records) {
    for key in world.keys.clone() {
        let (Some(old), Some(after)) = (before.peek(&key), world.records.peek(&key)) else {
            unreadable_is_left_alone(world, before, &key);
            continue;
        };
        let (over, exhausted) = (entries_over(world, &key), is_exhausted(after.last_token, world.wall_ms));
        let moved = Moved { key: &key, before: old, after, operation, answer, over, exhausted };
        if !moved.concerns() {
            assert_eq!(old, after, "no other key changes");
            continue;
        }
        moved.record_is_sound();
        moved.tokens_grow();
        moved.revision_tells_changes();
        moved.who_is_granted_is_told_once();
        moved.nobody_passes();
        moved.nobody_goes_without_reason();
        moved.the_robbed_are_told();
        moved.bystanders_stay();
        moved.outcome_is_true();
        moved.refusal_is_true();
        let deadlines = moved.deadlines(world);
        if world.extras {
            extras::survive(old, after);
        }
        world.deadlines.extend(deadlines);
    }
    all_or_nothing(world, operation, answer, before);
    let stray = answer.promoted.iter().find(|promotion| world.records.peek(&promotion.key).is_none());
    assert_eq!(stray, None, "nobody is granted what cannot be read");
}

fn unreadable_is_left_alone(world: &World, before: &Records, key: &Key) {
    assert!(before.peek(key).is_none() && world.records.peek(key).is_none(), "what cannot be read stays so");
    let revisions = before.revisions();
    let written = world.records.changed_since(&revisions);
    assert!(written.iter().all(|(written, _)| written != key), "what cannot be read is never written");
}

fn entries_over(world: &World, key: &Key) -> BTreeSet<(Incarnation, Entry)> {
    let now = world.monotonic_ms;
    let over = world.deadlines.iter().filter(|((at, ..), deadline)| at == key && **deadline <= now && world.trusted);
    over.map(|((_, holder, entry), _)| (*holder, *entry)).collect()
}

/// Rule r: `max(last + 1, min(now, 2^42) << 10)`, and all 64 tokens below 2^53.
fn is_exhausted(last: Token, wall_ms: u64) -> bool {
    let first = (u128::from(last.as_u64()) + 1).max(u128::from(wall_ms.min(1 << 42)) << 10);
    first + 63 >= 1 << 53
}

pub(crate) type Rank = (bool, i64, u64);

pub(crate) fn rank(waiter: &Waiter) -> Rank {
    (waiter.upgrades.is_none(), -i64::from(waiter.priority), waiter.ticket)
}

pub(crate) fn tokens(record: &Record) -> BTreeSet<Token> {
    record.grants.iter().map(|grant| grant.block.first).collect()
}

impl Moved<'_> {
    fn concerns(&self) -> bool {
        match &self.operation.action {
            Action::AcquireAll(asks) => asks.iter().any(|(key, _)| key == self.key),
            _ => self.operation.key == *self.key,
        }
    }

    pub(crate) fn ask(&self) -> Option<&Acquire> {
        match &self.operation.action {
            Action::Acquire(ask) => Some(ask),
            Action::AcquireAll(asks) => asks.iter().find(|(key, _)| key == self.key).map(|(_, ask)| ask),
            _ => None,
        }
    }

    /// What the asker was granted here, as its answer says it.
    pub(crate) fn granted(&self) -> Option<Granted> {
        match (&self.answer.outcome, &self.operation.action) {
            (Outcome::Granted(granted), _) => Some(*granted),
            (Outcome::GrantedAll(all), Action::AcquireAll(asks)) => {
                asks.iter().position(|(key, _)| key == self.key).map(|at| all[at])
            }
            _ => None,
        }
    }

    pub(crate) fn promoted(&self) -> impl Iterator<Item = &Promotion> {
        self.answer.promoted.iter().filter(|promotion| promotion.key == *self.key)
    }

    fn record_is_sound(&self) {
        let Record { grants, queue, .. } = self.after;
        let exclusive = grants.iter().filter(|grant| grant.mode == Mode::Exclusive).count();
        assert!(exclusive == 0 || grants.len() == 1, "grants exclude each other: {grants:?}");
        assert!(queue.windows(2).all(|pair| rank(&pair[0]) < rank(&pair[1])), "the queue is sorted: {queue:?}");
        let mut entries = BTreeSet::new();
        let named = grants.iter().map(|grant| (grant.holder, grant.request));
        for entry in named.chain(queue.iter().map(|waiter| (waiter.holder, waiter.request))) {
            assert!(entries.insert(entry), "one place or grant a request: {entry:?}");
        }
        let mut common = BTreeSet::new();
        for waiter in queue.iter().filter(|waiter| !waiter.alone && waiter.upgrades.is_none()) {
            assert!(common.insert((waiter.holder, waiter.mode)), "one common place a holder and mode: {queue:?}");
        }
        assert!(queue.iter().filter(|waiter| waiter.upgrades.is_some()).count() <= 1, "one upgrade: {queue:?}");
        assert!(self.after.stolen.len() <= 8, "eight thefts are remembered");
        self.head_is_not_grantable();
    }

    /// Rule f.
    fn head_is_not_grantable(&self) {
        let Some(head) = self.after.queue.first() else { return };
        let given = |token| head.upgrades == Some(token);
        let mut others =
            self.after.grants.iter().filter(|grant| !(grant.holder == head.holder && given(grant.block.first)));
        let fits = others.all(|grant| grant.mode == Mode::Shared && head.mode == Mode::Shared);
        assert!(!fits || self.exhausted, "at rest the head of the queue is not grantable: {:?}", self.after);
        if let Some(token) = head.upgrades {
            let stands =
                self.after.grants.iter().any(|grant| (grant.holder, grant.block.first) == (head.holder, token));
            assert!(stands, "an upgrade has something to give: {:?}", self.after);
        }
    }

    /// I1, rules q and r.
    fn tokens_grow(&self) {
        let (last, end) = (self.before.last_token, self.after.last_token);
        assert!(end >= last, "the last token never shrinks");
        assert!(self.after.last_exclusive <= end && end.as_u64() < 1 << 53);
        let known = tokens(self.before);
        let granted = self.granted().map(|granted| granted.block).filter(|block| !known.contains(&block.first));
        let mut blocks: Vec<_> = granted.into_iter().chain(self.promoted().map(|promotion| promotion.block)).collect();
        let refill = match self.answer.outcome {
            Outcome::Renewed { refill, .. } => refill,
            _ => None,
        };
        blocks.extend(refill);
        blocks.sort_by_key(|block| block.first);
        let mut bound = last;
        for block in &blocks {
            assert!(block.first > bound, "tokens grow, and blocks do not overlap: {blocks:?}");
            let size = block.last.as_u64() - block.first.as_u64() + 1;
            assert!(size == 64 || (size == 1_024 && refill == Some(*block)), "a block has 64 tokens, a refill 1,024");
            bound = block.last;
        }
        let reserved =
            matches!(self.answer.outcome, Outcome::Granted(_) | Outcome::GrantedAll(_) | Outcome::Renewed { .. });
        let given_back = matches!(self.operation.action, Action::AcquireAll(_)) && !reserved;
        assert!(bound == end || given_back, "the last token is the end of the last block: {blocks:?}");
        assert!(self.after.grants.iter().all(|grant| grant.block.last <= end), "the last token bounds all");
        for token in tokens(self.after).difference(&known) {
            assert!(*token > last, "a new grant's token is larger than all before");
        }
    }

    /// Stores write by it.
    fn revision_tells_changes(&self) {
        let mut as_if = self.after.clone();
        as_if.revision = self.before.revision;
        let moved = self.before.revision != self.after.revision;
        assert_eq!(moved, as_if != *self.before, "the revision changes exactly when the record does");
        assert!(self.after.revision >= self.before.revision);
    }

    /// When what was written just now runs out.
    fn deadlines(&self, world: &World) -> Vec<((Key, Incarnation, Entry), u64)> {
        let at = |holder, entry| (self.key.clone(), holder, entry);
        let mut fresh = Vec::new();
        for grant in &self.after.grants {
            let same = |old: &&Grant| {
                (old.holder, old.block.first, old.beat, old.request)
                    == (grant.holder, grant.block.first, grant.beat, grant.request)
            };
            if self.before.grants.iter().find(same).is_none() {
                fresh.push((at(grant.holder, Entry::Grant(grant.block.first)), world.monotonic_ms + grant.lease_ms));
            }
        }
        for waiter in &self.after.queue {
            let same =
                |old: &&Waiter| (old.holder, old.request, old.beat) == (waiter.holder, waiter.request, waiter.beat);
            if self.before.queue.iter().find(same).is_none() {
                fresh.push((at(waiter.holder, Entry::Waiter(waiter.request)), world.monotonic_ms + waiter.lease_ms));
            }
        }
        fresh
    }
}

/// I14, and that a refusal changes nothing but what time did.
fn all_or_nothing(world: &World, operation: &Operation, answer: &Answer, before: &Records) {
    let Action::AcquireAll(asks) = &operation.action else { return };
    let count = |records: &Records| {
        let held = asks.iter().filter(|(key, ask)| {
            let stands = |grant: &Grant| (grant.holder, grant.request) == (operation.holder, ask.request);
            records.peek(key).is_some_and(|record| record.grants.iter().any(stands))
        });
        held.count()
    };
    let (had, has) = (count(before), count(&world.records));
    match &answer.outcome {
        Outcome::GrantedAll(all) => assert!(all.len() == asks.len() && has == asks.len(), "all"),
        _ => assert!(has <= had, "or nothing: {had} became {has}"),
    }
}
