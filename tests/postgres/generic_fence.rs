//! Fences in generic code whose future a program spawns: such a future must be `Send`, whatever the lifetimes of the transaction.

use std::time::Duration;

use leasehold::{
    LeaseGuard, LeaseManager,
    executor::TokioExecutor,
    store::{FenceError, Fenced, FencedTransaction},
};

#[cfg(any(feature = "store-postgres-deadpool", feature = "store-postgres-sqlx"))]
use crate::pools::Pool as _;
use crate::server::{Place, on_server};

/// By value, as a layer that does not know the driver takes it.
async fn passed(
    guard: &LeaseGuard,
    transaction: impl FencedTransaction<Passed = Fenced>,
) -> Result<Fenced, FenceError> {
    guard.fence(transaction).await
}

/// By a reference to the transaction.
async fn borrowed<'t, T>(guard: &LeaseGuard, transaction: &'t mut T) -> Result<Fenced, FenceError>
where
    &'t mut T: FencedTransaction<Passed = Fenced>,
{
    guard.fence(transaction).await
}

async fn acquire(place: &Place) -> (LeaseManager, LeaseGuard) {
    let leases = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
    let guard = leases.lock("k").timeout(Duration::from_secs(20)).acquire().await.unwrap();
    (leases, guard)
}

/// Fences the transaction twice, and commits it.
macro_rules! fence_twice {
    ($guard:expr, $transaction:expr) => {{
        let mut transaction = $transaction.await.unwrap();
        let first = passed(&$guard, &mut transaction).await.unwrap();
        let second = borrowed(&$guard, &mut transaction).await.unwrap();
        transaction.commit().await.unwrap();
        first.committed();
        second.committed();
    }};
}

#[test]
fn a_task_fences_a_transaction_in_generic_code() {
    on_server("generic_fence", |place| async move {
        let (leases, guard) = acquire(&place).await;
        let mut user = place.client().await;
        tokio::spawn(async move { fence_twice!(guard, user.transaction()) }).await.unwrap();
        leases.close().await;
    });
}

#[cfg(feature = "store-postgres-deadpool")]
#[test]
fn a_task_fences_a_transaction_of_deadpool_in_generic_code() {
    on_server("generic_fence_deadpool", |place| async move {
        let (leases, guard) = acquire(&place).await;
        let mut client = deadpool_postgres::Pool::open(&place.url, 1).await.get().await.unwrap();
        tokio::spawn(async move { fence_twice!(guard, client.transaction()) }).await.unwrap();
        leases.close().await;
    });
}

#[cfg(feature = "store-postgres-sqlx")]
#[test]
fn a_task_fences_a_transaction_of_sqlx_in_generic_code() {
    on_server("generic_fence_sqlx", |place| async move {
        let (leases, guard) = acquire(&place).await;
        let pool = sqlx::PgPool::open(&place.url, 1).await;
        tokio::spawn(async move { fence_twice!(guard, pool.begin()) }).await.unwrap();
        leases.close().await;
    });
}
