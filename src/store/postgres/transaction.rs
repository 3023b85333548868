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
    sync::atomic::{AtomicBool, Ordering},
    vec::Vec,
};

use futures::future::{join, join3, join5};
use tokio::time::timeout;
use tokio_postgres::Error;

use super::{
    failure,
    names::Names,
    pool::{Errand, Lent, Pool},
    rows::{Changed, Hold, Runner, SCHEMA, Tables, load_peers, load_records, load_sessions},
};
use crate::machine::{Batch, Key, Records, Reply, SessionId, StoreError, StoreId, StoreNow};

/// How often a transaction is begun anew: for the store's own row once, and for each connection that was cut while it was idle.
const TRIES: usize = 8;

/// Why a transaction did not come to its end.
enum Fault {
    /// It was rolled back, or will be.
    Server(Error),
    /// A commit was sent.
    Commit(Error),
    /// What was read cannot be used.
    Unusable(StoreError),
    /// Somebody else wrote the store's own row.
    Overtaken,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Server(error)
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
    pub(super) async fn run(self, pool: &Pool, names: &Names) -> Result<Reply, StoreError> {
        let committing = AtomicBool::new(false);
        match timeout(self.limit, self.try_often(pool, names, &committing)).await {
            Ok(result) => result,
            // The connection was dropped with the transaction in it: the server rolls back what it was not told to commit.
            Err(_) if committing.load(Ordering::Relaxed) => {
                Err(StoreError::unknown("the server did not answer the commit in time"))
            }
            Err(_) => Err(StoreError::transient("the transaction did not reach its commit in time")),
        }
    }

    async fn try_often(&self, pool: &Pool, names: &Names, committing: &AtomicBool) -> Result<Reply, StoreError> {
        let mut hold = Hold::Not;
        let errand = if self.batch.keys().is_empty() { Errand::Heartbeat } else { Errand::Any };
        for _ in 0..TRIES {
            let lent = pool.lend(errand).await?;
            let tables = Tables { names, runner: Runner::Connection(&lent.client) };
            let attempt = Attempt { work: self, tables, hold, committing };
            let fault = match attempt.run().await {
                Ok(reply) => {
                    lent.give_back();
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            let was_cut = lent.client.is_closed();
            let was_idle = lent.used;
            roll_back(lent).await;
            match fault {
                Fault::Overtaken => hold = Hold::Update,
                Fault::Server(error) if was_idle && (was_cut || error.is_closed()) => pool.forget_idle(),
                Fault::Server(error) => return Err(failure::of_statement(&error, names)),
                Fault::Commit(error) => return Err(failure::of_commit(&error, names)),
                Fault::Unusable(error) => return Err(error),
            }
        }
        Err(StoreError::transient(format!("the transaction was overtaken or disconnected {TRIES} times in a row")))
    }
}

/// The connection goes back if it is certainly in no transaction any more.
async fn roll_back(lent: Lent<'_>) {
    if !lent.client.is_closed() && lent.client.batch_execute("ROLLBACK").await.is_ok() {
        lent.give_back();
    }
}

struct Attempt<'a> {
    work: &'a Work,
    tables: Tables<'a>,
    /// How the store's own row is read.
    hold: Hold,
    committing: &'a AtomicBool,
}

impl Attempt<'_> {
    async fn run(&self) -> Result<Reply, Fault> {
        let (mut records, read) = self.read().await?;
        let reply = self.work.batch.apply(&mut records, self.work.now);
        self.write(&Changed::take(&mut records), read.as_deref()).await?;
        Ok(reply)
    }

