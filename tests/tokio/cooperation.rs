//! A task that makes one request after the other lets the other tasks of its thread go on, even if no request waits for anything.

use std::{
    cell::RefCell,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use futures::{
    executor::block_on,
    future::{join, join_all, poll_immediate, select_all},
};
use leasehold::{LeaseGuard, LeaseManager, Mode, executor::TokioExecutor, store::MemoryStore};
use tokio::{
    runtime::Builder,
    task::{block_in_place, consume_budget, spawn, yield_now},
    time::timeout,
};

use crate::{PATIENCE, manager, runtimes::Remote, until};

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

/// A task may ask for more leases at once than tokio lets it do without a pause.
#[test]
fn leases_that_one_task_asks_for_at_once_are_granted_in_that_order() {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let leases = manager(&MemoryStore::new());
        let held = leases.lock("k").acquire().await.unwrap();
        let order = RefCell::new(Vec::new());
        let (leases, granted) = (&leases, &order);
        let turns = (0..1_000).map(|turn| async move {
            let guard = leases.lock("k").acquire().await.unwrap();
            granted.borrow_mut().push(turn);
            drop(guard);
        });
        join(join_all(turns), async { drop(held) }).await;
        assert_eq!(order.take(), (0..1_000).collect::<Vec<_>>());
    });
}

#[tokio::test]
async fn a_downgrade_goes_on_although_it_is_dropped_while_others_go_first() {
    let leases = manager(&MemoryStore::new());
    let guard = leases.lock("k").acquire().await.unwrap();
    while poll_immediate(consume_budget()).await.is_some() {}
    assert!(poll_immediate(guard.downgrade()).await.is_none());
    until(async || guard.mode() == Mode::Shared).await;
}

/// A request that waits costs no budget. Otherwise the first ones would use up the task's budget at each poll.
#[test]
fn a_task_that_waits_for_many_leases_at_once_is_granted_the_last_one() {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let store = MemoryStore::new();
        let (one, two) = (manager(&store), manager(&store));
        let (mut held, mut waits) = (Vec::new(), Vec::new());
        for key in 0..1_000 {
            held.push(one.lock(&key.to_string()).acquire().await.unwrap());
            waits.push(Box::pin(two.lock(&key.to_string()).acquire()));
        }
        let waiting = spawn(select_all(waits));
        yield_now().await;
        drop(held.pop());
        let (granted, ..) = timeout(PATIENCE / 4, waiting).await.expect("nobody holds it").unwrap();
        assert_eq!(granted.unwrap().key(), "999");
    });
}

/// What the executor's documentation tells programs that have to block.
#[test]
fn a_task_may_block_on_a_lease_where_tokio_lets_it_block() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let task = runtime.spawn(async {
        let leases = manager(&MemoryStore::new());
        for _ in 0..MANY {
            block_in_place(|| drop(block_on(leases.lock("k").acquire()).unwrap()));
        }
    });
    runtime.block_on(async { timeout(PATIENCE / 4, task).await }).expect("it goes on").unwrap();
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
fn a_task_that_resumes_again_and_again_lets_others_go_on() {
    let resumed = RefCell::new(None);
    assert!(lets_others_go_on(async |leases, _| {
        let guard = match resumed.take() {
            Some(guard) => guard,
            None => leases.lock("k").acquire().await.unwrap(),
        };
        let guard = leases.resume(guard.into_parts()).await.unwrap();
        resumed.replace(Some(guard));
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
