//! The store of the histories: it keeps its records itself, shows every commit to the oracle, takes fenced writes, and
//! may lose its last commit.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use leasehold::{
    Token,
    machine::{
        Action, Answer, Batch, Grant, Incarnation, Key, Now, Operation, Outcome, Record, Records, StoreClock, StoreNow,
        Tombstone,
    },
    store::Reach,
};

use crate::{
    ghost::{Commit, End, Ghost},
    oracle::Oracle,
};

/// Far from the numbers of other stores of this process.
static BUILT: AtomicU64 = AtomicU64::new(1 << 32);

/// Where all contexts of a history meet. Clones are the same.
#[derive(Clone)]
pub(crate) struct Vault(Arc<Room>);

struct Room {
    number: u64,
    clock: StoreClock,
    /// Whether the last commit may be lost.
    forgets: bool,
    keys: Vec<Key>,
    state: Mutex<State>,
    oracle: Oracle,
}

struct State {
    records: Records,
    ghosts: Vec<Ghost>,
    /// Those whose tombstones stand, and the keys that these name.
    gone: BTreeMap<Incarnation, Vec<Key>>,
    undo: Option<Undo>,
}

/// What was before the last commit.
struct Undo {
    records: Records,
    ghosts: Vec<(usize, Ghost)>,
    gone: BTreeMap<Incarnation, Vec<Key>>,
}

impl Vault {
    pub(crate) fn new(clock: StoreClock, forgets: bool, keys: usize, oracle: Oracle) -> Self {
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let ghosts = vec![Ghost::default(); keys];
        let state = State { records: Records::new(), ghosts, gone: BTreeMap::new(), undo: None };
        let keys = (0..keys).map(|key| Key::new(&format!("k{key}")).unwrap()).collect();
        Self(Arc::new(Room { number, clock, forgets, keys, state: Mutex::new(state), oracle }))
    }

    pub(crate) fn clock(&self) -> StoreClock {
        self.0.clock
    }

    pub(crate) fn reach(&self) -> Reach {
        Reach::Process(self.0.number)
    }

    pub(crate) fn keys(&self) -> &[Key] {
        &self.0.keys
    }

    /// The grant that a guard's token is of.
    pub(crate) fn grant_of(&self, key: usize, token: Token) -> Option<u64> {
        self.0.state.lock().unwrap().ghosts[key].grant_of(token.as_u64())
    }

    /// Who stands in the records: what nobody gave up.
    pub(crate) fn entries(&self) -> Vec<String> {
        let state = self.0.state.lock().unwrap();
        let records = self.0.keys.iter().filter_map(|key| Some((key, state.records.peek(key)?)));
        let busy = records.filter(|(_, record)| !(record.grants.is_empty() && record.queue.is_empty()));
        busy.map(|(key, record)| format!("{key}: {}", briefly(record))).collect()
    }

    /// A write that commits if this context's grant is current, in the very transaction that asks. Whether it was.
    pub(crate) fn write(&self, key: usize, holder: Incarnation, token: Token, now: Now) -> bool {
        let mut state = self.0.state.lock().unwrap();
        let State { records, ghosts, undo, gone } = &mut *state;
        let name = &self.0.keys[key];
        let (Some(first), Some(record)) = (ghosts[key].grant_of(token.as_u64()), records.peek(name)) else {
            return false;
        };
        let own = record.grants.iter().find(|grant| grant.holder == holder && grant.block.first.as_u64() == first);
        let Some(grant) = own else { return false };
        let (mode, request) = (grant.mode, grant.request);
        let action = Action::Fence { token: grant.block.first, request };
        let fence = Operation { key: name.clone(), holder, action };
        let outcome = fence.apply(records, StoreNow::new(self.0.clock, now)).outcome;
        if gone.contains_key(&holder) {
            drop(state);
            return self.0.oracle.denied(&outcome, token);
        }
        // It is the last commit now.
        *undo = None;
        let written = ghosts[key].write(first, mode);
        drop(state);
        written.unwrap_or_else(|wrong| self.0.oracle.accuse(wrong));
        if outcome != Outcome::Current {
            self.0.oracle.accuse(format!("the fence denies {token:?}, which is current"));
        }
        true
    }

    /// The last commit is lost, as a power cut does to one that was relaxed. Whether there was one.
    pub(crate) fn forget_last(&self) -> bool {
        let mut state = self.0.state.lock().unwrap();
        let Some(Undo { records, ghosts, gone }) = state.undo.take() else { return false };
        (state.records, state.gone) = (records, gone);
        for (key, ghost) in ghosts {
            state.ghosts[key].roll_back(ghost);
        }
        true
    }

