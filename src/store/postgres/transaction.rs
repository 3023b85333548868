//! One transaction: lock, read, apply, write, commit, in three round trips.
//!
//! # Locks, in the order in which they are taken
//!
//! 1. Advisory locks of the batch's own session and of its keys, sorted by their numbers. A record that does not exist cannot
//!    be locked; nor can the row of a session that two transactions of one context open at once. An advisory lock needs no row, and so
//!    leaves none behind for a key that is only looked at.
//!    Fences share the lock of their key, so that a stream of them does not keep a transaction waiting for ever.
//! 2. The records, sorted, `FOR UPDATE`: a [fence](super::fence) keeps others out by these rows alone.
//! 3. The rows of the sessions, sorted, `FOR UPDATE`: in a statement of their own, which sees what was committed before the
//!    records were locked.
//! 4. The store's own row, at its write. It is read without a lock, so that it does not serialise everything, and written only
//!    if it still has the text that was read. Else the transaction is rolled back and repeated with that row locked.

use core::time::Duration;
use std::{
    string::String,
    sync::atomic::{AtomicBool, Ordering},
    vec::Vec,
};

use tokio::time::timeout;

use super::{
    carrier::{Answers, Failure, Loan, Round},
    failure,
    lending::{Errand, Lending, Lent},
    names::Names,
    rows::{Changed, Hold, SCHEMA, StoreText, load_peers, load_records, load_sessions},
};
use crate::machine::{Batch, Key, Records, Reply, StoreError, StoreId, StoreNow};

/// How often a transaction is begun anew: for the store's own row once, and for each connection that was cut while it was idle.
pub(super) const TRIES: usize = 8;

/// Why a transaction did not come to its end.
enum Fault {
    /// It was rolled back, or will be.
    Server(Failure),
    /// A commit was sent.
    Commit(Failure),
    /// What was read cannot be used.
    Unusable(StoreError),
    /// Somebody else wrote the store's own row.
    Overtaken,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Server(failure)
    }
}

/// A transaction to be run.
pub(super) struct Work {
    pub(super) batch: Batch,
    pub(super) now: StoreNow,
    pub(super) limit: Duration,
    /// The id of the store, should it be a new one.
    pub(super) fresh: StoreId,
}

impl Work {
    /// Runs it within its limit.
    pub(super) async fn run(self, lending: &Lending, names: &Names) -> Result<Reply, StoreError> {
        let committing = AtomicBool::new(false);
        match timeout(self.limit, self.try_often(lending, names, &committing)).await {
            Ok(result) => result,
            // The connection was dropped with the transaction in it: the server rolls back what it was not told to commit.
            Err(_) if committing.load(Ordering::Relaxed) => {
                Err(StoreError::unknown("the server did not answer the commit in time"))
            }
            Err(_) => Err(StoreError::transient("the transaction did not reach its commit in time")),
        }
    }

    async fn try_often(&self, lending: &Lending, names: &Names, committing: &AtomicBool) -> Result<Reply, StoreError> {
        let mut hold = Hold::Not;
        let errand = if self.batch.keys().is_empty() { Errand::Heartbeat } else { Errand::Any };
        for _ in 0..TRIES {
            // A little less than the whole limit, so that this failure is the one reported.
            let mut lent = lending.lend(errand, self.limit / 10 * 9).await?;
            let used = lent.used;
            let fault = match (Attempt { work: self, names, loan: &mut *lent.loan, hold, committing }).run().await {
                Ok(reply) => {
                    lent.give_back();
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            roll_back(lent).await;
            match fault {
                Fault::Overtaken => hold = Hold::Update,
                Fault::Server(failure) if used && failure.is_cut() => lending.lender().forget_idle(),
                Fault::Server(failure) => return Err(failure::of_statement(&failure, names)),
                Fault::Commit(failure) => return Err(failure::of_commit(&failure, names)),
                Fault::Unusable(error) => return Err(error),
            }
        }
        Err(StoreError::transient(format!("the transaction was overtaken or disconnected {TRIES} times in a row")))
    }
}

/// The connection goes back if it is certainly in no transaction any more.
async fn roll_back(mut lent: Lent<'_>) {
    if lent.loan.carry(&Round::one("ROLLBACK")).await.is_ok() {
        lent.give_back();
    }
}

struct Attempt<'a> {
    work: &'a Work,
    names: &'a Names,
    loan: &'a mut (dyn Loan + 'a),
    /// How the store's own row is read.
    hold: Hold,
    committing: &'a AtomicBool,
}