    /// Locks and reads; gives the text of the store's own row, too.
    async fn read(&self) -> Result<(Records, Option<String>), Fault> {
        let (batch, tables) = (&self.work.batch, &self.tables);
        let keys: Vec<Key> = batch.keys();
        let (begin, locks) = (begin(self.work.limit), self.locks(&keys));
        let mut records = Records::new();
        let (store, sessions, ids, peers);
        let others = tables.peers(batch.session, batch.peers());
        // What is polled together goes out together, in this order.
        if keys.is_empty() {
            ids = records.sessions_of(batch);
            let reads = join5(
                tables.runner.run(&begin),
                tables.lock(&locks),
                self.sessions(&ids),
                tables.store(self.hold),
                others,
            );
            let (begun, locked, found, own, more) = reads.await;
            begun.and(locked)?;
            (sessions, store, peers) = (found?, own?, more?);
        } else {
            let reads =
                join3(tables.runner.run(&begin), tables.lock(&locks), tables.records(&keys, Hold::Update)).await;
            reads.0.and(reads.1)?;
            load_records(&mut records, &keys, &reads.2?)?;
            ids = records.sessions_of(batch);
            let reads = join3(self.sessions(&ids), tables.store(self.hold), others).await;
            (sessions, store, peers) = (reads.0?, reads.1?, reads.2?);
        }
        let Some(own) = store else { return Err(Fault::Unusable(failure::no_row(tables.names))) };
        if own.schema != SCHEMA {
            return Err(Fault::Unusable(failure::other_schema(tables.names, own.schema, SCHEMA)));
        }
        let fresh = self.work.fresh;
        records.load_store(own.text.as_deref(), fresh).map_err(|unreadable| Fault::Unusable(unreadable.into()))?;
        load_sessions(&mut records, &ids, &sessions)?;
        load_peers(&mut records, &ids, &peers)?;
        Ok((records, own.text))
    }

    async fn sessions(&self, ids: &[SessionId]) -> Result<Vec<tokio_postgres::Row>, Error> {
        self.tables.sessions(ids, Hold::Update).await
    }

    /// In the order of their numbers, so that nobody waits for each other.
    fn locks(&self, keys: &[Key]) -> Vec<i64> {
        let names = self.tables.names;
        let mut locks: Vec<i64> = keys.iter().map(|key| names.lock_of_key(key)).collect();
        locks.push(names.lock_of_session(self.work.batch.session));
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    async fn write(&self, changed: &Changed, read: Option<&str>) -> Result<(), Fault> {
        if changed.is_empty() {
            // Nothing is committed, so that nothing can be unknown.
            return Ok(self.tables.runner.run("ROLLBACK").await?);
        }
        if let Some(text) = &changed.store {
            // The last of the locks, and the commit hangs on it.
            let (written, own) = join(self.tables.write(changed), self.tables.write_store(read, text)).await;
            written?;
            if !own? {
                return Err(Fault::Overtaken);
            }
            return self.commit().await.map_err(Fault::Commit);
        }
        let (written, committed) = join(self.tables.write(changed), self.commit()).await;
        // A commit behind a statement that the server refused is a rollback.
        match written {
            Err(error) if failure::is_of_statement(&error) => Err(Fault::Server(error)),
            Err(error) => Err(Fault::Commit(error)),
            Ok(()) => committed.map_err(Fault::Commit),
        }
    }

    /// The time limit of statements must not cut short the wait for replicas: the server would answer as if they had it.
    async fn commit(&self) -> Result<(), Error> {
        self.committing.store(true, Ordering::Relaxed);
        self.tables.runner.run("SET LOCAL statement_timeout = 0; COMMIT").await
    }
}

/// Whatever the user, the database or a pooler set before holds no longer: how transactions see each other, that this one may
/// write, and how long it may take. A context that is stopped in the middle of it holds up the others for so long at most. Its
/// commit is on the disk when it is answered: a lease that a crash of the server undoes would be granted twice.
fn begin(limit: Duration) -> String {
    let fifths = |count: u128| i32::try_from(limit.as_millis() * count / 5).unwrap_or(i32::MAX).max(1);
    // A little less than the whole, so that the server's answer is still waited for.
    let (ms, lock_ms) = (fifths(4), fifths(3));
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = {ms}; \
         SET LOCAL lock_timeout = {lock_ms}; SET LOCAL idle_in_transaction_session_timeout = {ms}; \
         SET LOCAL synchronous_commit = on"
    )
}
