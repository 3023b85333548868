//! The store of the histories: it keeps its records itself, shows every commit to the oracle, takes fenced writes, and
//! may lose its last commit.

mod checks;
mod roll;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use leasehold::{
    Token,
    machine::{
        Action, Batch, Key, Now, Operation, Outcome, Record, Records, Reply, Row, SessionId, StoreClock, StoreId,
        StoreNow,
    },
    store::Reach,
};
use leasehold_invariants::Several;

use crate::support::{
    ghost::{Commit, End, Ghost, short},
    oracle::Oracle,
};
use checks::{briefly, is_cleaned, is_told};
use roll::{Roll, SessionEnd, When};

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
    /// The keys whose records somebody else keeps locked.
    locked: Mutex<BTreeSet<usize>>,
    oracle: Oracle,
}

struct State {
    records: Records,
    ghosts: Vec<Ghost>,
    roll: Roll,
    /// What was stolen from whom: if its session ends before it hears so, it never will.
    stolen: Vec<(SessionId, usize, u64)>,
    /// What was granted to whom in the commit at hand.
    granted: Vec<(SessionId, usize, u64)>,
    undo: Option<Undo>,
}

/// What was before the last commit.
struct Undo {
    records: Records,
    ghosts: Vec<(usize, Ghost)>,
    roll: Roll,
}

/// What a commit did, for the oracle.
#[derive(Default)]
struct Seen {
    wrong: Vec<String>,
    ended: Vec<(usize, u64, End)>,
    /// The grants of sessions that others ended, and of those that ended themselves.
    evicted: Vec<(usize, u64)>,
    given_up: Vec<(usize, u64)>,
}

