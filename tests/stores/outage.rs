//! A server that is gone for a while, and refuses connections meanwhile.

use std::{pin::pin, time::Duration};

use futures::future::{Either, select};
use leasehold::{AcquireError, LeaseManager};
use tokio::time::timeout;

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// `serve` stops the server, or starts it again.
pub(crate) async fn who_said_for_how_long_waits_for_the_server(leases: LeaseManager, mut serve: impl FnMut(bool)) {
    leases.lock("before").acquire().await.unwrap().release().await.unwrap();
    serve(false);
    let mut limited = pin!(leases.lock("k").timeout(BUSY).acquire());
    // It is told after three attempts.
    let unlimited = pin!(leases.lock("other").acquire());
    match select(limited.as_mut(), unlimited).await {
        Either::Left((early, _)) => panic!("the server is gone, and the request says: {early:?}"),
        Either::Right((told, _)) => assert!(matches!(told, Err(AcquireError::Store(_))), "{told:?}"),
    }
    let late = leases.lock("late").timeout(Duration::from_millis(100)).acquire().await;
    let why = late.expect_err("the server is gone");
    assert!(matches!(&why, AcquireError::Store(_)), "it does not tell why: {why:?}");
    serve(true);
    let granted = timeout(BUSY, limited).await.expect("the server is back").unwrap();
    assert!(granted.is_valid());
    drop(granted);
    leases.close().await;
}
