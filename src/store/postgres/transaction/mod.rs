//! One transaction: lock, read, apply, write, commit. It takes two round trips if the only other sessions that matter to it are those that
//! it [guessed](super::neighbours::Neighbours), otherwise three. If it ends another session, it takes one more. If its statements are prepared and nobody
//! else uses its only key, it takes [one](Memory), as long as the rows are still as the last transaction at that key left them. If they
//! are not, it takes one more.
//!
//! # Locks, in the order in which they are taken
//!
//! 1. Advisory locks of the batch's own session and of its keys, sorted by their numbers. A record that does not exist cannot
//!    be locked; nor can the row of a session that two transactions of one context open at once. An advisory lock needs no row, and so
//!    leaves none behind for a key that is only looked at.
//!    Fences share the lock of their key, so that a stream of them does not keep a transaction waiting for ever.
//! 2. The records, sorted, `FOR UPDATE`: a [fence](super::fence) keeps others out by these rows alone.
//! 3. The row of the context's own session, `FOR UPDATE`, so that nobody ends it meanwhile. A separate statement sees what was committed
//!    before the records were locked. The rows of others are read without a lock. A contender needs them only to tell the living from the
//!    dead, and its locks would keep their heartbeats waiting.
//! 4. The rows of others that are to be written, `FOR UPDATE`, unless somebody else has locked them: two sessions that write each other's
//!    rows would wait in a circle.
//! 5. The store's own row, at its write.
//!
//! If a row of 4 is locked, or a row of 4 or 5 has changed since it was read, the transaction is rolled back and repeated. It then locks
//! these rows when it reads them: the sessions' rows along with its own, sorted, and last the store's. Always locking the store's row would
//! serialise all transactions.

use core::time::Duration;
use std::{
    string::String,
    sync::atomic::{AtomicBool, Ordering},
    vec::Vec,
};

use tokio::time::{Instant, timeout};

mod look;
mod rewrite;
mod settings;

use super::{
    Place,
    carrier::{Answers, Failure, Loan, Round, Row},
    failure,
    lending::{Errand, Lending, Lent},
    literal::numbers,
    memory::Memory,
    names::Names,
    often::{Often, Prepared, keep_plans},
    rows::{Access, Changed, Hold, SCHEMA, StoreText, load_records, session_of, text_of_record, text_of_session},
    signals::Letter,
};
pub(super) use settings::begin_last_word;
use settings::{begin, yield_soon};

use crate::machine::{Applied, Batch, Key, Promotion, Records, Reply, SessionId, StoreError, StoreId, StoreNow};

/// How often a transaction is begun anew: for the store's own row once, and for each connection that was cut while it was idle.
pub(super) const TRIES: usize = 8;

/// The SQLSTATE of a commit whose notifications do not fit in the server's queue. Nothing is committed.
const NO_ROOM: &str = "54000";

/// The SQLSTATEs of a statement that cannot be run by its name. It is not prepared, or somebody has deallocated it; or its table was
/// altered, so that it would find other types than it was prepared for.
const UNPREPARED: [&str; 2] = ["26000", "0A000"];

/// The SQLSTATE of a statement that would have to wait for a lock, or has waited for too long.
const LOCKED: &str = "55P03";

/// Why a transaction did not come to its end.
enum Fault {
    /// It was rolled back, or will be.
    Server(Failure),
    /// The server refused a notification, and stopped there.
    Letter,
    /// A commit was sent.
    Commit(Failure),
    /// What was read cannot be used.
    Unusable(StoreError),
    /// Somebody else wrote, or has locked, a row that was read without a lock.
    Overtaken(Contested),
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Server(failure)
    }
}

/// Rows that a transaction did not lock when it read them, and that others wrote or locked meanwhile.
#[derive(Default)]
struct Contested {
    sessions: Vec<SessionId>,
    store: bool,
}

impl Contested {
    const fn has_any(&self) -> bool {
        self.store || !self.sessions.is_empty()
    }

    fn add(&mut self, other: Self) {
        self.store |= other.store;
        self.sessions.extend(other.sessions);
        self.sessions.sort_unstable();
        self.sessions.dedup();
    }
}

