//! Slow connections: a holder reaches its server through a proxy that delays one direction, and another context waits without delay.
//!
//! A store's own test program says `delays::tests!(pair)`. The function `pair` makes the two contexts for the named test, or returns `None`
//! if the server is missing.

use std::time::{Duration, Instant};

use leasehold::{LeaseGuard, LeaseManagerBuilder, LeaseState};
use tokio::time::{sleep, timeout};

use crate::proxy::{Proxy, Way};

/// A heartbeat of two or three trips with this delay takes less than the time limit, which is a quarter of this lease.
const SHORT: Duration = Duration::from_millis(300);
const LEASE: Duration = Duration::from_secs(6);
/// A lease that ends before the answer comes.
const SHORT_LEASE: Duration = Duration::from_secs(2);
/// A delay that exceeds the lease.
const LONG: Duration = Duration::from_secs(5);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// Two contexts of one store, and the proxy of one of them.
pub(crate) struct Pair {
    pub(crate) proxy: Proxy,
    pub(crate) far: LeaseManagerBuilder,
    pub(crate) near: LeaseManagerBuilder,
}

/// Whether both believe that they hold the lease. The first to ask is asked again, for it may have lost the lease in between.
fn overlap(one: &LeaseGuard, other: &LeaseGuard) -> bool {
    one.is_valid() && other.is_valid() && one.is_valid()
}

/// A holder that was not evicted believes again in time.
async fn believes(guard: &LeaseGuard) {
    let believes = async {
        while !guard.is_valid() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(BUSY, believes).await.expect("a holder that was not evicted believes again");
}

/// A holder that can renew in time is not evicted.
pub(crate) async fn a_short_delay_costs_no_lease(pair: Pair, way: Way) {
    let (far, near) = (pair.far.lease(LEASE).build().unwrap(), pair.near.lease(LEASE).build().unwrap());
    let guard = far.lock("k").acquire().await.unwrap();
    pair.proxy.delay(way, SHORT);
    let mut waiting = Box::pin(near.lock("k").acquire());
    let since = Instant::now();
    // On a busy machine it may be in doubt for a moment.
    while since.elapsed() < LEASE * 2 || !guard.is_valid() {
        let early = timeout(Duration::from_millis(20), &mut waiting).await;
        assert!(early.is_err(), "a holder that renews was evicted after {:?}", since.elapsed());
        let state = guard.watch().state();
        assert!(!matches!(state, LeaseState::Lost(_)), "a lease that is renewed was lost: {state:?}");
        assert!(since.elapsed() < BUSY, "a lease that is renewed is in doubt");
    }
    // With the delay, these calls may exceed their time limit.
    pair.proxy.delay(way, Duration::ZERO);
    assert!(guard.verify().await.unwrap());
    guard.release().await.unwrap();
    let next = timeout(BUSY, waiting).await.expect("it was released").unwrap();
    assert!(next.token() > guard.token());
}

/// A holder that cannot renew in time stops believing before anybody else starts, and learns what became of its lease.
pub(crate) async fn a_long_delay_makes_no_second_holder(pair: Pair, way: Way) {
    let [far, near] = [pair.far, pair.near].map(|context| context.lease(SHORT_LEASE).build().unwrap());
    let first = far.lock("k").acquire().await.unwrap();
    pair.proxy.delay(way, LONG);
    let mut waiting = Box::pin(near.lock("k").acquire());
    let (since, mut second, mut doubted) = (Instant::now(), None, false);
    while since.elapsed() < LONG * 2 {
        match &second {
            None => second = timeout(Duration::from_millis(5), &mut waiting).await.ok().map(Result::unwrap),
            Some(second) => {
                assert!(!overlap(&first, second), "two hold the lease");
                sleep(Duration::from_millis(5)).await;
            }
        }
        doubted |= !first.is_valid();
    }
    assert!(doubted, "an answer that comes after the end of a lease does not prolong it");
    pair.proxy.delay(way, Duration::ZERO);
    println!("{way:?}: granted to the other: {}", second.is_some());
    if let Some(second) = second {
        timeout(BUSY, first.lost()).await.expect("it is told");
        assert!(!first.is_valid());
        believes(&second).await;
        assert!(second.token() > first.token());
    } else {
        // Its heartbeats reached the server; only their answers were late.
        believes(&first).await;
        first.release().await.unwrap();
        assert!(timeout(BUSY, waiting).await.expect("it was released").unwrap().token() > first.token());
    }
}

macro_rules! tests {
    ($pair:path) => {
        $crate::delays::tests! {
            $pair,
            requests_that_take_a_little_longer_cost_no_lease: a_short_delay_costs_no_lease ToServer,
            answers_that_take_a_little_longer_cost_no_lease: a_short_delay_costs_no_lease ToClient,
            requests_that_take_longer_than_the_lease_make_no_second_holder: a_long_delay_makes_no_second_holder ToServer,
            answers_that_take_longer_than_the_lease_make_no_second_holder: a_long_delay_makes_no_second_holder ToClient,
        }
    };
    ($pair:path, $($name:ident: $scenario:ident $way:ident,)*) => {
        $(#[test]
        fn $name() {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let Some(pair) = $pair(&runtime, stringify!($name)) else { return };
            runtime.block_on($crate::delays::$scenario(pair, $crate::proxy::Way::$way));
        })*
    };
}
pub(crate) use tests;
