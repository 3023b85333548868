//! While a fenced transaction is open: who waits for it, and who does not.

use futures::future::{join, join_all};
use leasehold::{AcquireError, FenceError, LeaseGuard, LeaseManager, machine::StoreErrorKind};
use tokio::time::timeout;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::{SHORT, WHILE, acquire, briefly, manager, note, noted, notes};
use crate::server::{PATIENCE, on_server, until};

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

/// A lease that was handed on while the transaction that the guard before has fenced is still open.
async fn handed<'a>(user: &'a mut Client, leases: &LeaseManager) -> (LeaseGuard, Transaction<'a>) {
    let first = acquire(leases).await;
    let mut transaction = user.transaction().await.unwrap();
    drop(first.fence(&mut transaction).await.unwrap());
    let hand_on = async {
        tokio::time::sleep(WHILE).await;
        drop(first);
    };
    (join(acquire(leases), hand_on).await.0, transaction)
}

/// The task of a holder may be dropped while its commit is on the way. The manager then hands the lease on, and no record changes.
#[test]
fn whoever_is_handed_the_lease_fences_after_what_the_guard_before_has_fenced() {
    on_server("fence_handed", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let (mut early, mut hasty, mut later) = (place.client().await, place.client().await, place.client().await);
        let first = acquire(&leases).await;
        let mut transaction = user.transaction().await.unwrap();
        drop(first.fence(&mut transaction).await.unwrap());
        note(&transaction, &place, "first").await.unwrap();
        let next = leases.lock("k").acquire();
        let mut next = std::pin::pin!(next);
        assert!(timeout(WHILE, next.as_mut()).await.is_err(), "the lease is taken");
        drop(first);
        let guard = timeout(PATIENCE, next).await.unwrap().unwrap();
        let mut old = early.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await.unwrap();
        let Err(FenceError::Store(refused)) = guard.fence(&mut old).await else { panic!("its snapshot is too old") };
        assert!(refused.retry && refused.message.contains("an earlier guard of this manager"), "{refused}");

        let mut given_up = hasty.transaction().await.unwrap();
        assert!(timeout(WHILE, guard.fence(&mut given_up)).await.is_err(), "two guards have fenced at once");
        let mut mine = later.transaction().await.unwrap();
        {
            let mut fenced = guard.fence(&mut mine);
            assert!(timeout(WHILE, fenced.as_mut()).await.is_err(), "two guards have fenced at once");
            transaction.commit().await.unwrap();
            drop(timeout(PATIENCE, fenced).await.unwrap().unwrap());
        }
        let seen = mine.query(&format!("SELECT text FROM {}_notes", place.prefix), &[]).await.unwrap();
        assert_eq!(seen.len(), 1, "it reads what the guard before has written");
        // One guard may have several transactions.
        let mut another = user.transaction().await.unwrap();
        drop(timeout(PATIENCE, guard.fence(&mut another)).await.unwrap().unwrap());
    });
}

/// The task that waits may be the one that is to end the transaction before.
#[test]
fn whoever_keeps_the_transaction_before_open_waits_for_it_in_vain_but_not_for_ever() {
    on_server("fence_in_vain", |place| async move {
        let (mut user, mut other, leases) = (notes(&place).await, place.client().await, manager(&place).await);
        let (guard, transaction) = handed(&mut user, &leases).await;
        let mut mine = other.transaction().await.unwrap();
        let refused = timeout(PATIENCE, guard.fence(&mut mine)).await.expect("it does not wait for ever");
        let Err(FenceError::Store(refused)) = refused else { panic!("two guards have fenced at once") };
        assert!(refused.kind == StoreErrorKind::Locked && refused.retry, "{refused}");
        mine.rollback().await.unwrap();
        transaction.commit().await.unwrap();
        let mut next = other.transaction().await.unwrap();
        drop(timeout(PATIENCE, guard.fence(&mut next)).await.unwrap().unwrap());
        let limit: String = next.query_one("SHOW lock_timeout", &[]).await.unwrap().get(0);
        assert_eq!(limit, "0", "the user's limit is as before");
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

/// One of two guards that share a lease outlives the other, which had the lease before it.
#[test]
fn a_guard_that_is_left_alone_does_not_wait_for_its_own_transaction() {
    on_server("fence_alone", |place| async move {
        let (mut user, mut other, leases) = (notes(&place).await, place.client().await, manager(&place).await);
        let request = leases.lock("k").share_in_process();
        let (first, second) = (request.clone().acquire().await.unwrap(), request.acquire().await.unwrap());
        let (mut transaction, mut another) = (user.transaction().await.unwrap(), other.transaction().await.unwrap());
        drop(second.fence(&mut transaction).await.unwrap());
        drop(first);
        drop(timeout(PATIENCE, second.fence(&mut another)).await.expect("it waits for itself").unwrap());
    });
}

/// A fence waits for the guard before it, and is given up. Meanwhile another one of the same guard has begun, and passes later.
#[test]
fn a_fence_that_was_given_up_lets_no_other_wait_for_a_transaction_of_its_own_guard() {
    on_server("fence_own", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let (mut hasty, mut calm, mut late) = (place.client().await, place.client().await, place.client().await);
        let (guard, transaction) = handed(&mut user, &leases).await;
        let (mut given_up, mut mine) = (hasty.transaction().await.unwrap(), calm.transaction().await.unwrap());
        {
            let mut waits = guard.fence(&mut given_up);
            assert!(timeout(WHILE, waits.as_mut()).await.is_err(), "two guards have fenced at once");
            let mut fenced = guard.fence(&mut mine);
            assert!(timeout(WHILE, fenced.as_mut()).await.is_err(), "two guards have fenced at once");
            drop(waits);
            transaction.commit().await.unwrap();
            drop(timeout(PATIENCE, fenced).await.unwrap().unwrap());
        }
        let mut another = late.transaction().await.unwrap();
        drop(timeout(PATIENCE, guard.fence(&mut another)).await.expect("it waits for its own guard").unwrap());
    });
}

/// Its answer was never polled.
#[test]
fn a_fence_that_is_not_sent_yet_lets_no_other_pass_before_it_waits() {
    on_server("fence_unsent", |place| async move {
        let (mut user, leases) = (notes(&place).await, manager(&place).await);
        let (mut slow, mut quick) = (place.client().await, place.client().await);
        let (guard, transaction) = handed(&mut user, &leases).await;
        let (mut one, mut two) = (slow.transaction().await.unwrap(), quick.transaction().await.unwrap());
        let unsent = guard.fence(&mut one);
        assert!(timeout(WHILE, guard.fence(&mut two)).await.is_err(), "two guards have fenced at once");
        drop(unsent);
        transaction.commit().await.unwrap();
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
