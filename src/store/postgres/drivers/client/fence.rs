//! A fence in a transaction of tokio-postgres.

use std::boxed::Box;

use async_trait::async_trait;
use tokio_postgres::{Client, Transaction};

use super::{
    super::super::{
        super::{Fence, FenceError, Fenced, FencedTransaction},
        carrier::{Answers, Carrier, Failure, Round},
        fence::{self, Verdict},
    },
    carry,
};
use crate::executor::{MaybeSendFuture, Shared};

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
        fence::check(self.client(), fence, None)
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        fence::refuse(self.client(), why)
    }
}

#[async_trait]
impl Carrier for &Client {
    async fn carry(&mut self, round: &Round) -> Result<Answers, Failure> {
        carry(self, round).await
    }
}
