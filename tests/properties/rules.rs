//! What holds after every operation, whatever happened before.

use std::collections::BTreeSet;

use leasehold::machine::{
    Acquire, Action, Answer, Batch, Granted, Key, Mode, Operation, Outcome, Promotion, Record, SessionId, SessionStep,
    StoreNow, Token, TokenBlock,
};

use leasehold_invariants::{Several, check, ended_are_gone, head_waits, only_looks};

use crate::extras;
use crate::sessions::Rows;
use crate::shop::{self, Kind, Texts, View};
use crate::world::{World, only, token};

/// What one operation did to one key.
pub(crate) struct Moved<'a> {
    pub(crate) key: &'a Key,
    pub(crate) before: &'a Record,
    pub(crate) after: &'a Record,
    /// The record was deleted: `after` is as the next one will begin.
    gone: bool,
    pub(crate) me: SessionId,
    pub(crate) operation: &'a Operation,
    pub(crate) answer: &'a Answer,
    /// The rows as the operation found them.
    pub(crate) rows: &'a Rows,
    pub(crate) now: StoreNow,
    /// Waiters whose rows the store did not read.
    strangers: BTreeSet<SessionId>,
    wall_ms: u64,
}

/// Panics at the first rule that is broken.
pub(crate) fn hold(world: &mut World, batch: &Batch, reply: &leasehold::machine::Reply, before: &View, texts: &Texts) {
    let now = world.now();
    let mut ghost = std::mem::take(&mut world.ghost);
    ghost.rows.begin(batch, now);
    let (rows, answer) = (ghost.rows.clone(), only(reply));
    for key in &world.keys {
        let after = world.view.records.get(key);
        let concerned = batch.operations.first().filter(|operation| touches(operation, key));
        let (Some(operation), Some(answer)) = (concerned, answer) else {
            untouched(world, batch, key, before.records.get(key));
            continue;
        };
        let (None | Some(Some(_)), None | Some(Some(_))) = (before.records.get(key), after) else {
            assert_eq!(texts.get(&row(key)), world.shop.texts.get(&row(key)), "what cannot be read is left as it is");
            continue;
        };
        let (begun, ended) = (starting_at(before.floor), starting_at(world.view.floor));
        let moved = Moved {
            key,
            before: before.records.get(key).and_then(Option::as_ref).unwrap_or(&begun),
            after: after.and_then(Option::as_ref).unwrap_or(&ended),
            gone: after.is_none(),
            me: batch.session,
            operation,
            answer,
            rows: &rows,
            now,
            strangers: strangers(world.kind, texts, batch),
            wall_ms: world.wall_ms,
        };
        moved.keeps_all_rules();
        ghost.note_grants(&moved);
        moved.fence_is_true(&ghost);
        if world.extras && !moved.gone {
            extras::survive(moved.before, moved.after);
        }
    }
    if let Some(answer) = answer {
        let several = Several::before(batch, |key| before.records.get(key)?.as_ref());
        assert_eq!(several.after(batch, reply, |key| world.view.records.get(key)?.as_ref()), Ok(()));
        let stray =
            answer.promoted.iter().find(|promotion| !matches!(world.view.records.get(&promotion.key), Some(Some(_))));
        assert_eq!(stray, None, "nobody is granted what cannot be read");
        ghost.rows.operate(batch, answer, before, now);
    }
    reply_is_true(batch, reply, &ghost.rows);
    ghost.rows.finish(batch, &world.view, now);
    assert!(world.view.floor >= before.floor, "the store's floor never sinks");
    world.ghost = ghost;
}

/// The reply tells what was robbed, or that there is no row.
fn reply_is_true(batch: &Batch, reply: &leasehold::machine::Reply, rows: &Rows) {
    assert_eq!(reply.store, shop::STORE);
    assert_eq!(reply.robbed.as_ref(), rows.get(batch.session).map(|row| &row.robbed), "what was stolen is told");
    assert!(reply.peers.is_empty() || matches!(batch.step, SessionStep::Open { .. }));
}

fn touches(operation: &Operation, key: &Key) -> bool {
    match &operation.action {
        Action::AcquireAll(asks) => asks.iter().any(|(asked, _)| asked == key),
        _ => operation.key == *key,
    }
}

/// A key without an operation stays as it is; one that is forgotten is used by nobody who lives.
fn untouched(world: &World, batch: &Batch, key: &Key, before: Option<&Option<Record>>) {
    let after = world.view.records.get(key);
    let lives = |session| world.view.sessions.contains_key(&session);
    let is_unused = |record: &Record| {
        let mut holders = record.grants.iter().map(|grant| grant.holder);
        !holders.any(lives) && !record.queue.iter().any(|waiter| lives(waiter.holder))
    };
    match (before, after) {
        (Some(Some(record)), None) => {
            assert!(batch.forgets.contains(key) && is_unused(record), "only what nobody uses is forgotten: {record:?}");
        }
        _ => {
            assert_eq!(before, after, "no other key changes");
            let Some(Some(record)) = after else { return };
            // Of strangers nobody knows whether they live, and the store's floor stays below the end of the range.
            let is_idle = if world.kind == Kind::NamedSessions { record.is_idle() } else { is_unused(record) };
            let is_sparing = record.last_token.as_u64() >= 3 << 51;
            assert!(!(is_idle && !is_sparing && batch.forgets.contains(key)), "what nobody uses is forgotten");
        }
    }
}

