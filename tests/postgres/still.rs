//! A store whose runtime lives, but nobody drives it.

use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    store::{PostgresStore, Store},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
    time::timeout,
};

use crate::server::{PATIENCE, Place};
use crate::until::until;

/// The store was connected in this runtime, which has no thread of its own.
fn connected(prefix: &str) -> Option<(Runtime, PostgresStore)> {
    let place = Place::new(prefix)?;
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(place.store());
    Some((runtime, store))
}

#[test]
fn whoever_asks_a_store_whose_runtime_nobody_drives_is_told_so() {
    let Some((still, store)) = connected("still_told") else { return };
    let runtime = Runtime::new().unwrap();
    let leases = runtime.block_on(async {
        let builder = LeaseManager::builder(store.clone(), TokioExecutor::new()).lease(Duration::from_secs(3));
        let leases = builder.build().unwrap();
        let said = [
            leases.lock("k").timeout(Duration::from_secs(2)).acquire().await.unwrap_err().to_string(),
            leases.status("k").await.unwrap_err().to_string(),
            timeout(PATIENCE, Store::keys(&store, "")).await.unwrap().unwrap_err().to_string(),
            timeout(PATIENCE, store.migrate()).await.unwrap().unwrap_err().to_string(),
        ];
        for said in said {
            assert!(["block_on", "drive that runtime"].iter().all(|word| said.contains(word)), "{said}");
        }
        leases
    });
    let (_ends, ended) = oneshot::channel::<()>();
    thread::spawn(move || still.block_on(ended));
    runtime.block_on(async {
        until("it works again", async || leases.status("k").await.is_ok_and(|status| status.holders.is_empty())).await;
        drop(leases.lock("k").acquire().await.unwrap().release().await);
    });
}

/// Tokio tells only by a panic that a runtime has no timers, and the panic hook may end the process or call somebody.
#[test]
fn a_runtime_without_timers_is_asked_for_them_once() {
    let Some(place) = Place::new("still_timeless") else { return };
    let runtime = Runtime::new().unwrap();
    let leases = runtime.block_on(async {
        let leases = LeaseManager::builder(place.store().await, TokioExecutor::new()).build().unwrap();
        drop(leases.lock("k").acquire().await.unwrap().release().await);
        leases
    });
    let (panics, before, here) = (Arc::new(AtomicUsize::new(0)), panic::take_hook(), thread::current().id());
    let counts = panics.clone();
    panic::set_hook(Box::new(move |told| {
        counts.fetch_add(usize::from(thread::current().id() == here), Relaxed);
        before(told);
    }));
    let timeless = Builder::new_current_thread().build().unwrap();
    for _ in 0..5 {
        assert_eq!(timeless.block_on(leases.list("")).unwrap().len(), 0);
    }
    assert!(panics.load(Relaxed) <= 1, "{panics:?} panics");
}
