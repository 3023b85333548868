//! Where there is no runtime, or one without timers, a request is refused with a sentence; elsewhere the executor remembers
//! the runtime that it was used in.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use async_trait::async_trait;
use futures::executor::block_on;
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, Mode, StoreError,
    executor::{Executor, TokioExecutor, process_clock},
    machine::{Batch, Key, Now, Reply, StoreClock},
    store::{FaultyStore, MemoryStore, Reach, Store},
};
use tokio::runtime::{Builder, Runtime};

use crate::{PATIENCE, manager, ms};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

/// The sentence that a request is refused with.
fn refused<T>(asked: Result<T, AcquireError>) -> String {
    match asked {
        Err(refusal @ AcquireError::Unsupported(_)) => refusal.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("granted where no timer runs"),
    }
}

async fn all_refusals(leases: &LeaseManager) -> Vec<String> {
    let both = leases.lock_all([("a", Mode::Exclusive), ("b", Mode::Shared)]);
    vec![
        refused(leases.lock("k").acquire().await),
        refused(leases.lock("k").try_acquire().await),
        refused(both.clone().acquire().await),
        refused(both.try_acquire().await),
        refused(leases.elect("k", async |_| ()).await),
    ]
}

/// A store that can be asked only inside a runtime, like a store on a server.
#[derive(Debug)]
pub(crate) struct Remote(pub(crate) MemoryStore);

#[async_trait]
impl Store for Remote {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        tokio::time::sleep(ms(0)).await;
        self.0.transact(batch, now, limit).await
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        tokio::time::sleep(ms(0)).await;
        self.0.keys(prefix).await
    }

    async fn close(&self) {}

    fn clock(&self) -> StoreClock {
        self.0.clock()
    }

    fn reach(&self) -> Reach {
        self.0.reach()
    }
}

/// A look renews nothing. A store in memory is looked at on any thread.
#[test]
fn a_key_in_memory_is_looked_at_without_a_runtime() {
    let store = MemoryStore::new();
    let runtime = runtime();
    let holder = manager(&store);
    let guard = runtime.block_on(holder.lock("k").info("ada").acquire()).unwrap();
    let looks = manager(&store);
    let look = async {
        let status = looks.status("k").await.unwrap();
        let listed = looks.list("").await.unwrap();
        let leader = looks.leader("k").await.unwrap().unwrap();
        assert_eq!((&status.holders[0].info[..], status.holders[0].token, leader.own), ("ada", guard.token(), false));
        assert_eq!(listed, [status]);
    };
    block_on(look);
    block_on(looks.close());
    assert!(matches!(block_on(looks.status("k")), Err(AcquireError::Closed)));
    assert!(matches!(block_on(looks.list("")), Err(AcquireError::Closed)));
}

/// The manager was used in that runtime.
#[test]
fn a_key_in_memory_is_looked_at_after_the_runtime_has_ended() {
    let (leases, runtime) = (manager(&MemoryStore::new()), runtime());
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    drop(runtime);
    let timeless = Builder::new_current_thread().build().unwrap();
    assert!(timeless.block_on(leases.status("k")).unwrap().holders[0].own);
    assert_eq!(block_on(leases.list("")).unwrap().len(), 1);
    drop(guard);
}

#[test]
fn a_look_at_a_store_that_needs_a_runtime_says_that_this_is_missing() {
    let leases = LeaseManager::builder(Remote(MemoryStore::new()), TokioExecutor::new()).build().unwrap();
    for sentence in [refused(block_on(leases.status("k"))), refused(block_on(leases.list("")))] {
        assert!(sentence.contains("reach a store") && sentence.contains("inside one"), "{sentence}");
    }
    let timeless = Builder::new_current_thread().build().unwrap();
    let sentence = refused(timeless.block_on(leases.status("k")));
    assert!(sentence.contains("reach a store") && sentence.contains("enable_time"), "{sentence}");
    runtime().block_on(leases.status("k")).unwrap();
}

#[test]
fn without_a_runtime_requests_are_refused_and_say_what_is_missing() {
    let leases = manager(&MemoryStore::new());
    for sentence in block_on(all_refusals(&leases)) {
        assert!(sentence.contains("no tokio runtime") && sentence.contains("inside one"), "{sentence}");
    }
    assert!(runtime().block_on(leases.lock("k").acquire()).is_ok(), "a later request finds one");
}