    /// Somebody is gone. Nobody there may believe any more when the store is told; and where nothing is late or
    /// forgotten, the tombstone names all that it left.
    pub(crate) fn entomb(&self, tombstone: Tombstone, is_prompt: bool) {
        let mut state = self.0.state.lock().unwrap();
        let Tombstone { holder, ref keys } = tombstone;
        self.0.oracle.tell(|| format!("{:04x} is gone from {keys:?}", holder.0 & 0xffff));
        let held = |(key, ghost): (usize, &Ghost)| ghost.held_by(holder).map(|grant| (key, grant)).collect::<Vec<_>>();
        let held: Vec<_> = state.ghosts.iter().enumerate().flat_map(held).collect();
        let unnamed = self.0.keys.iter().find(|key| !keys.contains(key) && state.names(key, holder)).cloned();
        state.gone.insert(holder, keys.clone());
        state.records.entomb(tombstone);
        // It is the last commit now.
        state.undo = None;
        drop(state);
        if let Some(key) = unnamed.filter(|_| is_prompt && !self.0.forgets) {
            self.0.oracle.accuse(format!("{:04x} left something at {key}, and does not say so", holder.0 & 0xffff));
        }
        self.0.oracle.entombed(&held);
    }

    /// The tombstones that stand.
    pub(crate) fn tombstones(&self) -> usize {
        self.0.state.lock().unwrap().gone.len()
    }

    fn index(&self, key: &Key) -> usize {
        key.as_str()[1..].parse().unwrap()
    }

    pub(crate) fn apply(&self, batch: &Batch, now: Now) -> Vec<Answer> {
        let mut state = self.0.state.lock().unwrap();
        let saved = self.0.forgets.then(|| self.save(&state, batch));
        let gone = state.gone.clone();
        let answers = batch.apply(&mut state.records, StoreNow::new(self.0.clock, now));
        if self.0.oracle.is_loud() {
            for (operation, answer) in batch.0.iter().zip(&answers) {
                eprintln!(
                    "{:>8} {:04x} {:?} {:?}",
                    now.monotonic.as_ms(),
                    operation.holder.0 & 0xffff,
                    operation.action,
                    answer.outcome
                );
            }
            for key in keys_of(batch) {
                eprintln!("{:>8} {key}: {}", "", state.records.peek(key).map_or_else(String::new, briefly));
            }
        }
        let commit = Commit { batch, at: now.monotonic, clock: self.0.clock, gone: &gone };
        let mut ended = Vec::new();
        for (operation, answer) in batch.0.iter().zip(&answers) {
            let stolen = |(_, token): &(Incarnation, Token)| (self.index(&operation.key), token.as_u64(), End::Stolen);
            ended.extend(answer.robbed.iter().map(stolen));
            for promotion in &answer.promoted {
                state.ghosts[self.index(&promotion.key)].reserve(promotion.block);
            }
        }
        let seen = self.see(&mut state, &commit, &mut ended);
        let whole = is_all_or_nothing(&state.records, batch, &answers);
        let cleaned = is_cleaned(&state.records, &commit);
        let collected = self.collect(&mut state);
        let revision = |records: &Records, key| records.peek(key).map_or(0, |record| record.revision);
        let changed = |undo: &Undo| {
            let of_key = |key| revision(&state.records, key) != revision(&undo.records, key);
            keys_of(batch).any(of_key) || state.gone != undo.gone
        };
        if saved.as_ref().is_some_and(changed) {
            state.undo = saved;
        }
        drop(state);
        for wrong in [seen, whole, cleaned, collected].into_iter().filter_map(Result::err) {
            self.0.oracle.accuse(wrong);
        }
        if !ended.is_empty() {
            self.0.oracle.ended(&ended);
        }
        answers
    }

    fn see(&self, state: &mut State, commit: &Commit<'_>, ended: &mut Vec<(usize, u64, End)>) -> Result<(), String> {
        let State { records, ghosts, .. } = state;
        let mut grants = Vec::new();
        for key in keys_of(commit.batch) {
            let (index, Some(record)) = (self.index(key), records.peek(key)) else { continue };
            let seen = ghosts[index].commit(key, record, commit, &mut grants);
            ended.extend(grants.drain(..).map(|(grant, end)| (index, grant, end)));
            seen.map_err(|wrong| format!("{key}: {wrong}"))?;
        }
        Ok(())
    }

