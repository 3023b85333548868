//! Scenarios in which one context cannot reach the store for a while, because a proxy stands between them.
//!
//! A store's own test program says `absences::tests!(pair)`, with the function that also makes the contexts of `delays`.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use leasehold::LeaseState;
use tokio::time::{sleep, timeout};

use crate::delays::Pair;

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// The store is away for a third of this lease, so that at least one heartbeat fails. A busy machine has the rest of the lease for the next.
const LEASE: Duration = Duration::from_secs(12);
/// The more often the holder renews its lease, the more of it is left when the store is away.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A lease whose end can be waited for, and which leaves a busy machine time to answer.
const SHORT_LEASE: Duration = Duration::from_secs(4);

pub(crate) async fn w4_a_short_absence_of_the_store_loses_nothing(pair: Pair) {
    let [far, near] = [pair.far, pair.near].map(|context| context.lease(LEASE).heartbeat(HEARTBEAT).build().unwrap());
    let guard = far.lock("k").acquire().await.unwrap();
    let (token, watch) = (guard.token(), guard.watch());
    let mut waiting = Box::pin(near.lock("k").acquire());
    let since = Instant::now();
    pair.proxy.fall_silent();
    assert!(
        timeout(LEASE / 3, &mut waiting).await.is_err(),
        "a holder that is silent for a third of its lease is evicted"
    );
    pair.proxy.cut();
    // Longer than a lease lasts if nobody renews it. On a busy machine, the holder may be in doubt for a moment.
    while since.elapsed() < LEASE * 5 / 4 || !guard.is_valid() {
        let early = timeout(Duration::from_millis(20), &mut waiting).await;
        assert!(early.is_err(), "a holder that renews was evicted after {:?}", since.elapsed());
        assert!(!matches!(watch.state(), LeaseState::Lost(_)), "a loss is told: {:?}", watch.state());
        assert!(since.elapsed() < BUSY, "a lease that is renewed is in doubt");
    }
    assert_eq!(guard.token(), token);
    assert!(guard.verify().await.unwrap());
}

/// A lease that was lost is not revived. Whoever campaigns wins the key anew.
pub(crate) async fn w5_who_lost_the_lead_wins_it_anew_with_a_larger_token(pair: Pair) {
    let [far, near] = [pair.far, pair.near].map(|context| context.lease(SHORT_LEASE).build().unwrap());
    let terms = Mutex::new(Vec::new());
    let led = far.elect("k", async |guard| {
        terms.lock().unwrap().push(guard.token());
        if terms.lock().unwrap().len() == 1 {
            pair.proxy.fall_silent();
            std::future::pending::<()>().await;
        }
    });
    let events = async {
        while terms.lock().unwrap().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
        let between = near.lock("k").timeout(BUSY).acquire().await.unwrap();
        drop(between.release().await);
        pair.proxy.cut();
        between.token()
    };
    let (led, between) = futures::join!(timeout(BUSY * 2, led), events);
    led.expect("it leads again").unwrap();
    let terms = terms.into_inner().unwrap();
    assert_eq!(terms.len(), 2);
    assert!(terms[0] < between && between < terms[1], "{terms:?}, {between:?}");
}

macro_rules! tests {
    ($pair:path) => {
        $crate::absences::tests! { $pair:
            w4_a_short_absence_of_the_store_loses_nothing
            w5_who_lost_the_lead_wins_it_anew_with_a_larger_token
        }
    };
    ($pair:path: $($name:ident)+) => {
        $(#[test]
        fn $name() {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let Some(pair) = $pair(&runtime, stringify!($name)) else { return };
            runtime.block_on($crate::absences::$name(pair));
        })+
    };
}
pub(crate) use tests;
