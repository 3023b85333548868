//! Scenarios with readers and writers.

use std::sync::atomic::Ordering::SeqCst;

use futures::{future::join_all, poll};
use leasehold::{AcquireError, LeaseManagerBuilder, LostReason, Mode};

use super::{BUSY, Room, SHORT, context, contexts, is_kept, lasting};
use crate::leases::with_longer_leases;

pub(crate) async fn s7_a_writer_is_alone(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (contexts, writers, readers) = (contexts(&open, 3).await, Room::default(), Room::default());
    join_all((0..9).map(async |guest: usize| {
        let (mode, own, others) = match guest {
            0..3 => (Mode::Exclusive, &writers, &readers),
            _ => (Mode::Shared, &readers, &writers),
        };
        for _ in 0..4 {
            let guard = contexts[guest % 3].lock("k").mode(mode).timeout(BUSY).acquire().await.unwrap();
            own.visit().await;
            assert_eq!(others.inside.load(SeqCst), 0, "a reader and a writer are inside");
            guard.release().await.unwrap();
        }
    }))
    .await;
    assert_eq!(writers.most(), 1, "two writers are inside");
    let read = async |at: usize| contexts[at].lock("k").shared().timeout(BUSY).acquire().await.unwrap();
    let (one, other) = (read(0).await, read(1).await);
    assert!(one.is_valid() && other.is_valid(), "readers of two contexts read together");
}

pub(crate) async fn s11_renewal_keeps_readers_and_writers(open: impl AsyncFn() -> LeaseManagerBuilder) {
    with_longer_leases(SHORT, async |lease| {
        let [one, two, rival] = [lasting(&open, lease).await, lasting(&open, lease).await, lasting(&open, lease).await];
        let hold = async |leases: &leasehold::LeaseManager, key, mode| {
            leases.lock(key).mode(mode).timeout(BUSY).acquire().await.unwrap()
        };
        let readers = [hold(&one, "read", Mode::Shared).await, hold(&two, "read", Mode::Shared).await];
        let writer = hold(&one, "write", Mode::Exclusive).await;
        // Longer than leases last if nobody renews them.
        let ask = |key, mode| rival.lock(key).mode(mode).timeout(lease * 3).acquire();
        let (read, write) = futures::join!(ask("read", Mode::Exclusive), ask("write", Mode::Shared));
        for (holder, refused) in [(&readers[0], &read), (&readers[1], &read), (&writer, &write)] {
            is_kept(holder, refused.as_ref().ok())?;
        }
        for refused in [read, write] {
            if !matches!(refused, Err(AcquireError::Timeout { held_elsewhere: true, .. })) {
                return Err(format!("{refused:?}"));
            }
        }
        Ok(())
    })
    .await;
}

pub(crate) async fn s14_closing_leaves_neither_readers_nor_writers(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let (one, two) = (context(&open).await, context(&open).await);
    let closed = [one.lock("read").shared().acquire().await.unwrap(), one.lock("write").acquire().await.unwrap()];
    let other = two.lock("read").shared().acquire().await.unwrap();
    one.close().await;
    for guard in closed {
        assert_eq!(guard.lost().await, LostReason::Closed);
        assert!(!guard.is_valid());
    }
    assert!(two.status("write").await.unwrap().is_idle());
    let status = two.status("read").await.unwrap();
    assert!(matches!(&status.holders[..], [holder] if holder.own), "the other reader is left: {status:?}");
    assert!(other.is_valid() && other.verify().await.unwrap());
}

pub(crate) async fn w13_readers_share_and_a_writer_waits_for_both(open: impl AsyncFn() -> LeaseManagerBuilder) {
    let [one, two, three] = [context(&open).await, context(&open).await, context(&open).await];
    let first = one.lock("k").shared().acquire().await.unwrap();
    let second = two.lock("k").shared().try_acquire().await.unwrap().expect("readers share");
    let mut write = Box::pin(three.lock("k").timeout(BUSY).acquire());
    assert!(poll!(&mut write).is_pending());
    while one.status("k").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    first.release().await.unwrap();
    let status = one.status("k").await.unwrap();
    assert_eq!((status.holders.len(), status.queue.len()), (1, 1), "the other one still reads");
    assert!(poll!(&mut write).is_pending());
    second.release().await.unwrap();
    let writer = write.await.unwrap();
    assert!(writer.token() > second.token());
    assert!(one.lock("k").shared().try_acquire().await.unwrap().is_none());
}