    fn save(&self, state: &State, batch: &Batch) -> Undo {
        let ghosts = keys_of(batch).map(|key| (self.index(key), state.ghosts[self.index(key)].clone())).collect();
        Undo { records: state.records.clone(), ghosts, gone: state.gone.clone() }
    }

    /// Tombstones forget the keys that do not name their holders any more, and no others; then they go.
    fn collect(&self, state: &mut State) -> Result<(), String> {
        for (holder, text) in state.records.changed_tombstones() {
            let left = text.and_then(|text| Tombstone::decode(holder, &text)).map_or_else(Vec::new, |left| left.keys);
            let before = state.gone.remove(&holder).unwrap_or_default();
            if let Some(key) = before.iter().find(|key| !left.contains(key) && state.names(key, holder)) {
                return Err(format!("the tombstone of {:04x} forgot {key}, which names it", holder.0 & 0xffff));
            }
            if left.is_empty() {
                self.0.oracle.tally.count("a tombstone was collected", ());
            } else {
                state.gone.insert(holder, left);
            }
        }
        Ok(())
    }
}

impl State {
    /// Whether a record has an entry of this holder.
    fn names(&self, key: &Key, holder: Incarnation) -> bool {
        self.records.peek(key).is_some_and(|record| names(record, |named| named == holder))
    }
}

/// Whether an entry's holder is like this.
fn names(record: &Record, is_it: impl Fn(Incarnation) -> bool) -> bool {
    record.grants.iter().any(|grant| is_it(grant.holder)) || record.queue.iter().any(|waiter| is_it(waiter.holder))
}

/// Whatever was done at a key removed those who were gone, and gave them nothing.
fn is_cleaned(records: &Records, commit: &Commit<'_>) -> Result<(), String> {
    for operation in commit.batch.0.iter().filter(|operation| !matches!(operation.action, Action::Inspect)) {
        let record = records.peek(&operation.key);
        if record.is_some_and(|record| names(record, |holder| commit.gone.contains_key(&holder))) {
            return Err(format!(
                "{:?} left those who are gone: {}",
                operation.action,
                record.map_or_else(String::new, briefly)
            ));
        }
    }
    Ok(())
}

fn keys_of(batch: &Batch) -> impl Iterator<Item = &Key> {
    batch.0.iter().flat_map(|operation| {
        let all = match &operation.action {
            Action::AcquireAll(asks) => asks.as_slice(),
            _ => &[],
        };
        std::iter::once(&operation.key).chain(all.iter().map(|(key, _)| key))
    })
}

/// Who holds and who waits.
fn briefly(record: &Record) -> String {
    let name = |holder: Incarnation| format!("{:04x}", holder.0 & 0xffff);
    let grants = record.grants.iter().map(|grant| {
        let (first, request, beat) = (grant.block.first.as_u64(), grant.request.0, grant.beat);
        format!("{} holds {first} {:?} by {request} beat {beat}", name(grant.holder), grant.mode)
    });
    let queue = record.queue.iter().map(|waiter| {
        let (request, beat) = (waiter.request.0, waiter.beat);
        format!("{} waits {:?} by {request} beat {beat}", name(waiter.holder), waiter.mode)
    });
    grants.chain(queue).collect::<Vec<_>>().join(", ")
}

/// A request for several keys has all of them, or none.
fn is_all_or_nothing(records: &Records, batch: &Batch, answers: &[Answer]) -> Result<(), String> {
    // What came after it in the same transaction may have changed what it did.
    if let (Some(operation), Some(answer)) = (batch.0.last(), answers.last()) {
        let Action::AcquireAll(asks) = &operation.action else { return Ok(()) };
        let granted = matches!(answer.outcome, Outcome::GrantedAll(_));
        let has = |(key, ask): &&(Key, leasehold::machine::Acquire)| {
            let own = |holder, request| (holder, request) == (operation.holder, ask.request);
            let Some(record) = records.peek(key) else { return false };
            // What a newer attempt got is left alone by one that comes late: one of the keys may be another's by then.
            let counts = |grant: &Grant| own(grant.holder, grant.request) && (granted || grant.beat <= ask.beat);
            record.grants.iter().any(counts) || record.queue.iter().any(|waiter| own(waiter.holder, waiter.request))
        };
        let count = asks.iter().filter(has).count();
        let expected = if granted { asks.len() } else { 0 };
        if count != expected {
            return Err(format!("{count} of {} keys for {:?}", asks.len(), answer.outcome));
        }
    }
    Ok(())
}

impl fmt::Debug for Vault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Vault({})", self.0.number)
    }
}