impl Attempt<'_> {
    async fn run(&mut self) -> Result<Reply, Fault> {
        let (mut records, read) = self.read().await?;
        let reply = self.work.batch.apply(&mut records, self.work.now);
        self.write(&Changed::take(&mut records), read.as_deref()).await?;
        Ok(reply)
    }

    /// Locks and reads; gives the text of the store's own row, too.
    async fn read(&mut self) -> Result<(Records, Option<String>), Fault> {
        let (batch, names) = (&self.work.batch, self.names);
        let keys: Vec<Key> = batch.keys();
        let mut records = Records::new();
        let mut round = Round::default();
        begin(self.work.limit, &mut round);
        round.add(&names.lock(&self.locks(&keys)));
        if !keys.is_empty() {
            let place = round.add(&names.read_records(&keys, Hold::Update));
            let answers = self.loan.carry(&round).await?;
            load_records(&mut records, &keys, answers.rows(place));
            round = Round::default();
        }
        let ids = records.sessions_of(batch);
        let sessions = round.add(&names.read_sessions(&ids, Hold::Update));
        let store = round.add(&names.read_store(self.hold));
        let wanted = batch.peers();
        let peers = (wanted > 0).then(|| round.add(&names.read_peers(batch.session, wanted)));
        let answers = self.loan.carry(&round).await?;
        let text = self.load_store(&mut records, &answers, store)?;
        load_sessions(&mut records, &ids, answers.rows(sessions));
        load_peers(&mut records, &ids, peers.map_or(&[], |peers| answers.rows(peers)));
        Ok((records, text))
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

    async fn write(&mut self, changed: &Changed, read: Option<&str>) -> Result<(), Fault> {
        if changed.is_empty() {
            // Nothing is committed, so that nothing can be unknown.
            return Ok(self.loan.carry(&Round::one("ROLLBACK")).await.map(drop)?);
        }
        let mut round = Round::default();
        self.names.write(changed, &mut round);
        if let Some(text) = &changed.store {
            // The last of the locks, and the commit hangs on it.
            let place = round.add(&self.names.write_store(read, text));
            if self.loan.carry(&round).await?.rows(place).is_empty() {
                return Err(Fault::Overtaken);
            }
            round = Round::default();
        }
        self.commit(round).await
    }

    /// Commits at the end of a round. The statement timeout must not cut short the wait for replicas: the server would answer as if they
    /// had the transaction.
    async fn commit(&mut self, mut round: Round) -> Result<(), Fault> {
        let writes = round.add("SET LOCAL statement_timeout = 0");
        round.add("COMMIT");
        self.committing.store(true, Ordering::Relaxed);
        match self.loan.carry(&round).await {
            Ok(_) => Ok(()),
            // The server stopped at a write.
            Err(failure) if failure.before.count() < writes && failure::is_of_statement(&failure) => {
                Err(Fault::Server(failure))
            }
            Err(failure) => Err(Fault::Commit(failure)),
        }
    }
}

/// Whatever the user, the database or a pooler set before holds no longer: how transactions see each other, that this one may
/// write, how long it may take, and how the server encodes the texts that are read, and then written again. A context that is stopped
/// in the middle of it holds up the others for so long at most. Its commit is on the disk when it is answered: a lease that a crash of
/// the server undoes would be granted twice.
fn begin(limit: Duration, round: &mut Round) {
    let fifths = |count: u128| i32::try_from(limit.as_millis() * count / 5).unwrap_or(i32::MAX).max(1);
    // A little less than the whole, so that the server's answer is still waited for.
    let (ms, lock_ms) = (fifths(4), fifths(3));
    round.add("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
    round.add(&format!("SET LOCAL statement_timeout = {ms}"));
    round.add(&format!("SET LOCAL lock_timeout = {lock_ms}"));
    round.add(&format!("SET LOCAL idle_in_transaction_session_timeout = {ms}"));
    round.add("SET LOCAL synchronous_commit = on");
    round.add("SET LOCAL client_encoding = 'UTF8'");
}
