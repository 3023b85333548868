//! The real executor: several threads, real time. What is decided is tested in simulated time; here it is driven.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]
#![expect(clippy::disallowed_methods, reason = "a test spawns its contestants itself")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use futures::future::join_all;
use leasehold::{LeaseManager, ReleaseOutcome, executor::TokioExecutor, store::MemoryStore};
use tokio::task::{spawn, yield_now};

fn manager(store: &MemoryStore) -> LeaseManager {
    LeaseManager::builder(store.clone(), TokioExecutor::new()).build().unwrap()
}

/// S1 on several threads: contexts and tasks within them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_than_one_is_inside_on_several_threads() {
    let store = MemoryStore::new();
    let (inside, largest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks = (0..4).flat_map(|_| {
        let leases = manager(&store);
        (0..3).map(move |_| leases.clone())
    });
    let tasks = tasks.map(|leases| {
        let (inside, largest) = (inside.clone(), largest.clone());
        spawn(async move {
            for turn in 0..500_u64 {
                let guard = leases.lock("k").acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                let token = guard.token().as_u64();
                assert!(largest.swap(token, Ordering::SeqCst) < token);
                if turn % 7 == 0 {
                    yield_now().await;
                }
                assert!(guard.is_valid());
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                if turn % 2 == 0 {
                    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
                }
            }
        })
    });
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        task.unwrap();
    }
}

/// A guard may be dropped where there is no runtime; timers of other leases go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_dropped_on_a_foreign_thread_is_released_and_others_are_renewed() {
    let store = MemoryStore::new();
    let build = || LeaseManager::builder(store.clone(), TokioExecutor::new()).lease(Duration::from_secs(1)).build();
    let (one, two) = (build().unwrap(), build().unwrap());
    let guard = one.lock("a").acquire().await.unwrap();
    let leases = one.clone();
    let kept = thread::spawn(move || {
        drop(guard);
        futures::executor::block_on(leases.lock("b").acquire()).unwrap()
    });
    let kept = kept.join().unwrap();
    assert!(two.lock("a").try_acquire().await.unwrap().is_some());
    // It is renewed for longer than a lease, while another context would take it if it could.
    let refused = two.lock("b").timeout(Duration::from_millis(1_500)).acquire().await;
    assert!(refused.is_err() && kept.is_valid());
}