/// A transaction to be run.
pub(super) struct Work {
    pub(super) batch: Batch,
    pub(super) now: StoreNow,
    pub(super) limit: Duration,
    /// The id of the store, should it be a new one.
    pub(super) fresh: StoreId,
    /// Whether the transaction notifies the waiters to whom it grants a lease.
    pub(super) tells: bool,
    /// Whether it waits only for a moment for what others have locked. It is not urgent, and others wait for what it has locked.
    pub(super) yields: bool,
}

impl Work {
    /// Runs it within its limit.
    pub(super) async fn run(self, place: &Place) -> Result<Reply, StoreError> {
        let (committing, began) = (AtomicBool::new(false), Instant::now());
        if let Ok(result) = timeout(self.limit, self.try_often(place, &committing)).await {
            return result;
        }
        // A server that can be reached would have reported by now that its own, shorter limits had passed. So this server may be out of
        // reach on the idle connections, too.
        place.lending.lender().forget_server(began);
        place.ears.doubt();
        // The connection was dropped with the transaction in it: the server rolls back what it was not told to commit.
        Err(if committing.load(Ordering::Relaxed) {
            StoreError::unknown("the server did not answer the commit in time")
        } else {
            failure::before_commit(self.limit)
        })
    }

    async fn lend<'a>(&self, place: &'a Place) -> Result<Lent<'a>, StoreError> {
        let errand = if self.batch.keys().is_empty() { Errand::Heartbeat } else { Errand::Any };
        // A little less than the whole limit, so that this failure is the one reported.
        let lent = place.lending.lend(errand, self.limit / 10 * 9).await;
        if lent.is_err() && place.lending.lender().opens_what_it_is_asked_for() {
            place.ears.doubt();
        }
        lent
    }

    async fn try_often(&self, place: &Place, committing: &AtomicBool) -> Result<Reply, StoreError> {
        let Place { lending, names, memory, .. } = place;
        let (mut contested, mut tells) = (Contested::default(), self.tells);
        for _ in 0..TRIES {
            let mut lent = self.lend(place).await?;
            let used = lent.used;
            // Without signals there may be a pooler in between, which gives each transaction another connection.
            let by_name = place.signals.is_some() && has_prepared(&mut *lent.loan, names, self.limit).await;
            let fault = match (Attempt {
                work: self,
                place,
                names,
                memory,
                loan: &mut *lent.loan,
                contested: &contested,
                tells,
                by_name,
                committing,
            })
            .run()
            .await
            {
                Ok(reply) => {
                    lent.loan.prepared().map(Prepared::count);
                    lent.give_back();
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            let unprepared =
                matches!(&fault, Fault::Server(failure) if by_name && UNPREPARED.contains(&&*failure.code));
            if unprepared && let Some(prepared) = lent.loan.prepared() {
                prepared.refused();
            }
            let is_read_only =
                matches!(&fault, Fault::Server(failure) if !unprepared && failure::is_of_a_standby(failure));
            roll_back(lent, lending, is_read_only).await;
            match fault {
                Fault::Overtaken(rows) => contested.add(rows),
                Fault::Server(_) if unprepared => {}
                Fault::Server(failure) if used && failure.is_cut() => lending.lender().forget_idle(),
                Fault::Server(failure) => return Err(failure::of_transaction(&failure, names, &self.batch)),
                // The user may lack the right to notify. Leases do not depend on it: a waiter that is granted one finds that in the store.
                Fault::Letter => tells = false,
                // A listener that does not read fills the server's queue.
                Fault::Commit(failure) if tells && failure.code == NO_ROOM => tells = false,
                Fault::Commit(failure) => return Err(failure::of_commit(&failure, names)),
                Fault::Unusable(error) => return Err(error),
            }
        }
        Err(StoreError::transient(format!("the transaction was overtaken or disconnected {TRIES} times in a row")))
    }
}

/// Prepares the usual statements on the connection once that is worth it, and returns whether they are prepared.
async fn has_prepared(loan: &mut dyn Loan, names: &Names, limit: Duration) -> bool {
    if loan.prepared().is_some_and(|prepared| prepared.is_due()) {
        let is_done = prepare(loan, names, limit).await.is_ok();
        if !is_done {
            // The server stopped inside the transaction. Whatever is wrong, the next one on this connection reports it.
            let _ = loan.carry(&Round::one("ROLLBACK")).await;
        }
        if let Some(prepared) = loan.prepared() {
            if is_done { prepared.done() } else { prepared.refused() }
        }
    }
    loan.prepared().is_some_and(|prepared| prepared.is_done())
}

async fn prepare(loan: &mut dyn Loan, names: &Names, limit: Duration) -> Result<(), Failure> {
    let mut round = Round::default();
    // PREPARE waits for a table that somebody has locked. Most of the time is left to the transaction itself, if only to report that.
    begin(limit / 4, &mut round);
    if loan.prepared().is_some_and(|prepared| prepared.may_have_some()) {
        let there = loan.carry(&names.ask_prepared()).await?;
        let there = there.rows(0).iter().filter_map(|row| row.text(0));
        there.for_each(|name| _ = round.add(&format!("DEALLOCATE {name}")));
    }
    names.prepare(&mut round);
    round.add("ROLLBACK");
    loan.carry(&round).await.map(drop)
}

/// The connection goes back if it is certainly in no transaction any more. One to a standby does not: the primary may answer the next one.
async fn roll_back(mut lent: Lent<'_>, lending: &Lending, is_read_only: bool) {
    if is_read_only {
        drop(lent);
        lending.lender().forget_idle();
    } else if lent.loan.carry(&Round::one("ROLLBACK")).await.is_ok() {
        lent.give_back();
    }
}

struct Attempt<'a> {
    work: &'a Work,
    place: &'a Place,
    names: &'a Names,
    memory: &'a Memory,
    loan: &'a mut (dyn Loan + 'a),
    /// The rows that it locks when it reads them, because earlier tries were overtaken there.
    contested: &'a Contested,
    /// Whether the transaction notifies the waiters to whom it grants a lease.
    tells: bool,
    /// The connection has the usual statements prepared.
    by_name: bool,
    committing: &'a AtomicBool,
}

