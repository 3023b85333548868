//! Synapse's `WorkerLocks`, over leases: workers of one deployment share locks through its PostgreSQL database. A lock is for reading
//! or for writing; several are had together; and whoever waits is told of the release.
//!
//! `LEASES=postgres://localhost/synapse cargo run --example worker_locks --features tokio,store-postgres`

use std::time::Duration;

use futures::future::join_all;
use leasehold::{AcquireError, LeaseGuard, LeaseManager, Mode, MultiGuard, executor::TokioExecutor};

/// One worker's access to the locks of all.
#[derive(Debug)]
pub(crate) struct WorkerLocks(LeaseManager);

impl WorkerLocks {
    /// Connects to the database.
    pub(crate) async fn open(url: &str) -> Result<Self, AcquireError> {
        Ok(Self(LeaseManager::from_url(url, TokioExecutor::new()).await?))
    }

    /// Waits for a lock that one worker has at a time.
    pub(crate) async fn acquire_lock(&self, name: &str, key: &str) -> Result<LeaseGuard, AcquireError> {
        self.0.lock(&format!("{name}/{key}")).acquire().await
    }

    /// Waits for a lock that all who read share, and who writes has alone.
    pub(crate) async fn acquire_read_write_lock(
        &self,
        name: &str,
        key: &str,
        write: bool,
    ) -> Result<LeaseGuard, AcquireError> {
        let request = self.0.lock(&format!("{name}/{key}"));
        if write { request.acquire().await } else { request.shared().acquire().await }
    }

    /// Waits for several locks, and has all of them or none.
    pub(crate) async fn acquire_multi_read_write_lock(
        &self,
        locks: &[(&str, &str)],
        write: bool,
    ) -> Result<MultiGuard, AcquireError> {
        let mode = if write { Mode::Exclusive } else { Mode::Shared };
        self.0.lock_all(locks.iter().map(|(name, key)| (format!("{name}/{key}"), mode))).acquire().await
    }

    /// Gives back what is held.
    pub(crate) async fn close(&self) {
        self.0.close().await;
    }
}

/// Rooms are purged by one worker at a time, while no worker persists events there.
pub(crate) async fn a_purge_waits_for_events_and_keeps_them_out(url: &str) -> Result<(), AcquireError> {
    let workers = join_all((0..3).map(|_| WorkerLocks::open(url))).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let [persister, other, purger] = &workers[..] else { unreachable!("there are three") };
    let room = ("delete_room", "!room:example.org");
    let first = persister.acquire_read_write_lock(room.0, room.1, false).await?;
    let second = other.acquire_read_write_lock(room.0, room.1, false).await?;
    println!("two workers persist events");

    let both = [room, ("purge", "media")];
    let mut purge = Box::pin(purger.acquire_multi_read_write_lock(&both, true));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut purge).await;
    assert!(early.is_err(), "the purge began while events were persisted");
    first.release().await.map_err(AcquireError::from)?;
    second.release().await.map_err(AcquireError::from)?;
    let purging = purge.await?;
    println!("the room is purged");

    let mut event = Box::pin(persister.acquire_read_write_lock(room.0, room.1, false));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut event).await;
    assert!(early.is_err(), "an event was persisted during the purge");
    purging.release().await.map_err(AcquireError::from)?;
    assert!(event.await?.is_valid());
    join_all(workers.iter().map(WorkerLocks::close)).await;
    Ok(())
}

/// Never more than one of many workers is inside.
pub(crate) async fn many_workers_take_turns(url: &str) -> Result<(), AcquireError> {
    let workers = join_all((0..8).map(|_| WorkerLocks::open(url))).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let inside = std::cell::Cell::new(0);
    let turns = workers.iter().map(async |worker| {
        for _ in 0..5 {
            let lock = worker.acquire_lock("background_update", "main").await?;
            assert_eq!(inside.replace(inside.get() + 1), 0, "two workers are inside");
            tokio::task::yield_now().await;
            inside.set(inside.get() - 1);
            lock.release().await.map_err(AcquireError::from)?;
        }
        Ok::<_, AcquireError>(())
    });
    join_all(turns).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    println!("eight workers took five turns each");
    join_all(workers.iter().map(WorkerLocks::close)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), AcquireError> {
    let url = std::env::var("LEASES").unwrap_or_else(|_| "postgres://localhost/synapse".into());
    a_purge_waits_for_events_and_keeps_them_out(&url).await?;
    many_workers_take_turns(&url).await
}
