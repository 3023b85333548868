//! A fence in a transaction of the user's: the lease's record stays locked until that transaction ends.

use core::task::{Context, Waker};
use std::{boxed::Box, string::String, vec::Vec};

use futures::future::join4;
use tokio_postgres::{Error, Transaction};

use super::{
    super::{Fence, FenceError, Fenced, FencedTransaction},
    failure,
    names::Names,
    options::{ask_database, is_by_cluster, name_of},
    rows::{Changed, Hold, Runner, SCHEMA, StoreText, Tables, load_records, load_sessions},
};
use crate::executor::{MaybeSendFuture, Shared};
use crate::machine::{Key, Records, StoreError, StoreId};

type Verdict = Result<Fenced, FenceError>;

/// A read-write transaction of `tokio-postgres`, in the database that keeps the leases.
///
/// The fence locks the lease's record `FOR SHARE`, behind whoever waits to change it, and checks it. The transaction stays borrowed until the answer is ready. Nobody is
/// granted the lease before the transaction ends, so keep it short. **A refused transaction cannot be committed**: it is in the failed
/// state. So is one whose answer is dropped before it is ready. `commit()` of `tokio-postgres` rolls such a transaction back and reports
/// no error, so look at the answer of the fence. Fence the outermost transaction: rolling back to a savepoint undoes all that was done
/// since, including the fence and a refusal.
///
/// The database user of the transaction needs the rights SELECT and UPDATE on `<prefix>_record` and `<prefix>_session`, and SELECT on
/// `<prefix>_store`. To renew the lease, it also needs INSERT on `<prefix>_session`.
///
/// ```no_run
/// # async fn example(guard: leasehold::LeaseGuard, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = client.transaction().await?;
/// guard.fence(&mut transaction).await?;
/// transaction.execute("UPDATE notes SET text = 'milk'", &[]).await?;
/// transaction.commit().await?;
/// # Ok(()) }
/// ```
impl<'a, 'b: 'a> FencedTransaction for &'a mut Transaction<'b> {
    type Passed = Fenced;
    type Answer = MaybeSendFuture<'a, Verdict>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        // Made here, so that it is there although nobody polls the answer.
        let mut gate = Gate { transaction: self, open: false };
        Box::pin(async move {
            let verdict = gate.judge(&*fence).await;
            match verdict {
                Ok(()) => {
                    gate.open();
                    Ok(Fenced::passed(fence))
                }
                Err(why) => Err(gate.refuse(why).await),
            }
        })
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        let mut gate = Gate { transaction: self, open: false };
        Box::pin(async move { Err(gate.refuse(why).await) })
    }
}

/// No statement, and so an error: from it on the transaction can only be rolled back.
const REFUSAL: &str = "SELECT 'the fence of leasehold refused this transaction'::integer";

/// Lets nobody commit until it is open.
struct Gate<'a> {
    transaction: &'a Transaction<'a>,
    open: bool,
}

impl Gate<'_> {
    const fn open(&mut self) {
        self.open = true;
    }

    async fn refuse(&mut self, why: FenceError) -> FenceError {
        // The answer is an error in any case, and without a connection nothing is committed.
        let _ = self.transaction.batch_execute(REFUSAL).await;
        self.open();
        why
    }

    async fn judge(&self, fence: &dyn Fence) -> Result<(), FenceError> {
        let names = Names::of(&fence.reach()).ok_or_else(|| FenceError::Misuse(ELSEWHERE.into()))?;
        let tables = Tables { names: &names, runner: Runner::Transaction(self.transaction) };
        let check = Check { fence, tables };
        let (store, mut records) = check.read().await?;
        fence.judge(store, &mut records)?;
        check.write(&Changed::take(&mut records)).await
    }
}

