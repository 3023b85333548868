//! A message that is lost while a connection for messages is replaced.

use std::time::Duration;

use leasehold::LeaseManager;
use tokio::{task::JoinHandle, time::timeout};

use crate::proxy::Proxy;

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

/// Releases the key once the other context waits for it.
async fn hand_over(holder: &LeaseManager, waiter: &LeaseManager, before_release: impl FnOnce()) -> JoinHandle<()> {
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = waiter.lock("k");
    let waiting = tokio::spawn(async move { assert!(waiting.acquire().await.unwrap().release().await.is_ok()) });
    while holder.status("k").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    before_release();
    guard.release().await.unwrap();
    waiting
}

/// The proxy stands between the waiter and the server. Both contexts have long leases: without a message, the waiter looks at its next
/// heartbeat only. `meanwhile` runs between the release and the cut.
pub(crate) async fn a_waiter_that_missed_a_message_reads_the_store_once_reconnected(
    holder: &LeaseManager,
    waiter: &LeaseManager,
    proxy: &Proxy,
    meanwhile: impl AsyncFnOnce(),
) {
    let awake = waiter.lock("another").acquire().await.unwrap();
    let heard = hand_over(holder, waiter, || {}).await;
    timeout(BUSY, heard).await.expect("a message came").unwrap();
    // The server still takes it for a listener.
    let missed = hand_over(holder, waiter, || proxy.mute()).await;
    meanwhile().await;
    proxy.cut();
    timeout(BUSY, missed).await.expect("it looks").unwrap();
    drop(awake);
}