impl Attempt<'_> {
    async fn run(&mut self) -> Result<Reply, Fault> {
        if let Some(reply) = self.look().await? {
            return Ok(reply);
        }
        if let Some(reply) = self.rewrite().await? {
            return Ok(reply);
        }
        let mut read = self.read().await?;
        let mut reply = self.work.batch.apply(&mut read.records, self.work.now);
        self.note_neighbours(&read.records);
        let changed = Changed::take(&mut read.records);
        self.write(&read, &changed, &mut reply).await?;
        self.remember(&read, &changed);
        Ok(reply)
    }

    async fn read(&mut self) -> Result<Read, Fault> {
        let (batch, names) = (&self.work.batch, self.names);
        let keys: Vec<Key> = batch.keys();
        let mut records = Records::new();
        let mut round = Round::new(self.by_name);
        begin(self.work.limit, &mut round);
        if self.work.yields {
            yield_soon(&mut round);
        }
        if self.by_name {
            keep_plans(&mut round);
        }
        round.run(Often::Lock, names, &[&numbers(&self.locks(&keys))]);
        let found = (!keys.is_empty()).then(|| names.lock_records(&keys, &mut round));
        let locked = [&[batch.session], &self.contested.sessions[..]].concat();
        let own = names.lock_sessions(&locked, &mut round);
        let mut guessed = self.place.neighbours.at(&keys, batch.session);
        guessed.retain(|session| !locked.contains(session));
        let near = (!guessed.is_empty()).then(|| round.add(&names.read_sessions(&guessed, Hold::Not)));
        let store = if self.contested.store {
            round.add(&names.read_store(Hold::Update))
        } else {
            round.run(Often::Store, names, &[])
        };
        let wanted = batch.peers();
        let peers = (wanted > 0).then(|| round.add(&names.read_peers(batch.session, wanted)));
        let is_first = wanted > 0 && self.place.crowding.is_unknown();
        let first = is_first.then(|| (round.add(&names.ask_hiding(Access::Change)), round.add(&names.find_crowding())));
        let answers = self.loan.carry(&round).await?;
        if let Some((hiding, crowding)) = first {
            // A context would take a holder whose row it does not see for one that has ended.
            failure::check_hiding(answers.rows(hiding))?;
            self.place.crowding.found(!answers.rows(crowding).is_empty());
        }
        load_records(&mut records, &keys, found.map_or(&[], |found| answers.rows(found)));
        let session = text_of_session(answers.rows(own), batch.session).map(String::from);
        records.load_session(batch.session, session.as_deref());
        let store = self.load_store(&mut records, &answers, store)?;
        let known = [
            Known { ids: &locked, rows: answers.rows(own) },
            Known { ids: &guessed, rows: near.map_or(&[], |near| answers.rows(near)) },
        ];
        let mut others = self.read_others(&records, &known).await?;
        add_peers(&mut others, peers.map_or(&[], |peers| answers.rows(peers)));
        others.iter().for_each(|(session, text)| records.load_session(*session, text.as_deref()));
        let record = match (&keys[..], found) {
            ([key], Some(found)) => text_of_record(answers.rows(found), key).map(String::from),
            _ => None,
        };
        Ok(Read { records, store, session, record, others })
    }

    /// The rows of the other sessions that matter. Some of them were already read.
    async fn read_others(
        &mut self,
        records: &Records,
        known: &[Known<'_>],
    ) -> Result<Vec<(SessionId, Option<String>)>, Fault> {
        let batch = &self.work.batch;
        let (mut others, mut unknown) = (Vec::new(), Vec::new());
        for id in records.sessions_of(batch).into_iter().filter(|id| *id != batch.session) {
            match known.iter().find(|known| known.ids.contains(&id)) {
                Some(known) => others.push((id, text_of_session(known.rows, id).map(String::from))),
                None => unknown.push(id),
            }
        }
        if !unknown.is_empty() {
            let answers = self.loan.carry(&Round::one(&self.names.read_sessions(&unknown, Hold::Not))).await?;
            others.extend(unknown.into_iter().map(|id| (id, text_of_session(answers.rows(0), id).map(String::from))));
        }
        if others.iter().any(|(_, text)| text.is_none()) {
            // It has ended, and nobody has cleared up after it yet. Or policies hide it, which may be younger than this store.
            let answers = self.loan.carry(&Round::one(&self.names.ask_hiding(Access::Change))).await?;
            failure::check_hiding(answers.rows(0))?;
        }
        Ok(others)
    }

    fn note_neighbours(&self, records: &Records) {
        for key in self.work.batch.keys() {
            let record = records.peek(&key);
            let grants = record.into_iter().flat_map(|record| &record.grants).map(|grant| grant.holder);
            let queue = record.into_iter().flat_map(|record| &record.queue).map(|waiter| waiter.holder);
            let own = self.work.batch.session;
            self.place.neighbours.met(&key, grants.chain(queue).filter(|session| *session != own));
        }
    }

    fn load_store(&self, records: &mut Records, answers: &Answers, place: usize) -> Result<Option<String>, Fault> {
        let own = StoreText::of(answers, place).ok_or_else(|| Fault::Unusable(failure::no_row(self.names)))?;
        if own.schema != SCHEMA {
            return Err(Fault::Unusable(failure::other_schema(self.names, own.schema, SCHEMA)));
        }
        let fresh = self.work.fresh;
        records.load_store(own.text.as_deref(), fresh).map_err(|unreadable| Fault::Unusable(unreadable.into()))?;
        Ok(own.text)
    }

    /// In the order of their numbers, so that nobody waits for each other.
    fn locks(&self, keys: &[Key]) -> Vec<i64> {
        let mut locks: Vec<i64> = keys.iter().map(|key| self.names.lock_of_key(key)).collect();
        locks.push(self.names.lock_of_session(self.work.batch.session));
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    async fn write(&mut self, read: &Read, changed: &Changed, reply: &mut Reply) -> Result<(), Fault> {
        if changed.is_empty() {
            // Nothing is committed, so that nothing can be unknown.
            return Ok(self.loan.carry(&Round::one("ROLLBACK")).await.map(drop)?);
        }
        let others = self.others_of(changed);
        let mut round = Round::new(self.by_name);
        // This takes the last of the locks, and its rows decide whether to commit.
        let again = (!others.is_empty()).then(|| round.add(&self.names.read_sessions(&others, Hold::UpdateAtOnce)));
        let own = self.work.batch.session;
        let has_beacon = self.place.signals.is_some_and(|voice| voice.beacons);
        let beacon = has_beacon.then(|| (own, self.place.standing.of(own)));
        self.names.write(changed, beacon.as_ref(), &mut round);
        let store = changed.store.as_ref().map(|text| round.add(&self.names.write_store(read.store.as_deref(), text)));
        if again.is_some() || store.is_some() {
            let answers = match self.loan.carry(&round).await {
                Ok(answers) => answers,
                Err(failure) if failure.code == LOCKED && again == Some(failure.before.count()) => {
                    return Err(Fault::Overtaken(Contested { sessions: others, store: false }));
                }
                Err(failure) => return Err(failure.into()),
            };
            let store = store.is_some_and(|store| answers.rows(store).is_empty());
            let sessions = again.map_or_else(Vec::new, |again| read.overtaken(&others, answers.rows(again)));
            if store || !sessions.is_empty() {
                return Err(Fault::Overtaken(Contested { sessions, store }));
            }
            if !round.is_written(&answers) {
                return Err(Fault::Unusable(failure::not_written(self.names)));
            }
            round = Round::default();
        }
        let first_letter = round.count();
        let letters = self.letters(reply, &mut round);
        let answers = self.commit(round, first_letter).await?;
        for (promotion, place) in letters {
            promotion.told = Letter::is_heard(answers.rows(place));
        }
        Ok(())
    }

    /// Notifies the waiters that are granted a lease. A separate notification would cost one more round trip.
    fn letters<'r>(&self, reply: &'r mut Reply, round: &mut Round) -> Vec<(&'r mut Promotion, usize)> {
        let (batch, store) = (&self.work.batch, reply.store);
        let granted = reply.promotions_mut().filter(|_| self.tells);
        let letter = |promotion: &'r mut Promotion| {
            let letter = Letter::of(&promotion.message(store), batch.session, self.names)?;
            Some((promotion, round.add(&letter.statement())))
        };
        granted.filter_map(letter).collect()
    }

    /// The other sessions whose rows were changed.
    fn others_of(&self, changed: &Changed) -> Vec<SessionId> {
        changed.owners.iter().copied().filter(|owner| *owner != self.work.batch.session).collect()
    }

    /// Commits at the end of a round. The statement timeout does not cut short the wait for replicas: PostgreSQL lifts it before
    /// that wait. `first_letter` is the place of the first notification.
    async fn commit(&mut self, mut round: Round, first_letter: usize) -> Result<Answers, Fault> {
        let writes = round.add("COMMIT");
        self.committing.store(true, Ordering::Relaxed);
        match self.loan.carry(&round).await {
            Ok(answers) if round.is_written(&answers) => Ok(answers),
            // The other rows were written, and are committed.
            Ok(_) => Err(Fault::Unusable(StoreError { applied: Applied::Unknown, ..failure::not_written(self.names) })),
            // The server stopped at a notification, or at a write before it.
            Err(failure) if failure.before.count() < writes && failure::is_of_statement(&failure) => {
                self.committing.store(false, Ordering::Relaxed);
                Err(if failure.before.count() < first_letter { Fault::Server(failure) } else { Fault::Letter })
            }
            Err(failure) => Err(Fault::Commit(failure)),
        }
    }
}