fn row(key: &Key) -> leasehold::machine::Row {
    leasehold::machine::Row::Record(key.clone())
}

fn starting_at(floor: u64) -> Record {
    let mut record = Record::default();
    (record.last_token, record.last_exclusive) = (token(floor), token(floor));
    record
}

fn strangers(kind: Kind, texts: &Texts, batch: &Batch) -> BTreeSet<SessionId> {
    if kind != Kind::NamedSessions {
        return BTreeSet::new();
    }
    let named = shop::named(texts, batch);
    let records = batch.keys().into_iter().filter_map(|key| texts.get(&row(&key)));
    let queued = records.filter_map(|text| Record::decode(text).ok()).flat_map(|record| record.queue);
    queued.map(|waiter| waiter.holder).filter(|holder| !named.contains(holder)).collect()
}

pub(crate) fn tokens(record: &Record) -> BTreeSet<Token> {
    record.grants.iter().map(|grant| grant.block.first).collect()
}

impl Moved<'_> {
    fn keeps_all_rules(&self) {
        if self.only_looks() {
            assert_eq!(
                (self.before, self.gone),
                (self.after, self.gone && self.before.is_idle()),
                "looking changes nothing"
            );
        } else {
            assert_eq!(check(self.after), Ok(()), "{:?}", self.after);
            if !only_looks(&self.operation.action, &self.answer.outcome) {
                self.nobody_ended_is_left();
                assert!(head_waits(self.after, self.wall_ms), "at rest the head is not grantable: {:?}", self.after);
            }
        }
        self.tokens_grow();
        self.revision_tells_changes();
        self.who_is_granted_is_told_once();
        self.nobody_passes();
        self.nobody_goes_without_reason();
        self.the_robbed_are_told();
        self.bystanders_stay();
        self.outcome_is_true();
        self.refusal_is_true();
        self.records_stay();
    }

    pub(crate) fn only_looks(&self) -> bool {
        matches!(self.operation.action, Action::Inspect | Action::Fence { .. })
    }

    /// Whether the operation took the session for ended.
    pub(crate) fn has_ended(&self, session: SessionId) -> bool {
        self.rows.has_ended(session, self.me, self.now)
    }

    /// Whether nobody who ended had anything here: then what an operation refuses to do changes nothing at all.
    pub(crate) fn all_are_alive(&self) -> bool {
        let grants = self.before.grants.iter().map(|grant| grant.holder);
        grants.chain(self.before.queue.iter().map(|waiter| waiter.holder)).all(|holder| !self.has_ended(holder))
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

    /// Who is promoted anew. A look tells of older grants of its own too.
    pub(crate) fn promoted_anew(&self) -> impl Iterator<Item = &Promotion> {
        let known = tokens(self.before);
        self.promoted().filter(move |promotion| !known.contains(&promotion.block.first))
    }

    /// The grants that were made: tokens, the last exclusive one before, and mode.
    pub(crate) fn fresh_grants(&self) -> Vec<(TokenBlock, Token, Mode)> {
        let known = tokens(self.before);
        let grants = self.after.grants.iter().filter(|grant| !known.contains(&grant.block.first));
        grants.map(|grant| (grant.block, grant.previous, grant.mode)).collect()
    }

    fn nobody_ended_is_left(&self) {
        // What is detached to a session right now lives by this very operation. A store that did not read a waiter's row may grant to it,
        // and finds out next time.
        let moves = |session| matches!(self.operation.action, Action::Detach { to, .. } if to == session);
        let has_ended = |session| self.has_ended(session) && !moves(session) && !self.strangers.contains(&session);
        assert!(ended_are_gone(self.after, has_ended), "an ended session holds nothing: {:?}", self.after);
    }

    /// I1, rules q and r.
    fn tokens_grow(&self) {
        let (last, end) = (self.before.last_token, self.after.last_token);
        assert!(end >= last, "the last token never shrinks");
        assert!(self.after.last_exclusive <= end && end.as_u64() < 1 << 53);
        let known = tokens(self.before);
        let granted = self.granted().map(|granted| granted.block).filter(|block| !known.contains(&block.first));
        let mut blocks: Vec<_> =
            granted.into_iter().chain(self.promoted_anew().map(|promotion| promotion.block)).collect();
        let refill = match self.answer.outcome {
            Outcome::Current { refill, .. } => refill,
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
        let given_back = matches!(self.operation.action, Action::AcquireAll(_))
            && !matches!(self.answer.outcome, Outcome::GrantedAll(_));
        assert!(bound == end || given_back || self.gone, "the last token ends the last block: {blocks:?}");
        assert!(self.after.grants.iter().all(|grant| grant.block.last <= end), "the last token bounds all");
    }

    /// Stores write by it.
    fn revision_tells_changes(&self) {
        if self.gone {
            return;
        }
        let mut as_if = self.after.clone();
        as_if.revision = self.before.revision;
        let moved = self.before.revision != self.after.revision;
        assert_eq!(moved, as_if != *self.before, "the revision changes exactly when the record does");
        assert!(self.after.revision >= self.before.revision);
    }

    /// No operation deletes a record that was ever changed.
    fn records_stay(&self) {
        let never = self.before.revision == 0 && self.before.is_idle();
        assert!(!self.gone || never, "the record of a key stays: {:?}", self.before);
    }
}