impl Vault {
    pub(crate) fn new(clock: StoreClock, forgets: bool, keys: usize, oracle: Oracle) -> Self {
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let records = Records::whole(StoreId(number.into()));
        let state = State {
            records,
            ghosts: vec![Ghost::default(); keys],
            roll: Roll::default(),
            stolen: Vec::new(),
            granted: Vec::new(),
            undo: None,
        };
        let keys = (0..keys).map(|key| Key::new(&format!("k{key}")).unwrap()).collect();
        Self(Arc::new(Room {
            number,
            clock,
            forgets,
            keys,
            state: Mutex::new(state),
            locked: Mutex::default(),
            oracle,
        }))
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

    /// Somebody else locks the record of this key.
    pub(crate) fn lock(&self, key: usize) {
        self.0.oracle.tell(|| format!("k{key} is locked"));
        self.0.locked.lock().unwrap().insert(key);
    }

    pub(crate) fn unlock(&self, key: Option<usize>) {
        self.0.oracle.tell(|| format!("{key:?} is unlocked"));
        self.0.locked.lock().unwrap().retain(|locked| key.is_some_and(|key| key != *locked));
    }

    /// Whether somebody else keeps a record of the transaction locked.
    pub(crate) fn is_locked(&self, batch: &Batch) -> bool {
        let locked = self.0.locked.lock().unwrap();
        !locked.is_empty() && batch.keys().iter().any(|key| locked.contains(&self.index(key)))
    }

    /// The grant that a guard's token is of.
    pub(crate) fn grant_of(&self, key: usize, token: Token) -> Option<u64> {
        self.0.state.lock().unwrap().ghosts[key].grant_of(token.as_u64())
    }

    /// Who stands in the records: what nobody gave up. What ended sessions left goes with the next operation there.
    pub(crate) fn entries(&self) -> Vec<String> {
        let state = self.0.state.lock().unwrap();
        let records = self.0.keys.iter().filter_map(|key| Some((key, state.records.peek(key)?)));
        let is_there = |session| state.roll.is_there(session);
        let is_busy = |record: &Record| {
            let holders = record.grants.iter().map(|grant| grant.holder);
            holders.chain(record.queue.iter().map(|waiter| waiter.holder)).any(is_there)
        };
        let busy = records.filter(|(_, record)| is_busy(record));
        busy.map(|(key, record)| format!("{key}: {}", briefly(record, &state.records))).collect()
    }

    /// The sessions whose rows are there.
    pub(crate) fn sessions(&self) -> BTreeSet<SessionId> {
        self.0.state.lock().unwrap().roll.there().collect()
    }

    /// A write that commits if this session's grant is current, in the very transaction that asks. Whether it was. That
    /// the session has a row is not asked: as long as the record names it, nobody else was granted.
    pub(crate) fn write(&self, key: usize, holder: SessionId, token: Token, now: Now) -> bool {
        let mut state = self.0.state.lock().unwrap();
        let State { records, ghosts, undo, .. } = &mut *state;
        let name = &self.0.keys[key];
        let (Some(first), Some(record)) = (ghosts[key].grant_of(token.as_u64()), records.peek(name)) else {
            return false;
        };
        let named = record.grants.iter().find(|grant| grant.block.first.as_u64() == first);
        let Some(grant) = named.cloned() else { return false };
        let action =
            Action::Fence { token: grant.block.first, request: grant.request, upgrade: None, mode: grant.mode };
        let fence = Batch::new(holder, vec![Operation { key: name.clone(), action }]);
        let reply = fence.apply(records, StoreNow::new(self.0.clock, now));
        let current = matches!(reply.answers[0].outcome, Outcome::Current { .. });
        // It is the last commit now.
        *undo = None;
        let written = if current { ghosts[key].write(first, grant.mode) } else { Ok(()) };
        drop(state);
        written.unwrap_or_else(|wrong| self.0.oracle.accuse(wrong));
        if current != (grant.holder == holder) {
            self.0.oracle.accuse(format!("the fence says {current} to {token:?} of {:04x}", short(holder)));
        }
        current
    }

    /// The last commit is lost, as a power cut does to one that was relaxed. Whether there was one.
    pub(crate) fn forget_last(&self) -> bool {
        let mut state = self.0.state.lock().unwrap();
        let Some(Undo { records, ghosts, roll }) = state.undo.take() else { return false };
        (state.records, state.roll) = (records, roll);
        for (key, ghost) in ghosts {
            state.ghosts[key].roll_back(ghost);
        }
        true
    }

    /// Somebody deletes its row blindly. Nobody there may believe any more when the store is told.
    pub(crate) fn abandon(&self, session: SessionId) {
        let mut state = self.0.state.lock().unwrap();
        self.0.oracle.tell(|| format!("{:04x} is abandoned", short(session)));
        let saved = self.0.forgets.then(|| self.save(&state, &[]));
        state.records.abandon(session);
        let changed = !state.records.take_changed().is_empty();
        let was_there = state.roll.abandon(session);
        if changed {
            state.undo = saved;
        }
        let held = state.held_by(session);
        drop(state);
        if was_there != changed {
            self.0.oracle.accuse(format!("{:04x} was there: {was_there}, abandoned: {changed}", short(session)));
        }
        self.0.oracle.given_up(&held);
    }

    fn index(&self, key: &Key) -> usize {
        key.as_str()[1..].parse().unwrap()
    }

    pub(crate) fn apply(&self, batch: &Batch, now: Now) -> Reply {
        let mut state = self.0.state.lock().unwrap();
        let keys = batch.keys();
        let saved = self.0.forgets.then(|| self.save(&state, &keys));
        let several = Several::before(batch, |key| state.records.peek(key));
        let gone_before = state.gone_at(&keys);
        let reply = batch.apply(&mut state.records, StoreNow::new(self.0.clock, now));
        let changed = state.records.take_changed();
        self.trace(&state, (batch, &keys), &reply, now);
        let mut seen = Seen::default();
        for (operation, answer) in batch.operations.iter().zip(&reply.answers) {
            for (holder, token) in &answer.robbed {
                let (key, grant) = (self.index(&operation.key), token.as_u64());
                state.stolen.push((*holder, key, grant));
                seen.ended.push((key, grant, End::Stolen));
            }
            for promotion in &answer.promoted {
                let (key, grant) = (self.index(&promotion.key), promotion.block.first.as_u64());
                state.granted.push((promotion.holder, key, grant));
                state.ghosts[self.index(&promotion.key)].reserve(promotion.block);
            }
        }
        let when = When { at: now.monotonic, clock: self.0.clock };
        self.see_sessions(&mut state, (batch, &changed), when, &mut seen);
        self.see_records(&mut state, (batch, &keys), (&gone_before, now), &mut seen);
        seen.wrong.extend(several.after(batch, &reply, |key| state.records.peek(key)).err());
        seen.wrong.extend(is_cleaned(&state.records, batch, &reply.answers, &gone_before).err());
        seen.wrong.extend(is_told(&state.records, batch, &reply).err());
        state.granted.clear();
        if !changed.is_empty() {
            state.undo = saved;
        }
        drop(state);
        self.show(seen);
        reply
    }

    fn see_sessions(&self, state: &mut State, commit: (&Batch, &[Row]), when: When, seen: &mut Seen) {
        let (batch, changed) = commit;
        for row in changed {
            let Row::Session(id) = *row else { continue };
            match state.roll.see(id, &state.records, batch, when) {
                Err(wrong) => seen.wrong.push(wrong),
                Ok(None) => {}
                Ok(Some(SessionEnd::Own)) => seen.given_up.extend(state.named(&self.0.keys, id)),
                Ok(Some(end)) => {
                    let what = match end {
                        SessionEnd::Clock => "a session ran out by the store's clock",
                        _ if batch.ends.iter().any(|ending| ending.session == id) => "a session was swept",
                        _ => "a session was ended by a waiter",
                    };
                    self.0.oracle.tally.count(what, ());
                    seen.evicted.extend(state.held_by(id));
                    let stolen = state.stolen.extract_if(.., |(holder, ..)| *holder == id);
                    seen.evicted.extend(stolen.map(|(_, key, grant)| (key, grant)));
                    // What came to it in this very commit went with it.
                    let granted = state.granted.iter().filter(|(holder, ..)| *holder == id);
                    seen.evicted.extend(granted.map(|(_, key, grant)| (*key, *grant)));
                }
            }
        }
    }

    fn see_records(
        &self,
        state: &mut State,
        commit: (&Batch, &[Key]),
        around: (&BTreeSet<SessionId>, Now),
        seen: &mut Seen,
    ) {
        let ((batch, keys), (gone, now)) = (commit, around);
        let State { records, ghosts, roll, .. } = state;
        let is_there = |session| roll.is_there(session);
        let wall_ms = now.wall.as_ms();
        let (commit, idle) = (Commit { batch, gone, is_there: &is_there, wall_ms }, Record::default());
        let mut grants = Vec::new();
        for key in keys {
            let (index, record) = (self.index(key), records.peek(key).unwrap_or(&idle));
            if let Err(wrong) = ghosts[index].commit(key, record, &commit, &mut grants) {
                seen.wrong.push(format!("{key}: {wrong}: {batch:?}"));
            }
            seen.ended.extend(grants.drain(..).map(|(grant, end)| (index, grant, end)));
        }
    }

    fn show(&self, seen: Seen) {
        seen.wrong.into_iter().for_each(|wrong| self.0.oracle.accuse(wrong));
        if !seen.ended.is_empty() {
            self.0.oracle.ended(&seen.ended);
        }
        if !seen.evicted.is_empty() {
            self.0.oracle.evicted(&seen.evicted);
        }
        if !seen.given_up.is_empty() {
            self.0.oracle.given_up(&seen.given_up);
        }
    }

    fn trace(&self, state: &State, commit: (&Batch, &[Key]), reply: &Reply, now: Now) {
        let (batch, keys) = commit;
        if !self.0.oracle.is_loud() {
            return;
        }
        let (at, session) = (now.monotonic.as_ms(), short(batch.session));
        eprintln!("{at:>8} {session:04x} {:?} ends {:?} robbed {:?}", batch.step, batch.ends, reply.robbed);
        for (operation, answer) in batch.operations.iter().zip(&reply.answers) {
            eprintln!("{:>8}   {} {:?} {:?}", "", operation.key, operation.action, answer.outcome);
        }
        for key in keys {
            let record = state.records.peek(key).map_or_else(String::new, |record| briefly(record, &state.records));
            eprintln!("{:>8}   {key}: {record}", "");
        }
    }

    fn save(&self, state: &State, keys: &[Key]) -> Undo {
        let ghosts = keys.iter().map(|key| (self.index(key), state.ghosts[self.index(key)].clone())).collect();
        Undo { records: state.records.clone(), ghosts, roll: state.roll.clone() }
    }
}

impl State {
    /// The grants of a session, as the ghosts know them: those of the last commit.
    fn held_by(&self, session: SessionId) -> Vec<(usize, u64)> {
        let ghosts = self.ghosts.iter().enumerate();
        ghosts.flat_map(|(key, ghost)| ghost.held_by(session).map(move |grant| (key, grant))).collect()
    }

    /// The grants of a session, as they stand in the records now.
    fn named(&self, keys: &[Key], session: SessionId) -> Vec<(usize, u64)> {
        let mut named = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let grants = self.records.peek(key).map_or(&[][..], |record| &record.grants);
            let own = grants.iter().filter(|grant| grant.holder == session);
            named.extend(own.map(|grant| (index, grant.block.first.as_u64())));
        }
        named
    }

    /// Those who stand at these keys and have no row any more.
    fn gone_at(&self, keys: &[Key]) -> BTreeSet<SessionId> {
        let records = keys.iter().filter_map(|key| self.records.peek(key));
        let named = records.flat_map(|record| {
            let holders = record.grants.iter().map(|grant| grant.holder);
            holders.chain(record.queue.iter().map(|waiter| waiter.holder))
        });
        named.filter(|session| !self.roll.is_there(*session)).collect()
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Vault({})", self.0.number)
    }
}
