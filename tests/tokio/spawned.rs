//! All futures may be spawned: they move between threads.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::poll_immediate;
use leasehold::{
    AcquireError, LeaseManager, Mode,
    executor::{Executor, TokioExecutor},
    store::MemoryStore,
};
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

/// Work that borrows what it captured, and work that owns it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_whose_work_captures_something() {
    let (leases, other) = (leases(), Arc::new(Mutex::new(0)));
    let led = other.clone();
    let campaign = spawn({
        let leases = leases.clone();
        async move {
            leases
                .elect("borrows", async |_| {
                    *led.lock().unwrap() = 1;
                    pending::<()>().await;
                })
                .await
        }
    });
    crate::until(async || *other.lock().unwrap() == 1).await;
    campaign.abort();
    let led = other.clone();
    let elected = spawn(async move {
        let request = leases.lock("owns").info("node 7").priority(5);
        let info = request.elect(move |lease| {
            let (led, leases) = (led.clone(), leases.clone());
            async move {
                *led.lock().unwrap() += 1;
                assert!(lease.is_valid());
                leases.leader("owns").await.map(|leader| leader.map(|leader| leader.info))
            }
        });
        info.await?
    });
    assert_eq!(elected.await.unwrap(), Ok(Some("node 7".into())));
    assert_eq!(*other.lock().unwrap(), 2);
}

/// Whose work has no value needs to look at nothing.
#[deny(unused_must_use)]
#[tokio::test]
async fn a_run_needs_no_look_at_its_value() -> Result<(), AcquireError> {
    let leases = leases();
    leases.lock("k").run(async |_| ()).await?;
    leases.lock("k").try_run(async |_| ()).await?;
    Ok(())
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

/// Thousands of requests may wait at the same time.
#[tokio::test]
async fn a_request_is_small() {
    let request = leases().lock("k").acquire();
    assert!(size_of_val(&request) <= 224, "{} bytes", size_of_val(&request));
}

/// Each context that waits or holds a lease has an alarm that sleeps.
#[tokio::test]
async fn a_sleep_is_small() {
    let executor = TokioExecutor::new();
    executor.check().unwrap();
    let sleep = executor.sleep(Duration::from_secs(1));
    let most = size_of::<tokio::time::Sleep>() + 120;
    assert!(size_of_val(&*sleep) <= most, "{} of {most} bytes", size_of_val(&*sleep));
}
