//! While a fenced transaction is open: who waits for it, and who does not.

use futures::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use leasehold::{AcquireError, FenceError, LeaseGuard, LeaseRequest, machine::StoreErrorKind};
use tokio::time::timeout;
use tokio_postgres::{IsolationLevel, Transaction};

use super::{SHORT, WHILE, acquire, briefly, manager, note, noted, notes};
use crate::server::{PATIENCE, on_server};
use crate::until::until;

/// A thief is granted the lease when the fenced transaction is over, and not before.
#[test]
fn while_a_fenced_transaction_is_open_nobody_is_granted_the_lease() {
    on_server("fence_open", |place| async move {
        let (mut user, leases, thief) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        let steal = thief.lock("k").steal();
        let mut steal = std::pin::pin!(steal);
        assert!(timeout(WHILE, steal.as_mut()).await.is_err(), "the lease was granted during a fenced transaction");
        note(&transaction, &place, "in time").await.unwrap();
        transaction.commit().await.unwrap();
        let stolen = timeout(PATIENCE, steal).await.unwrap().unwrap();
        assert!(stolen.token() > guard.token());
        assert_eq!(noted(&place).await, ["in time"]);
    });
}

/// The guard fences the transaction and ends. The next request of its manager waits, until the transaction is over.
async fn next_after(
    guard: LeaseGuard,
    transaction: &mut Transaction<'_>,
    request: LeaseRequest,
) -> BoxFuture<'static, Result<LeaseGuard, AcquireError>> {
    drop(guard.fence(transaction).await.unwrap());
    let mut next = request.acquire().boxed();
    assert!(timeout(WHILE, next.as_mut()).await.is_err(), "the lease is taken");
    drop(guard);
    assert!(timeout(WHILE, next.as_mut()).await.is_err(), "the lease was granted during a fenced transaction");
    next
}

/// The task of a holder may be dropped while its commit is on the way.
#[test]
fn the_next_guard_of_a_manager_is_granted_the_lease_after_what_the_guard_before_has_fenced() {
    on_server("fence_handed", |place| async move {
        let (mut user, mut other, leases) = (notes(&place).await, place.client().await, manager(&place).await);
        let mut early = place.client().await;
        let (first, mut transaction) = (acquire(&leases).await, user.transaction().await.unwrap());
        let token = first.token();
        let next = next_after(first, &mut transaction, leases.lock("k")).await;
        note(&transaction, &place, "first").await.unwrap();
        let mut old = early.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await.unwrap();
        old.query("SELECT 1", &[]).await.unwrap();
        transaction.commit().await.unwrap();
        let guard = timeout(PATIENCE, next).await.unwrap().unwrap();
        assert!(guard.token() > token);
        let Err(FenceError::Store(refused)) = guard.fence(&mut old).await else { panic!("its snapshot is too old") };
        assert!(refused.retry, "{refused}");
        let mut mine = other.transaction().await.unwrap();
        drop(timeout(PATIENCE, guard.fence(&mut mine)).await.unwrap().unwrap());
        let seen = mine.query(&format!("SELECT text FROM {}_notes", place.prefix), &[]).await.unwrap();
        assert_eq!(seen.len(), 1, "it reads what the guard before has written");
    });
}

#[test]
fn guards_that_share_are_granted_the_lease_after_what_an_exclusive_guard_has_fenced() {
    on_server("fence_then_share", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let (first, mut transaction) = (acquire(&leases).await, user.transaction().await.unwrap());
        let next = next_after(first, &mut transaction, leases.lock("k").share_in_process()).await;
        transaction.commit().await.unwrap();
        drop(timeout(PATIENCE, next).await.unwrap().unwrap());
    });
}

/// The sharer that has fenced ends first, and another one last.
#[test]
fn an_exclusive_guard_is_granted_the_lease_after_what_those_who_shared_it_have_fenced() {
    on_server("share_then_fence", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let request = leases.lock("k").share_in_process();
        let (first, last) = (request.clone().acquire().await.unwrap(), request.acquire().await.unwrap());
        let mut transaction = user.transaction().await.unwrap();
        drop(first.fence(&mut transaction).await.unwrap());
        drop(first);
        let next = next_after(last, &mut transaction, leases.lock("k")).await;
        transaction.commit().await.unwrap();
        drop(timeout(PATIENCE, next).await.unwrap().unwrap());
    });
}

