//! Closing: S6, and the close of the five systems.

use leasehold::store::Fault;
use leasehold::{AcquireError, LostReason, ReleaseOutcome};

use crate::world::{everywhere, ms, secs};

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
            one.leases.close().await;
            one.leases.close().await;
        };
        let (refused, ()) = futures::join!(waiting, close);
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
            world.within(secs(11), tab.leases.close()).await
        };
        let (verified, closed) = futures::join!(verify, close);
        assert!(closed.is_some(), "within two store time-outs");
        assert!(verified.is_err(), "who asked hears that there is no answer: {verified:?}");
    });
}
