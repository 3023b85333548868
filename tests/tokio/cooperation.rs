//! A task that makes one request after the other lets the other tasks of its thread go on, even if no request waits for anything.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use leasehold::{LeaseGuard, LeaseManager, Mode, executor::TokioExecutor, store::MemoryStore};
use tokio::{runtime::Builder, task::spawn};

use crate::{PATIENCE, manager, runtimes::Remote};

/// More requests than tokio lets a task make without a pause.
const MANY: usize = 10_000;

/// Whether another task of the same thread had its turn during many such requests.
fn lets_others_go_on(request: impl AsyncFn(&LeaseManager, &LeaseGuard)) -> bool {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let (leases, had_turn) = (manager(&MemoryStore::new()), Arc::new(AtomicBool::new(false)));
        let guard = leases.lock("held").acquire().await.unwrap();
        request(&leases, &guard).await;
        let other = had_turn.clone();
        spawn(async move { other.store(true, SeqCst) });
        for _ in 0..MANY {
            request(&leases, &guard).await;
        }
        had_turn.load(SeqCst)
    })
}

#[test]
fn a_task_that_takes_a_lingering_lease_again_and_again_lets_others_go_on() {
    assert!(lets_others_go_on(async |leases, _| drop(leases.lock("k").acquire().await.unwrap())));
}

#[test]
fn a_task_that_tries_again_and_again_lets_others_go_on() {
    assert!(lets_others_go_on(async |leases, _| drop(leases.lock("k").try_acquire().await.unwrap())));
}

#[test]
fn a_task_that_takes_several_leases_again_and_again_lets_others_go_on() {
    let both = || [("a", Mode::Exclusive), ("b", Mode::Exclusive)];
    assert!(lets_others_go_on(async |leases, _| drop(leases.lock_all(both()).acquire().await.unwrap())));
    assert!(lets_others_go_on(async |leases, _| drop(leases.lock_all(both()).try_acquire().await.unwrap())));
}

#[test]
fn a_task_that_looks_again_and_again_lets_others_go_on() {
    assert!(lets_others_go_on(async |leases, _| drop(leases.status("k").await.unwrap())));
    assert!(lets_others_go_on(async |leases, _| drop(leases.list("").await.unwrap())));
}

#[test]
fn a_task_that_asks_its_guard_again_and_again_lets_others_go_on() {
    assert!(lets_others_go_on(async |_, guard| assert!(guard.verify().await.unwrap())));
    assert!(lets_others_go_on(async |_, guard| guard.extend(PATIENCE).await.unwrap()));
    // `upgrade` leaves an exclusive lease as it is. The first `downgrade` makes it shared; later ones change nothing.
    assert!(lets_others_go_on(async |_, guard| guard.upgrade().await.unwrap()));
    assert!(lets_others_go_on(async |_, guard| guard.downgrade().await.unwrap()));
}

#[test]
fn a_task_that_is_refused_again_and_again_lets_others_go_on() {
    assert!(lets_others_go_on(async |leases, guard| {
        let refused = leases.resume(guard.clone().into_parts()).await;
        assert!(refused.is_err(), "a guard that has clones gives no parts away");
    }));
}

/// A runtime that is shutting down accepts no tasks, so each request fails at once.
#[test]
fn a_task_that_repeats_what_failed_ends_with_its_runtime() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let leases = LeaseManager::builder(Remote(MemoryStore::new()), TokioExecutor::new()).build().unwrap();
    let (begun, begins) = mpsc::channel();
    runtime.spawn(async move {
        drop(leases.lock("k").acquire().await.unwrap());
        begun.send(()).unwrap();
        // The other thread of the runtime ends it, while this one is busy.
        while !spawn(pending::<()>()).is_finished() {
            thread::yield_now();
        }
        loop {
            drop(leases.lock("k").acquire().await);
        }
    });
    begins.recv().unwrap();
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        drop(runtime);
        ended.send(())
    });
    assert_eq!(end.recv_timeout(PATIENCE / 4), Ok(()), "its task goes on for ever");
}