/// The task of the exclusive guard is dropped while it waits for the downgrade.
#[test]
fn a_reader_is_granted_the_lease_after_what_an_exclusive_guard_has_fenced_before_its_downgrade() {
    on_server("fence_then_downgrade", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let guard = leases.lock("k").shared().acquire().await.unwrap();
        guard.upgrade().await.unwrap();
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        assert!(timeout(WHILE, guard.downgrade()).await.is_err(), "the store waits for the transaction");
        let mut reader = Box::pin(leases.lock("k").shared().acquire());
        assert!(timeout(WHILE, &mut reader).await.is_err(), "it would read what the transaction is about to change");
        note(&transaction, &place, "late").await.unwrap();
        transaction.commit().await.unwrap();
        let reader = timeout(PATIENCE, reader).await.unwrap().unwrap();
        assert!(reader.is_valid() && noted(&place).await == ["late"]);
    });
}

/// Its check reaches the server when the next guard has the lease.
#[test]
fn a_fence_that_arrives_after_its_guard_ended_is_refused() {
    on_server("fence_late", |place| async move {
        let (mut user, mut other, leases) = (notes(&place).await, place.client().await, manager(&place).await);
        let (first, mut late) = (acquire(&leases).await, user.transaction().await.unwrap());
        let unsent = first.fence(&mut late);
        drop(first);
        let guard = acquire(&leases).await;
        let mut mine = other.transaction().await.unwrap();
        drop(timeout(PATIENCE, guard.fence(&mut mine)).await.unwrap().unwrap());
        assert!(matches!(timeout(PATIENCE, unsent).await.unwrap(), Err(FenceError::Released { .. })));
        assert!(note(&late, &place, "late").await.is_err(), "it can write nothing any more");
    });
}

/// A guard that reports its commit costs its manager no transaction of the store. A refused transaction is known to be over.
#[test]
fn a_manager_that_knows_of_the_commit_passes_the_lease_on_without_the_store() {
    on_server("fence_passed_on", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        for is_told in [true, false] {
            let first = acquire(&leases).await;
            let mut unfit = user.build_transaction().read_only(true).start().await.unwrap();
            assert!(matches!(first.fence(&mut unfit).await, Err(FenceError::Misuse(_))));
            unfit.rollback().await.unwrap();
            let mut given_up = user.transaction().await.unwrap();
            let fenced = first.fence(&mut given_up).await.unwrap();
            given_up.rollback().await.unwrap();
            fenced.rolled_back();
            let mut transaction = user.transaction().await.unwrap();
            let fenced = first.fence(&mut transaction).await.unwrap();
            transaction.commit().await.unwrap();
            if is_told {
                fenced.committed();
            }
            let mut next = Box::pin(leases.lock("k").acquire().into_future());
            assert!(timeout(WHILE, next.as_mut()).await.is_err(), "the lease is taken");
            let before = leases.stats().transactions;
            drop(first);
            let guard = timeout(PATIENCE, next).await.unwrap().unwrap();
            assert_eq!(leases.stats().transactions == before, is_told);
            guard.release().await.unwrap();
        }
    });
}

/// The work under one of these guards may wait for the work under another.
#[test]
fn guards_that_share_a_lease_in_one_process_fence_at_once() {
    on_server("fence_sharers", |place| async move {
        let (mut user, mut other, leases) = (notes(&place).await, place.client().await, manager(&place).await);
        let request = leases.lock("k").share_in_process();
        let guards = [request.clone().acquire().await.unwrap(), request.acquire().await.unwrap()];
        let mut transactions = [user.transaction().await.unwrap(), other.transaction().await.unwrap()];
        for (guard, transaction) in guards.iter().zip(&mut transactions) {
            drop(timeout(PATIENCE, guard.fence(transaction)).await.unwrap().unwrap());
        }
    });
}

/// A program that drops its guard and keeps the transaction open loses nothing else, however long that lasts.
#[test]
fn a_transaction_that_outlives_its_guard_costs_its_manager_no_other_lease() {
    on_server("fence_outlives", |place| async move {
        let (mut user, leases) = (notes(&place).await, briefly(&place).await);
        let (kept, first) = (leases.lock("kept").acquire().await.unwrap(), acquire(&leases).await);
        let mut transaction = user.transaction().await.unwrap();
        drop(first.fence(&mut transaction).await.unwrap());
        drop(first);
        let wait = leases.lock("k").timeout(SHORT * 3).acquire().await;
        assert!(wait.is_err(), "the lease was granted during a fenced transaction");
        assert!(kept.is_valid() && kept.verify().await.unwrap());
        leases.lock("other").acquire().await.unwrap().release().await.unwrap();
        transaction.commit().await.unwrap();
        drop(timeout(PATIENCE, leases.lock("k").acquire()).await.unwrap().unwrap());
    });
}