#[test]
fn in_a_runtime_without_timers_requests_are_refused_and_say_what_is_missing() {
    let timeless = Builder::new_current_thread().build().unwrap();
    let sentences = timeless.block_on(async { all_refusals(&manager(&MemoryStore::new())).await });
    for sentence in sentences {
        assert!(sentence.contains("enable_time"), "{sentence}");
    }
}

/// The executor was made where there was no runtime yet.
#[test]
fn a_runtime_is_remembered_by_whoever_was_used_in_it() {
    let store = MemoryStore::new();
    let (one, other) = (manager(&store), manager(&store));
    let runtime = runtime();
    let guard = runtime.block_on(one.lock("k").acquire()).unwrap();
    thread::spawn(move || drop(guard)).join().unwrap();
    let heir = runtime.block_on(other.lock("k").timeout(PATIENCE).acquire()).unwrap();
    let late = thread::spawn(move || block_on(one.lock("k").timeout(ms(20)).acquire())).join().unwrap();
    assert!(late.is_err() && heir.is_valid(), "its time-out rang in the runtime");
}

#[test]
fn the_clock_of_the_process_is_that_of_its_executors() {
    let executor = TokioExecutor::new();
    let (before, between, after) = (executor.now(), process_clock(), executor.now());
    assert!(before.monotonic <= between.monotonic && between.monotonic <= after.monotonic);
    thread::spawn(move || assert!(process_clock().monotonic >= after.monotonic)).join().unwrap();
}

/// A store that answers later, as most do: in memory, nobody waits.
#[test]
fn a_manager_that_never_saw_a_runtime_can_be_closed_on_a_plain_thread() {
    let leases = LeaseManager::builder(FaultyStore::new(MemoryStore::new()), TokioExecutor::new()).build().unwrap();
    block_on(all_refusals(&leases));
    let sleep = TokioExecutor::new().sleep(ms(1));
    block_on(async {
        sleep.await;
        leases.close().await;
    });
    assert!(matches!(block_on(leases.lock("k").acquire()), Err(AcquireError::Closed | AcquireError::Unsupported(_))));
}

#[test]
fn without_a_runtime_no_signal_is_waited_for_and_nothing_panics() {
    let mut signal = Box::pin(TokioExecutor::shutdown_signal());
    assert!(block_on(async { futures::poll!(signal.as_mut()) }).is_pending());
}

#[cfg(unix)]
#[test]
fn in_a_runtime_without_io_no_signal_is_waited_for_and_nothing_panics() {
    let mut signal = Box::pin(TokioExecutor::shutdown_signal());
    assert!(runtime().block_on(async { futures::poll!(signal.as_mut()) }).is_pending());
}

/// A manager over a store that needs the runtime, with a guard, whose runtime has ended.
fn after_its_runtime(store: &MemoryStore) -> (LeaseManager, LeaseGuard) {
    let store = FaultyStore::new(store.clone());
    let leases = LeaseManager::builder(store, TokioExecutor::new()).lease(ms(2_000)).build().unwrap();
    let guard = runtime().block_on(leases.lock("held").acquire()).unwrap();
    (leases, guard)
}

/// What the future brings on a thread of no runtime. It must end: tokio's timers cannot watch over that here.
fn soon<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(block_on(future)));
    end.recv_timeout(PATIENCE).expect("it hangs")
}

fn tells_of_the_end<T>(asked: Result<T, AcquireError>) {
    let error = asked.err().expect("granted where nothing would renew it");
    assert!(error.to_string().contains("runtime"), "{error}");
}

#[test]
fn a_manager_whose_runtime_ended_can_be_closed_on_a_plain_thread() {
    let (leases, guard) = after_its_runtime(&MemoryStore::new());
    soon(async move { leases.close().await });
    assert!(!guard.is_valid());
}

#[test]
fn a_request_on_a_plain_thread_learns_that_the_runtime_has_ended() {
    let (leases, _guard) = after_its_runtime(&MemoryStore::new());
    let again = leases.clone();
    tells_of_the_end(soon(async move { again.lock("k").acquire().await }));
    let again = leases.clone();
    tells_of_the_end(soon(async move { again.lock("k").timeout(PATIENCE * 2).acquire().await }));
    let status = soon(async move { leases.status("k").await }).expect("a look renews nothing");
    assert!(status.is_idle(), "{status:?}");
}

