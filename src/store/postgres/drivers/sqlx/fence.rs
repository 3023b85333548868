//! A fence in a transaction of sqlx.

use std::boxed::Box;

use async_trait::async_trait;
use sqlx::{PgConnection, Postgres, Transaction};

use super::{
    super::super::{
        super::{Fence, FenceError, Fenced, FencedTransaction},
        carrier::{Answers, Carrier, Failure, Round},
        fence::{self, Bolt, Verdict},
    },
    carry,
};
use crate::executor::{MaybeSendFuture, Shared};

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
        fence::check(&mut **self, fence, Some(BOLT))
    }

    fn refuse(self, why: FenceError) -> Self::Answer {
        fence::refuse(&mut **self, why)
    }
}

/// A commit fetches the rows of a cursor `WITH HOLD`, and fails on this one, so nobody can commit while the check is in flight. A statement
/// that fails at once would have to be sent when the answer is dropped, and sqlx sends nothing while another answer is awaited. `concat`
/// is not immutable, so it is not computed when the cursor is declared.
const BOLT: Bolt = [
    "DECLARE leasehold_fence NO SCROLL CURSOR WITH HOLD FOR \
        SELECT pg_catalog.concat('the fence of leasehold ', 'was not awaited')::integer",
    "CLOSE leasehold_fence",
];

#[async_trait]
impl Carrier for &mut PgConnection {
    async fn carry(&mut self, round: &Round) -> Result<Answers, Failure> {
        carry(&mut **self, round).await
    }
}
