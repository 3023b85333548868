//! The scenarios of matrix-rust-sdk's `CrossProcessLock`, M1 to M5, over the example that implements its `TryLock`, on any store that
//! processes reach by a URL.

use super::matrix_try_lock::{LeaseLocks, TryLock, spin};

/// What `CrossProcessLock` asks for while it has the lock; any other number but 0 would do.
const KEEP: u32 = 500;

async fn two(url: &str) -> [LeaseLocks; 2] {
    [LeaseLocks::open(url, "first").await.unwrap(), LeaseLocks::open(url, "second").await.unwrap()]
}

async fn close(locks: [LeaseLocks; 2]) {
    for locks in locks {
        locks.close().await;
    }
}

/// M1: `test_simple_lock_unlock`.
async fn m1_a_lock_is_taken_kept_and_given_back(url: &str) {
    let [first, second] = two(url).await;
    let generation = first.try_lock(KEEP, "m1", "first").await.unwrap().expect("it is free");
    assert_eq!(first.try_lock(KEEP, "m1", "first").await.unwrap(), Some(generation), "it is kept");
    assert_eq!(second.try_lock(KEEP, "m1", "second").await.unwrap(), None, "and held in the store");
    assert_eq!(first.try_lock(0, "m1", "first").await.unwrap(), Some(generation), "it is released");
    assert_eq!(first.try_lock(0, "m1", "first").await.unwrap(), None, "once");
    assert_eq!(spin(&first, "m1", "first").await.unwrap(), generation, "clean: nobody else had it");
    close([first, second]).await;
}

/// M2: `test_self_recovery`.
async fn m2_a_lock_made_anew_recovers_its_own_key(url: &str) {
    let [first, second] = two(url).await;
    let made_anew = first.clone();
    let generation = first.try_lock(KEEP, "m2", "first").await.unwrap();
    drop(first);
    assert_eq!(second.try_lock(KEEP, "m2", "second").await.unwrap(), None, "nothing was released");
    assert_eq!(made_anew.try_lock(KEEP, "m2", "first").await.unwrap(), generation);
    close([made_anew, second]).await;
}

/// M3: `test_multiple_holders_same_process`. `CrossProcessLock` counts them, and releases when the last one goes.
async fn m3_two_holders_of_one_process_share(url: &str) {
    let [first, second] = two(url).await;
    let both = futures::join!(first.try_lock(KEEP, "m3", "first"), first.try_lock(KEEP, "m3", "first"));
    let generations = (both.0.unwrap().expect("it is free"), both.1.unwrap().expect("it is shared"));
    assert_eq!(generations.0, generations.1);
    first.try_lock(0, "m3", "first").await.unwrap().expect("it is released");
    second.try_lock(KEEP, "m3", "second").await.unwrap().expect("and free for others");
    close([first, second]).await;
}

/// M4: `test_multiple_processes`.
async fn m4_one_holds_the_other_waits_and_obtains_after_the_release(url: &str) {
    let [first, second] = two(url).await;
    first.try_lock(KEEP, "m4", "first").await.unwrap().expect("it is free");
    assert_eq!(second.try_lock(KEEP, "m4", "second").await.unwrap(), None);
    let release = async { first.try_lock(0, "m4", "first").await.unwrap().expect("it is released") };
    futures::join!(spin(&second, "m4", "second"), release).0.unwrap();
    let late = tokio::time::timeout(std::time::Duration::from_millis(200), spin(&first, "m4", "first")).await;
    assert!(late.is_err(), "two processes hold it");
    close([first, second]).await;
}

/// M5: `test_multiple_processes_up_to_dirty`.
async fn m5_a_generation_ends_when_another_holds_the_lock(url: &str) {
    let locks @ [first, second] = &two(url).await;
    let turn = async |locks: &LeaseLocks, holder: &str| {
        let generation = spin(locks, "m5", holder).await.unwrap();
        locks.try_lock(0, "m5", holder).await.unwrap().expect("it was held");
        generation
    };
    let (mut own, mut others) = (turn(first, "first").await, turn(second, "second").await);
    for _ in 0..3 {
        let dirty = turn(first, "first").await;
        assert_ne!(dirty, own, "the second one held it meanwhile");
        assert_eq!(turn(first, "first").await, dirty, "nobody did");
        let also_dirty = turn(second, "second").await;
        assert_ne!(also_dirty, others, "the first one held it meanwhile");
        (own, others) = (dirty, also_dirty);
    }
    close(locks.clone()).await;
}

/// All of them, one after the other.
pub(crate) async fn all(url: &str) {
    m1_a_lock_is_taken_kept_and_given_back(url).await;
    m2_a_lock_made_anew_recovers_its_own_key(url).await;
    m3_two_holders_of_one_process_share(url).await;
    m4_one_holds_the_other_waits_and_obtains_after_the_release(url).await;
    m5_a_generation_ends_when_another_holds_the_lock(url).await;
}
