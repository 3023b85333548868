//! Scenarios in which somebody removes rows from the store by the store's own means, behind everybody's back.
//!
//! A store's own test program says `removals::tests!(open)`. Besides `context`, the store has the methods `remove`, which removes the
//! record of a key, and `wipe`, which removes everything.

use std::time::Duration;

use leasehold::{AcquireError, LeaseManagerBuilder, LostReason, ReleaseOutcome};

use super::{BUSY, context, ms};

/// What a test does to a store.
pub(crate) trait Rows {
    async fn context(&self) -> LeaseManagerBuilder;
    async fn remove(&self, key: &str);
    async fn wipe(&self);
}

/// The clock's part of a token is in milliseconds.
async fn let_the_clock_tick() {
    tokio::time::sleep(ms(2)).await;
}

pub(crate) async fn g5_a_lease_that_is_removed_from_the_store_is_told_and_nothing_blows_up(store: impl Rows) {
    let open = async || store.context().await;
    let (one, two) = (context(&open).await, context(&open).await);
    let (guard, kept) = (one.lock("k").acquire().await.unwrap(), one.lock("other").acquire().await.unwrap());
    let_the_clock_tick().await;
    store.remove("k").await;
    let lost = AcquireError::Lost { key: "k".into(), reason: LostReason::StoreCleared };
    assert_eq!(guard.extend(BUSY).await, Err(lost));
    assert_eq!(guard.lost().await, LostReason::StoreCleared);
    let next = two.lock("k").try_acquire().await.unwrap().expect("it is free");
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Lost);
    assert!(!guard.is_valid() && next.verify().await.unwrap() && kept.verify().await.unwrap());
}

pub(crate) async fn w15_a_store_that_forgets_is_noticed_and_tokens_go_on_growing(store: impl Rows) {
    let open = async || store.context().await;
    let one = context(&open).await;
    let guard = one.lock("k").acquire().await.unwrap();
    let_the_clock_tick().await;
    store.wipe().await;
    let next = one.lock("other").timeout(BUSY).acquire().await.unwrap();
    let told = tokio::time::timeout(Duration::ZERO, guard.lost()).await;
    assert_eq!(told, Ok(LostReason::StoreCleared), "at the first answer");
    let again = one.lock("k").timeout(BUSY).acquire().await.unwrap();
    assert!(again.token() > guard.token() && next.token() > guard.token());
    assert!(!guard.is_valid() && again.is_valid() && again.verify().await.unwrap());
}

macro_rules! tests {
    ($open:path) => {
        $crate::scenarios::removals::tests! { $open:
            g5_a_lease_that_is_removed_from_the_store_is_told_and_nothing_blows_up
            w15_a_store_that_forgets_is_noticed_and_tokens_go_on_growing
        }
    };
    ($open:path: $($scenario:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                let Some(store) = $open(stringify!($scenario)).await else { return };
                $crate::scenarios::removals::$scenario(store).await;
            }
        )+
    };
}
pub(crate) use tests;
