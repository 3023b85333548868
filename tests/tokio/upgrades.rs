//! Upgrades of clones of one guard: what one of them gives up takes nothing from the other.

use futures::future::poll_immediate;
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, Mode,
    executor::TokioExecutor,
    store::{Fault, FaultyStore, MemoryStore},
};
use tokio::time::sleep;

use crate::{manager, ms, until};

async fn becomes_exclusive(guard: &LeaseGuard) {
    until(async || guard.mode() == Mode::Exclusive).await;
}

fn faulty(memory: &MemoryStore) -> (LeaseManager, FaultyStore<MemoryStore>) {
    let store = FaultyStore::new(memory.clone());
    // While the store fails, an upgrade is tried again for the length of a lease.
    (LeaseManager::builder(store.clone(), TokioExecutor::new()).lease(ms(2_000)).build().unwrap(), store)
}

/// The first upgrade fails while its task is busy elsewhere, and is dropped after the second one was granted.
#[tokio::test]
async fn whoever_was_told_of_an_upgrade_keeps_it_although_an_earlier_one_is_dropped() {
    let memory = MemoryStore::new();
    let ((leases, store), other) = (faulty(&memory), manager(&memory));
    let guard = leases.lock("k").shared().acquire().await.unwrap();
    let clone = guard.clone();
    store.fail_always(Some(Fault::LoseReply));
    let mut first = Box::pin(guard.upgrade());
    assert!(poll_immediate(&mut first).await.is_none());
    // As long as the first one is under way, there is a conflict.
    let mut second = Box::pin(clone.upgrade());
    while let Some(answer) = poll_immediate(&mut second).await {
        assert!(matches!(answer, Err(AcquireError::UpgradeConflict { .. })), "{answer:?}");
        second = Box::pin(clone.upgrade());
        sleep(ms(5)).await;
    }
    store.heal();
    becomes_exclusive(&clone).await;
    drop(first);
    // What the drop asks for, if anything, is done before this.
    assert!(guard.verify().await.unwrap());
    second.await.unwrap();
    assert_eq!(clone.mode(), Mode::Exclusive);
    assert!(other.lock("k").shared().try_acquire().await.unwrap().is_none(), "another context reads");
}

#[tokio::test]
async fn an_upgrade_that_is_dropped_as_it_succeeds_leaves_the_guard_shared_although_an_earlier_one_was_told() {
    let memory = MemoryStore::new();
    let (leases, other) = (manager(&memory), manager(&memory));
    let reader = other.lock("k").shared().acquire().await.unwrap();
    let guard = leases.lock("k").shared().acquire().await.unwrap();
    let clone = guard.clone();
    let mut first = Box::pin(guard.upgrade());
    assert!(poll_immediate(&mut first).await.is_none());
    reader.release().await.unwrap();
    becomes_exclusive(&guard).await;
    // Another task makes it shared again before the first one looks.
    clone.downgrade().await.unwrap();
    first.await.unwrap();
    let reader = other.lock("k").shared().acquire().await.unwrap();
    let mut second = Box::pin(guard.upgrade());
    assert!(poll_immediate(&mut second).await.is_none());
    reader.release().await.unwrap();
    becomes_exclusive(&guard).await;
    drop(second);
    until(async || guard.mode() == Mode::Shared).await;
    assert!(other.lock("k").shared().timeout(ms(10_000)).acquire().await.is_ok());
}
