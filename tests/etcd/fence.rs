//! Transactions of the user's own, which write only while a lease is current.

use std::{sync::Arc, time::Duration};

use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use leasehold::{
    FenceError, LeaseGuard, LeaseManager, LeaseState, LostReason,
    executor::TokioExecutor,
    signal::LocalSignals,
    store::{EtcdFence, EtcdStore, Reach},
};
use tokio::runtime::Runtime;

use crate::{Scratch, connect, contract::client, manager, prefix, say, server, start, told};

const LONG: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_secs(2);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);

pub(crate) fn compares(fence: &EtcdFence) -> Vec<Compare> {
    let all = fence.compares().iter();
    all.map(|compare| Compare::value(compare.key.clone(), CompareOp::Equal, compare.value.clone())).collect()
}

/// As the documents tell users to do, with a pause between the check and the write.
pub(crate) async fn put(
    guard: &LeaseGuard,
    store: &EtcdStore,
    etcd: &mut Client,
    writes: impl Into<Vec<TxnOp>>,
    pause: Duration,
) -> Result<(), FenceError> {
    let writes = writes.into();
    loop {
        let fence = guard.fence(store).await?;
        tokio::time::sleep(pause).await;
        let has_written =
            etcd.txn(Txn::new().when(compares(&fence)).and_then(writes.clone())).await.unwrap().succeeded();
        fence.answered();
        if has_written {
            return Ok(());
        }
    }
}

async fn value(etcd: &mut Client, key: &str) -> Option<String> {
    etcd.get(key, None).await.unwrap().kvs().first().map(|found| found.value_str().unwrap().to_owned())
}

/// A store with a manager that hears no messages, so that it does not know what is taken from it.
pub(crate) async fn deaf(address: &str, prefix: &str) -> (Arc<EtcdStore>, LeaseManager) {
    let store = Arc::new(connect(address, prefix).await);
    let signals = LocalSignals::new(&Reach::Named("nobody hears this".into()));
    let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()).lease(LONG).signals(signals);
    (store, leases.build().unwrap())
}

/// The user began the fence relying on being alone.
#[test]
fn a_fence_of_an_exclusive_guard_is_refused_after_its_downgrade() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let (store, leases) = deaf(&address, "downgraded").await;
        let guard = leases.lock("k").acquire().await.unwrap();
        let late = guard.fence(&*store);
        guard.downgrade().await.unwrap();
        let refused = late.await.expect_err("others may read by now").to_string();
        assert!(refused.contains("the lease was downgraded after this fence began"), "{refused}");
        assert!(guard.fence(&*store).await.is_ok(), "as one that shares");
    });
}

#[test]
fn a_current_lease_lets_the_transaction_write_and_an_overtaken_one_does_not() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let (store, leases) = deaf(&address, "overtaken").await;
        let mut etcd = client(&address).await;
        let guard = leases.lock("k").acquire().await.unwrap();
        let milk = [TxnOp::put("overtaken-note", "milk", None)];
        put(&guard, &store, &mut etcd, milk, Duration::ZERO).await.unwrap();
        let early = guard.fence(&*store).await.unwrap();

        let other = manager(&address, "overtaken").await.lease(LONG).build().unwrap();
        let thief = other.lock("k").steal().await.unwrap();
        assert!(thief.token() > guard.token());
        assert!(guard.is_valid(), "it does not know yet");
        let late = Txn::new().when(compares(&early)).and_then([TxnOp::put("overtaken-note", "bread", None)]);
        assert!(!etcd.txn(late).await.unwrap().succeeded(), "what was judged before the theft writes nothing after it");
        let refused = guard.fence(&*store).await;
        assert!(matches!(refused, Err(FenceError::Lost { reason: LostReason::Stolen, .. })), "{refused:?}");
        assert_eq!(value(&mut etcd, "overtaken-note").await.as_deref(), Some("milk"));
    });
}

/// Its task was dropped before etcd had the transaction. Then the next guard of the same manager has the lease.
#[test]
fn a_transaction_that_arrives_after_its_guard_ended_writes_nothing() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let (store, leases) = deaf(&address, "ended").await;
        let mut etcd = client(&address).await;
        for is_answered in [false, true] {
            let guard = leases.lock("k").acquire().await.unwrap();
            let fence = guard.fence(&*store).await.unwrap();
            let late = Txn::new().when(compares(&fence)).and_then([TxnOp::put("ended-note", "late", None)]);
            if is_answered {
                fence.answered();
            }
            let mut next = Box::pin(leases.lock("k").acquire());
            assert!(futures::poll!(&mut next).is_pending(), "the lease is taken");
            let before = leases.stats().transactions;
            drop(guard);
            let next = next.await.unwrap();
            assert_eq!(leases.stats().transactions == before, is_answered, "it is passed on without the store");
            let note = [TxnOp::put("ended-note", "next", None)];
            put(&next, &store, &mut etcd, note, Duration::ZERO).await.unwrap();
            if !is_answered {
                assert!(!etcd.txn(late).await.unwrap().succeeded(), "it writes over what the next guard wrote");
            }
            assert_eq!(value(&mut etcd, "ended-note").await.as_deref(), Some("next"));
            next.release().await.unwrap();
        }
    });
}

