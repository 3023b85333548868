//! Closing: S6, and the close of the five systems.

use std::future::pending;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{OptionFuture, join};
use leasehold::executor::{Executor, SimExecutor};
use leasehold::machine::{Batch, Key, Now, Reply};
use leasehold::store::{Fault, FaultyStore, MemoryStore, Reach, Store};
use leasehold::{AcquireError, LeaseManager, LostReason, ReleaseOutcome, StoreError};

use crate::support::world::{everywhere, ms, secs};

/// S6: `test_shutdown`: two locks, then none.
#[test]
fn s6_closing_releases_everything_and_refuses_what_comes() {
    everywhere(async |world| {
        let (one, two) = (world.tab(), world.tab());
        let first = one.leases.lock("a").acquire().await.unwrap();
        let second = one.leases.lock("b").acquire().await.unwrap();
        let elsewhere = two.leases.lock("c").acquire().await.unwrap();
        let waiting = one.leases.lock("c").acquire();
        let close = async {
            world.sim.pass(ms(10)).await;
            assert!(!one.leases.is_closed());
            one.leases.close().await;
            one.leases.close().await;
        };
        let (refused, ()) = futures::join!(waiting, close);
        assert!(one.leases.is_closed() && !two.leases.is_closed());
        assert_eq!(refused.unwrap_err(), AcquireError::Closed);
        assert_eq!((first.lost().await, second.lost().await), (LostReason::Closed, LostReason::Closed));
        assert!(!first.is_valid() && elsewhere.is_valid());
        assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Lost);
        for key in ["a", "b"] {
            assert!(two.leases.lock(key).try_acquire().await.unwrap().is_some(), "{key} is free");
        }
        let status = two.leases.status("c").await.unwrap();
        assert!(status.queue.is_empty(), "the waiting one was withdrawn");
        assert_eq!(one.leases.lock("a").acquire().await.unwrap_err(), AcquireError::Closed);
        assert_eq!(one.leases.lock("a").try_acquire().await.unwrap_err(), AcquireError::Closed);
        assert_eq!(one.leases.status("a").await.unwrap_err(), AcquireError::Closed);
    });
}

#[test]
fn closing_ends_though_the_store_never_answers() {
    everywhere(async |world| {
        let tab = world.tab();
        let guard = tab.leases.lock("k").acquire().await.unwrap();
        tab.store.fail_always(Some(Fault::Stall));
        let verify = guard.verify();
        let close = async {
            world.sim.pass(ms(1)).await;
            let mut closing = Box::pin(tab.leases.close());
            assert!((&mut closing).now_or_never().is_none() && tab.leases.is_closed(), "no more requests meanwhile");
            world.within(secs(11), closing).await
        };
        let (verified, closed) = futures::join!(verify, close);
        assert!(closed.is_some(), "within two store time-outs");
        assert!(verified.is_err(), "who asked hears that there is no answer: {verified:?}");
    });
}

/// A store whose connection hangs in all but its transactions.
#[derive(Debug)]
struct Hung(FaultyStore<MemoryStore>);

#[async_trait::async_trait]
impl Store for Hung {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.0.transact(batch, now, limit).await
    }

    async fn keys(&self, _prefix: &str) -> Result<Vec<Key>, StoreError> {
        pending().await
    }

    async fn close(&self) {
        pending().await
    }

    fn reach(&self) -> Reach {
        self.0.reach()
    }
}

#[test]
fn listing_and_closing_end_though_the_store_hangs() {
    for stalls in [false, true] {
        everywhere(async |world| {
            let store = FaultyStore::new(world.shared.clone());
            let builder = LeaseManager::builder(Hung(store.clone()), world.sim.context());
            let leases = builder.store_timeout(secs(2)).build().unwrap();
            let _guard = leases.lock("k").acquire().await.unwrap();
            let listed = world.within(ms(2_001), leases.list("")).await.expect("within a store time-out");
            let error = listed.unwrap_err();
            assert!(error.to_string().contains("did not list its keys within 2000 ms"), "{error}");
            store.fail_always(Some(Fault::Stall).filter(|_| stalls));
            assert!(world.within(ms(4_001), leases.close()).await.is_some(), "within two store time-outs");
        });
    }
}

/// A store whose connection takes a second to close.
#[derive(Debug)]
struct Leisurely {
    inner: MemoryStore,
    sim: SimExecutor,
    closed: Arc<AtomicU64>,
}

#[async_trait::async_trait]
impl Store for Leisurely {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.inner.transact(batch, now, limit).await
    }

    async fn close(&self) {
        self.sim.sleep(secs(1)).await;
        self.closed.fetch_add(1, Relaxed);
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

/// What becomes of the first call that closes, while its store is being closed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    GoesOn,
    IsDropped,
    /// Its task is busy elsewhere.
    StandsStill,
}

/// Who closes once more may end the process next.
#[test]
fn whoever_closes_once_more_waits_for_the_store_too() {
    for fate in [First::GoesOn, First::IsDropped, First::StandsStill] {
        everywhere(async |world| {
            let closed = Arc::new(AtomicU64::new(0));
            let store = Leisurely { inner: world.shared.clone(), sim: world.sim.clone(), closed: closed.clone() };
            let leases = LeaseManager::builder(store, world.sim.context()).store_timeout(secs(2)).build().unwrap();
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
            let mut first = Some(Box::pin(leases.close()));
            assert!(world.within(ms(100), first.as_mut().unwrap()).await.is_none() && leases.is_closed());
            let goes_on = OptionFuture::from(first.take_if(|_| fate == First::GoesOn));
            drop(first.take_if(|_| fate == First::IsDropped));
            let again = async {
                join(leases.close(), leases.close()).await;
                assert_eq!(closed.load(Relaxed), u64::from(fate != First::StandsStill), "{fate:?}: it is closed once");
            };
            let ended = world.within(ms(4_001), join(again, goes_on)).await;
            assert!(ended.is_some(), "{fate:?}: within two store time-outs");
            assert!(leases.close().now_or_never().is_some() || fate == First::StandsStill);
        });
    }
}
