//! gitea's `globallock`, over leases: `lock`, `try_lock`, `lock_and_do`, `try_lock_and_do`. Several servers share the locks, through the
//! store that a setting names; gitea's own has Redis there.
//!
//! `LEASES=redis://127.0.0.1 cargo run --example lock_and_do --features tokio,store-redis`

use std::time::Duration;

use futures::future::join_all;
use leasehold::{AcquireError, LeaseGuard, LeaseManager, OnLoss, executor::TokioExecutor};

/// One server's access to the locks of all.
#[derive(Debug)]
pub(crate) struct Locker(LeaseManager);

impl Locker {
    /// Connects to the store that the setting names.
    pub(crate) async fn open(url: &str) -> Result<Self, AcquireError> {
        Ok(Self(LeaseManager::from_url(url, TokioExecutor::new()).await?))
    }

    /// Waits for the lock. Dropping the guard releases it.
    pub(crate) async fn lock(&self, key: &str, patience: Duration) -> Result<LeaseGuard, AcquireError> {
        self.0.lock(key).timeout(patience).acquire().await
    }

    /// The lock, if nobody has it.
    pub(crate) async fn try_lock(&self, key: &str) -> Result<Option<LeaseGuard>, AcquireError> {
        self.0.lock(key).try_acquire().await
    }

    /// Does the work under the lock. If the lock is lost, the work ends at its next await.
    pub(crate) async fn lock_and_do<T>(&self, key: &str, work: impl AsyncFnOnce() -> T) -> Result<T, AcquireError> {
        let request = self.0.lock(key).on_loss(OnLoss::Abort);
        Ok(request.run(async |_: &LeaseGuard| work().await).await?.value)
    }

    /// Does the work if nobody has the lock, and tells whether it did.
    pub(crate) async fn try_lock_and_do(&self, key: &str, work: impl AsyncFnOnce()) -> Result<bool, AcquireError> {
        let Some(guard) = self.try_lock(key).await? else { return Ok(false) };
        work().await;
        guard.release().await.map_err(AcquireError::from)?;
        Ok(true)
    }

    /// Gives back what is held.
    pub(crate) async fn close(&self) {
        self.0.close().await;
    }
}

/// Fifty workers of five servers count to fifty, and none of them by an atomic operation.
pub(crate) async fn fifty_workers_count_exactly(url: &str) -> Result<(), AcquireError> {
    let servers = join_all((0..5).map(|_| Locker::open(url))).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    // Not shared by reference: each worker reads it, waits, and writes it.
    let count = std::cell::Cell::new(0);
    let workers = (0..50_usize).map(async |worker| {
        let step = async || {
            let read = count.get();
            tokio::task::yield_now().await;
            count.set(read + 1);
        };
        servers[worker % servers.len()].lock_and_do("counter", step).await
    });
    join_all(workers).await.into_iter().collect::<Result<Vec<()>, _>>()?;
    assert_eq!(count.get(), 50);
    println!("50 workers counted to {}", count.get());
    join_all(servers.iter().map(Locker::close)).await;
    Ok(())
}

/// A lock that is taken is refused, in time and without an error, and is free after the release.
pub(crate) async fn a_taken_lock_is_refused(url: &str) -> Result<(), AcquireError> {
    let (one, other) = (Locker::open(url).await?, Locker::open(url).await?);
    let held = one.lock("repository", Duration::from_secs(60)).await?;
    assert!(other.try_lock("repository").await?.is_none());
    assert!(!other.try_lock_and_do("repository", async || unreachable!("it is taken")).await?);
    let late = other.lock("repository", Duration::from_millis(100)).await;
    assert!(matches!(late, Err(AcquireError::Timeout { .. })), "{late:?}");
    held.release().await.map_err(AcquireError::from)?;
    assert!(other.try_lock_and_do("repository", async || ()).await?);
    one.close().await;
    other.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), AcquireError> {
    let url = std::env::var("LEASES").unwrap_or_else(|_| "redis://127.0.0.1".into());
    fifty_workers_count_exactly(&url).await?;
    a_taken_lock_is_refused(&url).await
}
