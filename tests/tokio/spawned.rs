//! All futures may be spawned: they move between threads.

use std::time::Duration;

use futures::future::poll_immediate;
use leasehold::{AcquireError, LeaseManager, Mode, executor::TokioExecutor, store::MemoryStore};
use tokio::task::{spawn, yield_now};

fn leases() -> LeaseManager {
    LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closures() {
    let leases = leases();
    let work = async move {
        let ran = leases.lock("k").run(async |lease| {
            yield_now().await;
            lease.token()
        });
        let first = ran.await?.value;
        let tried = leases.lock("k").try_run(async |lease| lease.token()).await?.unwrap();
        let elected = leases.elect("k", async |lease| {
            yield_now().await;
            lease.token()
        });
        Ok::<_, AcquireError>(first < tried.value && tried.value < elected.await?)
    };
    assert!(spawn(work).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_keys() {
    let leases = leases();
    let work = async move {
        let keys = [("a", Mode::Exclusive), ("b", Mode::Shared)];
        let waited = leases.lock_all(keys).acquire().await?;
        assert!(leases.lock_all(keys).try_acquire().await?.is_none());
        drop(waited);
        Ok::<_, AcquireError>(leases.lock_all(keys).try_acquire().await?.is_some())
    };
    assert!(spawn(work).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_guard_does() {
    let leases = leases();
    let work = async move {
        let guard = leases.lock("k").shared().acquire().await?;
        guard.upgrade().await?;
        guard.downgrade().await?;
        guard.extend(Duration::from_secs(1)).await?;
        let guard = leases.resume(guard.into_parts()).await?;
        let mut watch = guard.watch();
        assert!(poll_immediate(watch.changed()).await.is_none());
        let listed = leases.list("").await?.len();
        guard.release().await?;
        leases.close().await;
        Ok::<_, AcquireError>(listed)
    };
    assert_eq!(spawn(work).await.unwrap(), Ok(1));
}