/// Adds sessions that a transaction was told of beside those that matter to it.
fn add_peers(others: &mut Vec<(SessionId, Option<String>)>, peers: &[Row]) {
    for row in peers {
        let Some(peer) = session_of(row) else { continue };
        if !others.iter().any(|(known, _)| *known == peer) {
            others.push((peer, row.text(1).map(String::from)));
        }
    }
}

/// Sessions that were asked for, and the rows that were found.
struct Known<'a> {
    ids: &'a [SessionId],
    rows: &'a [Row],
}

/// What a transaction found.
struct Read {
    records: Records,
    /// The text of the store's own row.
    store: Option<String>,
    /// The row of the batch's session.
    session: Option<String>,
    /// The record of the batch's only key.
    record: Option<String>,
    /// The rows of other sessions, which are not locked.
    others: Vec<(SessionId, Option<String>)>,
}

impl Read {
    /// Which of these sessions no longer have the rows that were read.
    fn overtaken(&self, sessions: &[SessionId], found: &[Row]) -> Vec<SessionId> {
        let is_same = |session: SessionId| {
            let read = self.others.iter().find(|(id, _)| *id == session);
            debug_assert!(read.is_some(), "a batch changes no session that was not read");
            read.is_some_and(|(id, text)| text.as_deref() == text_of_session(found, *id))
        };
        sessions.iter().copied().filter(|session| !is_same(*session)).collect()
    }
}