#[test]
fn a_request_that_waits_in_another_runtime_goes_on_although_the_first_has_ended() {
    let store = MemoryStore::new();
    let (leases, first, other) = (manager(&store), runtime(), runtime());
    let second = manager(&store);
    let taken = other.block_on(second.lock("k").acquire()).unwrap();
    // Its heartbeats sleep in the first runtime, until there is a request in the other one.
    let _guard = first.block_on(leases.lock("held").acquire()).unwrap();
    let waits = leases.clone();
    let waiting = other.spawn(async move { waits.lock("k").timeout(PATIENCE * 2).acquire().await });
    let queued = async {
        while leases.stats().waited == 0 {
            tokio::task::yield_now().await;
        }
    };
    other.block_on(queued);
    drop(first);
    other.block_on(taken.release()).unwrap();
    assert!(soon(async move { waiting.await.unwrap() }).unwrap().is_valid());
}

#[test]
fn an_upgrade_that_waited_when_its_runtime_ended_is_given_up() {
    let store = MemoryStore::new();
    let (leases, first, other) = (manager(&store), runtime(), runtime());
    let guard = Arc::new(first.block_on(leases.lock("k").shared().acquire()).unwrap());
    let second = manager(&store);
    let sharer = other.block_on(second.lock("k").shared().acquire()).unwrap();
    let upgraded = guard.clone();
    let mut upgrade = Box::pin(async move { upgraded.upgrade().await });
    first.block_on(async { assert!(futures::poll!(upgrade.as_mut()).is_pending()) });
    let queued = async {
        while second.status("k").await.unwrap().queue.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    other.block_on(queued);
    drop(first);
    tells_of_the_end(soon(upgrade));
    other.block_on(sharer.release()).unwrap();
    let reader = other.block_on(manager(&store).lock("k").shared().try_acquire()).unwrap();
    assert!(guard.mode() == Mode::Shared && reader.is_some(), "nobody waits for the upgrade any more");
}

#[test]
fn a_request_that_waited_behind_an_upgrade_holds_nothing_when_its_runtime_ended() {
    let store = MemoryStore::new();
    let (leases, first, other) = (manager(&store), runtime(), runtime());
    let shared = |leases: LeaseManager| async move { leases.lock("k").shared().acquire().await };
    let guard = Arc::new(first.block_on(shared(leases.clone())).unwrap());
    let sharer = first.block_on(shared(leases.clone())).unwrap();
    let upgraded = guard.clone();
    let mut upgrade = Box::pin(async move { upgraded.upgrade().await });
    let mut third = Box::pin(shared(leases.clone()));
    first.block_on(async {
        assert!(futures::poll!(upgrade.as_mut()).is_pending());
        assert!(futures::poll!(third.as_mut()).is_pending());
    });
    drop(first);
    tells_of_the_end(soon(upgrade));
    tells_of_the_end(soon(third));
    drop((guard, sharer));
    let next = other.block_on(manager(&store).lock("k").timeout(PATIENCE).acquire());
    assert!(next.is_ok(), "nobody holds it: {next:?}");
}

/// The guard that upgrades may hold for two seconds only, which is enough for the requests on a busy machine. Nobody drives the runtime, so
/// the context learns only when the runtime ends that the time is over. Then the upgrade fails. The requests behind it must hold nothing:
/// nobody would release it.
#[test]
fn a_request_that_waited_behind_an_overdue_holder_holds_nothing_when_its_runtime_ended() {
    let store = MemoryStore::new();
    let (leases, other) = (manager(&store), runtime());
    let first = Builder::new_current_thread().enable_time().build().unwrap();
    let shared = |leases: LeaseManager| async move { leases.lock("k").shared().acquire().await };
    let short = leases.lock("k").shared().max_hold(ms(2_000)).acquire();
    let guard = Arc::new(first.block_on(short).unwrap());
    let sharer = first.block_on(shared(leases.clone())).unwrap();
    let upgraded = guard.clone();
    let mut upgrade = Box::pin(async move { upgraded.upgrade().await });
    let mut waiting = [Box::pin(shared(leases.clone())), Box::pin(shared(leases.clone()))];
    first.block_on(async {
        assert!(futures::poll!(upgrade.as_mut()).is_pending());
        for waits in &mut waiting {
            assert!(futures::poll!(waits.as_mut()).is_pending());
        }
    });
    // Nobody drives the runtime meanwhile.
    thread::sleep(ms(2_100));
    drop(first);
    assert!(soon(upgrade).is_err());
    waiting.into_iter().for_each(|waits| tells_of_the_end(soon(waits)));
    drop((guard, sharer));
    let next = other.block_on(manager(&store).lock("k").timeout(PATIENCE).acquire());
    assert!(next.is_ok(), "nobody holds it: {next:?}");
}

#[test]
fn a_manager_whose_runtime_ended_goes_on_in_another() {
    let (leases, _guard) = after_its_runtime(&MemoryStore::new());
    let other = runtime();
    let guard = other.block_on(leases.lock("k").timeout(PATIENCE).acquire()).unwrap();
    assert!(other.block_on(guard.verify()).is_ok_and(|holds| holds));
    soon(async move { leases.close().await });
}

/// The same, over a store of which each answer needs the runtime.
fn over_a_slow_store() -> (LeaseManager, LeaseGuard) {
    let leases = LeaseManager::builder(Slow::default(), TokioExecutor::new()).linger(ms(0)).build().unwrap();
    let guard = runtime().block_on(leases.lock("held").acquire()).unwrap();
    (leases, guard)
}

#[test]
fn a_release_on_a_plain_thread_learns_that_the_runtime_has_ended() {
    let (_leases, guard) = over_a_slow_store();
    let released = soon(async move { guard.release().await });
    assert!(released.as_ref().is_err_and(|error| error.to_string().contains("runtime")), "{released:?}");
}

#[test]
fn a_question_about_a_guard_learns_that_the_runtime_has_ended() {
    let (_leases, guard) = over_a_slow_store();
    let verified = soon(async move { guard.verify().await });
    assert!(verified.as_ref().is_err_and(|error| error.to_string().contains("runtime")), "{verified:?}");
}

#[test]
fn a_manager_that_has_gone_leaves_no_task_behind_in_its_runtime() {
    let runtime = runtime();
    runtime.block_on(async {
        for _ in 0..10 {
            let leases = manager(&MemoryStore::new());
            leases.lock("k").acquire().await.unwrap().release().await.unwrap();
            leases.close().await;
        }
        let gone = async {
            while runtime.metrics().num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
        };
        assert!(
            tokio::time::timeout(PATIENCE / 4, gone).await.is_ok(),
            "{:?} live on",
            runtime.metrics().num_alive_tasks()
        );
    });
}

/// As in a `main` that builds its runtime last.
#[test]
fn a_manager_that_is_to_be_closed_later_is_closed_although_no_runtime_was_there_yet() {
    let leases = manager(&MemoryStore::new());
    let (stop, stopped) = futures::channel::oneshot::channel::<()>();
    leases.close_when(async move { _ = stopped.await });
    let mut events = leases.events();
    let runtime = runtime();
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    stop.send(()).expect("somebody waits for it");
    let ended = async { while events.next().await.is_some() {} };
    let ended = runtime.block_on(async { tokio::time::timeout(PATIENCE / 4, ended).await });
    assert!(ended.is_ok() && leases.is_closed() && !guard.is_valid());
}

#[test]
fn a_runtime_that_ends_while_a_manager_closes_on_a_plain_thread_panics_nobody() {
    let (store, runtime) = (Slow::default(), runtime());
    let leases = LeaseManager::builder(store.clone(), TokioExecutor::new()).build().unwrap();
    drop(runtime.block_on(leases.lock("held").acquire()).unwrap());
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        block_on(leases.close());
        ended.send(())
    });
    while !store.closes.load(Relaxed) {
        thread::yield_now();
    }
    drop(runtime);
    assert_eq!(end.recv_timeout(PATIENCE), Ok(()));
}

/// A store that is polled in tasks only, and hangs when it is closed.
#[derive(Clone, Debug, Default)]
struct Slow {
    inner: MemoryStore,
    closes: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Store for Slow {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.inner.transact(batch, now, limit).await
    }

    async fn close(&self) {
        self.closes.store(true, Relaxed);
        pending().await
    }

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}
