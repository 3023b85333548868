//! A fence in a transaction of sqlx.

use core::task::{Context, Waker};
use std::boxed::Box;

use async_trait::async_trait;
use sqlx::{Executor, PgConnection, Postgres, Transaction};

use super::{
    super::super::{
        super::{Fence, FenceError, Fenced, FencedTransaction},
        carrier::{Answers, Carrier, Failure, Round},
        fence::{REFUSAL, judge},
    },
    carry,
};
use crate::executor::{MaybeSendFuture, Shared};

type Verdict = Result<Fenced, FenceError>;

/// A read-write transaction of `sqlx`, in the database that keeps the leases.
///
/// The fence locks the lease's record `FOR SHARE`, queued behind whoever waits to change it, and checks it. The transaction stays borrowed
/// until the answer is ready. Nobody else is granted the lease before the transaction ends, so keep it short.
///
/// Call [`committed`](Fenced::committed) after the commit. Then the manager may pass the lease to its next request without asking the
/// server.
///
/// **A refused transaction cannot be committed**: it is in the failed state. `commit()` of `sqlx` rolls it back and reports no error, so
/// check the answer of the fence. If you drop the answer before the check has passed, `commit()` fails. If you also dropped a statement
/// of your own half-way, or a nested transaction without awaiting its `rollback()`, roll the transaction back: `sqlx` sends nothing before
/// it has read the answer to that, so the commit might pass. Fence the outermost transaction: rolling back to a savepoint undoes everything
/// since, including the fence and a refusal.
///
/// The database user of the transaction needs the rights SELECT and UPDATE on `<prefix>_record` and `<prefix>_session`, and SELECT on
/// `<prefix>_store`. To renew the lease, it also needs INSERT on `<prefix>_session`.
///
/// ```no_run
/// # async fn example(guard: leasehold::LeaseGuard, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// let fenced = guard.fence(&mut transaction).await?;
/// sqlx::query("UPDATE notes SET text = 'milk'").execute(&mut *transaction).await?;
/// transaction.commit().await?;
/// fenced.committed();
/// # Ok(()) }
/// ```
impl<'a, 'b> FencedTransaction for &'a mut Transaction<'b, Postgres> {
    type Passed = Fenced;
    type Answer = MaybeSendFuture<'a, Verdict>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        // Created here, so that it takes effect even if the answer is never polled.
        let mut gate = Gate { connection: self, open: false };
        Box::pin(async move {
            match judge(&*fence, &mut gate, [Some(BOLT), Some(UNBOLT)]).await {
                Ok(()) => {
                    gate.open();
                    Ok(Fenced::passed(fence))
                }
                Err(why) => {
                    let why = gate.refuse(why).await;
                    fence.over();
                    Err(why)
                }
            }
        })
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        let mut gate = Gate { connection: self, open: false };
        Box::pin(async move { Err(gate.refuse(why).await) })
    }
}

/// A commit fetches the rows of a cursor `WITH HOLD`, and fails on this one, so nobody can commit while the check is in flight. A statement
/// that fails at once would have to be sent when the answer is dropped, and sqlx sends nothing while another answer is awaited. `concat`
/// is not immutable, so it is not computed when the cursor is declared.
const BOLT: &str = "DECLARE leasehold_fence NO SCROLL CURSOR WITH HOLD FOR \
    SELECT pg_catalog.concat('the fence of leasehold ', 'was not awaited')::integer";
const UNBOLT: &str = "CLOSE leasehold_fence";

/// Lets nobody commit until it is open.
struct Gate<'a> {
    connection: &'a mut PgConnection,
    open: bool,
}

impl Gate<'_> {
    const fn open(&mut self) {
        self.open = true;
    }

    async fn refuse(&mut self, why: FenceError) -> FenceError {
        // The answer is an error in any case, and without a connection nothing is committed.
        let _ = carry(&mut *self.connection, &Round::one(REFUSAL)).await;
        self.open();
        why
    }
}

#[async_trait]
impl Carrier for Gate<'_> {
    async fn carry(&mut self, round: &Round) -> Result<Answers, Failure> {
        carry(&mut *self.connection, round).await
    }
}

impl Drop for Gate<'_> {
    /// A caller that drops the answer may go on to commit. If nothing is in flight, the first poll sends the statement; else the bolt holds.
    fn drop(&mut self) {
        if !self.open {
            let mut refusal = self.connection.execute(REFUSAL);
            let _ = refusal.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}