/// Whoever begins to wait changes the record, and not whose lease it is.
#[test]
fn a_transaction_that_a_new_waiter_failed_is_tried_again() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let (store, leases) = deaf(&address, "enqueued").await;
        let mut etcd = client(&address).await;
        let guard = leases.lock("k").acquire().await.unwrap();
        let fence = guard.fence(&*store).await.unwrap();
        let other = manager(&address, "enqueued").await.lease(LONG).build().unwrap();
        let mut waiter = Box::pin(other.lock("k").timeout(BUSY).acquire());
        while leases.status("k").await.unwrap().queue.is_empty() {
            assert!(futures::poll!(&mut waiter).is_pending());
            tokio::task::yield_now().await;
        }
        let write = || TxnOp::put("enqueued-note", "milk", None);
        let late = Txn::new().when(compares(&fence)).and_then([write()]);
        assert!(!etcd.txn(late).await.unwrap().succeeded(), "the record is another one now");
        put(&guard, &store, &mut etcd, [write()], Duration::ZERO).await.unwrap();
    });
}

#[test]
fn what_cannot_be_fenced_is_told_the_remedy() {
    let Some(address) = server::shared() else { return };
    Runtime::new().unwrap().block_on(async {
        let (store, leases) = deaf(&address, "misused").await;
        let guard = leases.lock("k").acquire().await.unwrap();
        let elsewhere = connect(&address, "misused-too").await;
        let refused = guard.fence(&elsewhere).await.expect_err("the lease is kept below another prefix");
        assert!(matches!(&refused, FenceError::Misuse(why) if why.contains("same EtcdStore")), "{refused}");
        let refused = guard.fence_and_renew(&*store).await.expect_err("it cannot renew");
        assert!(matches!(&refused, FenceError::Misuse(why) if why.contains("use fence")), "{refused}");
        assert!(guard.is_valid());
        let before = guard.fence(&*store).await.unwrap();
        guard.release().await.unwrap();
        let refused = guard.fence(&*store).await;
        assert!(matches!(refused, Err(FenceError::Released { .. })), "{refused:?}");
        let mut etcd = client(&address).await;
        let late = Txn::new().when(compares(&before)).and_then([TxnOp::put("misused-note", "milk", None)]);
        assert!(!etcd.txn(late).await.unwrap().succeeded(), "a lease that was given back writes nothing");
    });
}

/// The other process: takes the key, and when it is told, writes what it is told under a fence. What it compares for the
/// second note it knows before it is stopped.
pub(crate) fn write(address: &str, prefix: &str) {
    Runtime::new().unwrap().block_on(async {
        let store = Arc::new(connect(address, prefix).await);
        let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()).lease(SHORT).build().unwrap();
        let mut etcd = client(address).await;
        let guard = leases.lock("k").acquire().await.unwrap();
        let mut fence = guard.fence(&*store).await.unwrap();
        say("held");
        for note in told() {
            let txn = Txn::new().when(compares(&fence)).and_then([TxnOp::put(format!("{prefix}-note"), note, None)]);
            let succeeded = etcd.txn(txn).await.unwrap().succeeded();
            let again = guard.fence(&*store).await;
            say(&match &again {
                Ok(_) => format!("written: {succeeded}, current"),
                Err(FenceError::Lost { reason, .. }) => format!("written: {succeeded}, lost: {}", reason.name()),
                Err(other) => other.to_string(),
            });
            fence = again.unwrap_or(fence);
        }
    });
}

#[test]
fn a_process_that_is_stopped_past_its_lease_cannot_write() {
    let Some(address) = server::shared() else { return };
    let scratch = Scratch::new();
    let name = prefix(&scratch.0);
    let mut writer = start("writer", &scratch, &address);
    assert_eq!(writer.hear(), "held");
    assert_eq!(writer.ask("before"), "written: true, current");
    writer.stop();
    Runtime::new().unwrap().block_on(async {
        let leases = manager(&address, &name).await.lease(SHORT).build().unwrap();
        let guard = leases.lock("k").timeout(BUSY).acquire().await.unwrap();
        writer.go_on();
        let said = writer.ask("after");
        assert!(said.starts_with("written: false, lost: "), "{said}");
        let note = value(&mut client(&address).await, &format!("{name}-note")).await;
        assert_eq!(note.as_deref(), Some("before"));
        // On a busy machine, the lease may be in doubt.
        assert!(!matches!(guard.watch().state(), LeaseState::Lost(_)), "{guard:?}");
    });
}

/// Tokio's timers panic in a runtime that has none.
#[test]
fn a_fence_is_made_in_a_runtime_without_timers() {
    let Some(address) = server::shared() else { return };
    let runtime = Runtime::new().unwrap();
    let (store, leases) = runtime.block_on(async {
        let store = Arc::new(connect(&address, "bare-fence").await);
        let leases = LeaseManager::builder(Arc::clone(&store), TokioExecutor::new()).build().unwrap();
        (store, leases)
    });
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(!bare.block_on(guard.fence(&*store)).unwrap().compares().is_empty());
}