impl Drop for Gate<'_> {
    /// Whoever drops the answer may go on to commit. The statement is sent by the first poll, before any other of theirs.
    fn drop(&mut self) {
        if !self.open {
            let mut refusal = Box::pin(self.transaction.batch_execute(REFUSAL));
            let _ = refusal.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

const ELSEWHERE: &str = "the lease is not kept in the database of this transaction; begin the transaction in the database that the \
    lease's PostgresStore is connected to, by the same server and port";
const READ_ONLY: &str =
    "the transaction is read-only, so there is nothing to fence; begin it with read_only(false), on the primary";
const MAY_WRITE: &str = "current_setting('transaction_read_only')";

struct Check<'a> {
    fence: &'a dyn Fence,
    tables: Tables<'a>,
}

impl Check<'_> {
    /// Locks and reads: all but a session in one round trip.
    async fn read(&self) -> Result<(Option<StoreId>, Records), FenceError> {
        let ticket = self.fence.ticket();
        let keys: Vec<Key> = ticket.batch.keys();
        let runner = self.tables.runner;
        let by_cluster = is_by_cluster(&self.tables.names.database);
        let place = ask_database(runner, by_cluster, MAY_WRITE, &[]);
        let mut locks: Vec<i64> = keys.iter().map(|key| self.tables.names.lock_of_key(key)).collect();
        locks.sort_unstable();
        let records = self.tables.records(&keys, Hold::Share);
        let (place, locked, found, store) =
            join4(place, self.tables.lock_shared(&locks), records, self.tables.store(Hold::Not)).await;
        self.check_place(place)?;
        locked.map_err(|error| self.failed(&error))?;
        let mut records = Records::new();
        let found = found.map_err(|error| self.failed(&error))?;
        load_records(&mut records, &keys, &found).map_err(|error| self.failed(&error))?;
        let store = self.store_id(store.map_err(|error| self.failed(&error))?, &mut records)?;
        // Only the own row: it takes the heartbeat, and tells what became of a grant that is gone.
        if ticket.renews() || !ticket.finds_its_grant(&records) {
            let ids = [ticket.batch.session];
            let found = self.tables.sessions(&ids, Hold::Update).await.map_err(|error| self.failed(&error))?;
            load_sessions(&mut records, &ids, &found).map_err(|error| self.failed(&error))?;
        }
        Ok((store, records))
    }

    fn check_place(&self, place: Result<Vec<tokio_postgres::Row>, Error>) -> Result<(), FenceError> {
        let place = place.map_err(|error| self.failed(&error))?;
        let row = place.first().ok_or_else(|| FenceError::Misuse(ELSEWHERE.into()))?;
        let database = name_of(row).map_err(|error| self.failed(&error))?;
        if database != self.tables.names.database {
            return Err(FenceError::Misuse(ELSEWHERE.into()));
        }
        let read_only: String = row.try_get(2).map_err(|error| self.failed(&error))?;
        if read_only == "on" { Err(FenceError::Misuse(READ_ONLY.into())) } else { Ok(()) }
    }

    /// Which store it is. One without a row, or whose row cannot be read, is none that a lease was granted in.
    fn store_id(&self, store: Option<StoreText>, records: &mut Records) -> Result<Option<StoreId>, FenceError> {
        let Some(StoreText { schema, text: Some(text) }) = store else { return Ok(None) };
        if schema != SCHEMA {
            return Err(FenceError::Store(failure::other_schema(self.tables.names, schema, SCHEMA)));
        }
        let is_known = records.load_store(Some(&text), StoreId::default()).is_ok();
        Ok(is_known.then(|| records.store()))
    }

    async fn write(&self, changed: &Changed) -> Result<(), FenceError> {
        debug_assert!(changed.store.is_none(), "a fence forgets no record, so that it raises no floor");
        self.tables.write(changed).await.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &Error) -> FenceError {
        match failure::code(error) {
            "25006" => FenceError::Misuse(READ_ONLY.into()),
            "25P02" => FenceError::Store(StoreError::transient(
                "the transaction had failed before its fence was checked; roll it back and begin another one",
            )),
            _ => FenceError::Store(failure::of_statement(error, self.tables.names)),
        }
    }
}