/// It is short against a lease, but longer than all attempts of a request together.
#[test]
fn whoever_waits_with_a_time_limit_outlasts_a_long_fenced_transaction() {
    on_server("fence_long", |place| async move {
        let (mut user, leases, waiter) = (notes(&place).await, briefly(&place).await, briefly(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        let wait = waiter.lock("k").timeout(PATIENCE).acquire();
        let mut wait = std::pin::pin!(wait);
        let early = timeout(3 * SHORT, wait.as_mut()).await;
        assert!(early.is_err(), "it was answered during the fenced transaction: {early:?}");
        transaction.commit().await.unwrap();
        drop(guard);
        assert!(wait.await.is_ok());
    });
}

/// All these requests but the first go in one transaction at first.
#[test]
fn whoever_waits_for_a_fenced_transaction_is_granted_other_keys_meanwhile() {
    on_server("fence_other", |place| async move {
        let (mut user, leases, waiter) = (notes(&place).await, manager(&place).await, manager(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        let wait = waiter.lock("k").timeout(PATIENCE).acquire();
        let others = join_all((0..10).map(|number| waiter.lock(&format!("other {number}")).acquire()));
        let (mut wait, mut others) = (std::pin::pin!(wait), std::pin::pin!(others));
        let granted = tokio::select! {
            biased;
            granted = timeout(PATIENCE, &mut others) => granted.unwrap(),
            early = &mut wait => panic!("it was answered during the fenced transaction: {early:?}"),
        };
        for other in granted {
            other.unwrap().release().await.unwrap();
        }
        let tried = timeout(WHILE, wait.as_mut()).await;
        assert!(tried.is_err(), "the fenced transaction is still open: {tried:?}");
        transaction.commit().await.unwrap();
        guard.release().await.unwrap();
        let _guard = wait.await.unwrap();
    });
}

/// Two holders who share a lease write at once, and a heartbeat does not wait for either.
#[test]
fn fences_of_a_shared_lease_do_not_wait_for_each_other() {
    on_server("fence_shared", |place| async move {
        let (mut users, mut guards) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            users.push(notes(&place).await);
            guards.push(manager(&place).await.lock("k").shared().acquire().await.unwrap());
        }
        let mut transactions = Vec::new();
        for (user, guard) in users.iter_mut().zip(&guards) {
            let mut transaction = user.transaction().await.unwrap();
            drop(timeout(PATIENCE, guard.fence(&mut transaction)).await.expect("it waits for nobody").unwrap());
            transactions.push(transaction);
        }
        for transaction in transactions {
            note(&transaction, &place, "shared").await.unwrap();
            transaction.commit().await.unwrap();
        }
        assert_eq!(noted(&place).await, ["shared", "shared"]);
    });
}

/// It stands still inside a fenced transaction: the lease is granted to nobody until the server ends that connection.
#[test]
fn a_lease_is_not_granted_while_its_holder_stands_still_inside_a_fence() {
    on_server("fence_still", |place| async move {
        let (mut user, leases) = (notes(&place).await, briefly(&place).await);
        let guard = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        drop(guard.fence(&mut transaction).await.unwrap());
        note(&transaction, &place, "still").await.unwrap();
        leases.close().await;
        let next = briefly(&place).await;
        let early = next.lock("k").timeout(SHORT * 2).acquire().await;
        // On a busy machine, what the server says of the lock may come too late.
        let is_kept_out = |error: &AcquireError| match error {
            AcquireError::Store(error) => matches!(error.kind, StoreErrorKind::Busy | StoreErrorKind::Locked),
            error => matches!(error, AcquireError::Timeout { .. }),
        };
        assert!(early.as_ref().is_err_and(is_kept_out), "{early:?}");
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%fence_still_notes%'";
        until("the connection is ended", async || {
            place.client().await.query_one(kill, &[]).await.unwrap().get::<_, i64>(0) > 0
        })
        .await;
        assert!(timeout(PATIENCE, next.lock("k").acquire()).await.unwrap().unwrap().is_valid());
        assert!(transaction.commit().await.is_err());
        assert_eq!(noted(&place).await, [""; 0]);
    });
}
