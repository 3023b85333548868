//! A fence in a transaction of tokio-postgres.

use core::task::{Context, Waker};
use std::boxed::Box;

use async_trait::async_trait;
use tokio_postgres::Transaction;

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

/// A read-write transaction of `tokio-postgres`, in the database that keeps the leases.
///
/// The fence locks the lease's record `FOR SHARE`, queued behind whoever waits to change it, and checks it. The transaction stays borrowed
/// until the answer is ready. Nobody else is granted the lease before the transaction ends, so keep it short.
///
/// Call [`committed`](Fenced::committed) after the commit. Then the manager may pass the lease to its next request without asking the
/// server.
///
/// **A refused transaction cannot be committed**: it is in the failed state. So is one whose answer is dropped before it is ready.
/// `commit()` of `tokio-postgres` rolls such a transaction back and reports no error, so check the answer of the fence. Fence the
/// outermost transaction: rolling back to a savepoint undoes everything since, including the fence and a refusal.
///
/// The database user of the transaction needs the rights SELECT and UPDATE on `<prefix>_record` and `<prefix>_session`, and SELECT on
/// `<prefix>_store`. To renew the lease, it also needs INSERT on `<prefix>_session`.
///
/// ```no_run
/// # async fn example(guard: leasehold::LeaseGuard, client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = client.transaction().await?;
/// let fenced = guard.fence(&mut transaction).await?;
/// transaction.execute("UPDATE notes SET text = 'milk'", &[]).await?;
/// transaction.commit().await?;
/// fenced.committed();
/// # Ok(()) }
/// ```
impl<'a, 'b> FencedTransaction for &'a mut Transaction<'b> {
    type Passed = Fenced;
    type Answer = MaybeSendFuture<'a, Verdict>;

    fn check(self, fence: Shared<dyn Fence>) -> Self::Answer {
        // Created here, so that it takes effect even if the answer is never polled.
        let mut gate = Gate { transaction: self, open: false };
        Box::pin(async move {
            match judge(&*fence, &mut gate, [None; 2]).await {
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
        let mut gate = Gate { transaction: self, open: false };
        Box::pin(async move { Err(gate.refuse(why).await) })
    }
}

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
}

#[async_trait]
impl Carrier for Gate<'_> {
    async fn carry(&mut self, round: &Round) -> Result<Answers, Failure> {
        carry(self.transaction.client(), round).await
    }
}

impl Drop for Gate<'_> {
    /// A caller that drops the answer may go on to commit. The first poll sends the statement, before any other statement of the caller.
    fn drop(&mut self) {
        if !self.open {
            let mut refusal = Box::pin(self.transaction.batch_execute(REFUSAL));
            let _ = refusal.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}
