//! The real executor: several threads, real time. What is decided is tested in simulated time; here it is driven.
#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]
#![expect(clippy::disallowed_methods, reason = "a test spawns its contestants itself")]

#[path = "tokio/contest.rs"]
mod contest;
#[path = "tokio/cooperation.rs"]
mod cooperation;
#[path = "tokio/executors.rs"]
mod executors;
#[path = "tokio/pumps.rs"]
mod pumps;
#[path = "tokio/runtimes.rs"]
mod runtimes;
#[path = "tokio/several_runtimes.rs"]
mod several_runtimes;
#[path = "tokio/spawned.rs"]
mod spawned;
#[path = "tokio/stores.rs"]
mod stores;
#[path = "tokio/upgrades.rs"]
mod upgrades;
#[path = "tokio/words.rs"]
mod words;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use futures::future::join_all;
use leasehold::{
    LeaseManager, ReleaseOutcome,
    executor::{Executor, MaybeSendFuture, TokioExecutor, WeakShared},
    machine::{Message, Now, SessionId, StoreClock},
    signal::{Beacons, Inbox, LocalSignals, Signals},
    store::{MemoryStore, Store},
};
use tokio::{
    runtime::Builder,
    task::{spawn, yield_now},
    time::{sleep, timeout},
};

/// Longer than anything takes here, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Waits for what is about to become true.
async fn until(is_so: impl AsyncFn() -> bool) {
    let becomes_so = async {
        while !is_so().await {
            sleep(ms(5)).await;
        }
    };
    timeout(PATIENCE, becomes_so).await.expect("it never came to be");
}

fn manager(store: &MemoryStore) -> LeaseManager {
    LeaseManager::builder(store.clone(), TokioExecutor::new()).build().unwrap()
}

/// S1 on several threads: contexts and tasks within them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_than_one_is_inside_on_several_threads() {
    let store = MemoryStore::new();
    let (inside, largest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks = (0..4).flat_map(|_| {
        let leases = manager(&store);
        (0..3).map(move |_| leases.clone())
    });
    let tasks = tasks.map(|leases| {
        let (inside, largest) = (inside.clone(), largest.clone());
        spawn(async move {
            for turn in 0..500_u64 {
                let guard = leases.lock("k").acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                let token = guard.token().as_u64();
                assert!(largest.swap(token, Ordering::SeqCst) < token);
                if turn % 7 == 0 {
                    yield_now().await;
                }
                assert!(guard.is_valid());
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                if turn % 2 == 0 {
                    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
                }
            }
        })
    });
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        task.unwrap();
    }
}

/// A guard may be dropped where there is no runtime; timers of other leases go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_dropped_on_a_foreign_thread_is_released_and_others_are_renewed() {
    let store = MemoryStore::new();
    let build = || LeaseManager::builder(store.clone(), TokioExecutor::new()).heartbeat(ms(100)).build();
    let (one, two) = (build().unwrap(), build().unwrap());
    let guard = one.lock("a").acquire().await.unwrap();
    let leases = one.clone();
    let kept = thread::spawn(move || {
        drop(guard);
        futures::executor::block_on(leases.lock("b").acquire()).unwrap()
    });
    let kept = kept.join().unwrap();
    assert!(two.lock("a").timeout(PATIENCE).acquire().await.is_ok());
    let before = one.stats().renewed;
    until(async || one.stats().renewed > before + 4).await;
    assert!(kept.is_valid() && two.lock("b").try_acquire().await.unwrap().is_none());
}

/// The release on a foreign thread may plan the alarm anew, and that must ring all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_dropped_on_a_foreign_thread_harms_no_lease_from_before() {
    let store = MemoryStore::new();
    let builder = LeaseManager::builder(store.clone(), TokioExecutor::new());
    let one = builder.heartbeat(ms(400)).store_timeout(ms(50)).build().unwrap();
    let kept = one.lock("kept").acquire().await.unwrap();
    let other = one.lock("other").acquire().await.unwrap();
    sleep(ms(50)).await;
    thread::spawn(move || drop(other)).join().unwrap();
    let before = one.stats().renewed;
    until(async || one.stats().renewed > before + 2).await;
    assert!(kept.is_valid());
    assert!(manager(&store).lock("kept").try_acquire().await.unwrap().is_none());
}

/// A manager that outlives the runtime in which it set its alarm.
#[test]
fn a_second_runtime_has_timers() {
    let leases = manager(&MemoryStore::new());
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let held = runtime().block_on(leases.lock("k").acquire()).unwrap();
    let wait = leases.lock("k").timeout(ms(200)).acquire();
    let told = runtime().block_on(async { timeout(PATIENCE, wait).await });
    assert!(told.expect("the time-out fires").is_err() && held.is_valid());
}

/// Signals whose thread is preempted as they begin to rest. They report that they begin, and that they rest.
#[derive(Debug)]
struct Preempted(LocalSignals, mpsc::Sender<&'static str>);

impl Signals for Preempted {
    fn beacons(&self) -> Beacons {
        self.0.beacons()
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.0.wake(session, beacon, inbox)
    }

    fn rest(&self) {
        let _ = self.1.send("begins");
        thread::sleep(ms(600));
        self.0.rest();
        let _ = self.1.send("rests");
    }

    fn send(&self, message: &Message) {
        self.0.send(message);
    }

    fn watch(&self, watch: u64, session: SessionId) {
        self.0.watch(watch, session);
    }

    fn unwatch(&self, watch: u64) {
        self.0.unwatch(watch);
    }
}

/// Else a context that holds would be seen without a beacon, and taken for dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn rest_and_wake_keep_their_order() {
    let store = MemoryStore::with_clock(StoreClock::Observed);
    let (tell, told) = mpsc::channel();
    let signals = Preempted(LocalSignals::new(&store.reach()), tell);
    let one = LeaseManager::builder(store.clone(), TokioExecutor::new()).signals(signals).build().unwrap();
    let two = manager(&store);
    one.lock("k").acquire().await.unwrap().release().await.unwrap();
    // The rest comes ten seconds later, on the thread of the alarm, and is still under way here. This thread needs no
    // timer, which that one might hold up.
    assert_eq!(told.recv_timeout(PATIENCE), Ok("begins"));
    let first = one.lock("k").acquire().await.unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok("rests"));
    let second = two.lock("k").timeout(ms(500)).acquire().await;
    assert!(second.is_err(), "evicted while its holder lives");
    assert!(first.is_valid());
}

/// An executor that counts the timers that stand.
#[derive(Debug, Clone, Default)]
struct Counting {
    inner: TokioExecutor,
    timers: Arc<()>,
}

impl Executor for Counting {
    fn now(&self) -> Now {
        self.inner.now()
    }

    fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
        self.inner.spawn(task);
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        let (timer, sleep) = (self.timers.clone(), self.inner.sleep(duration));
        Box::pin(async move {
            sleep.await;
            drop(timer);
        })
    }

    fn random(&self) -> u128 {
        self.inner.random()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_context_has_one_timer() {
    let (store, executor) = (MemoryStore::new(), Counting::default());
    // A timer that is left behind stands for a heartbeat, longer than anybody waits here.
    let builder = LeaseManager::builder(store.clone(), executor.clone()).lease(PATIENCE * 10);
    let leases = builder.build().unwrap();
    let _kept = leases.lock("kept").acquire().await.unwrap();
    let _held = manager(&store).lock("k").acquire().await.unwrap();
    for _ in 0..4 {
        let impatient = (0..16).map(|task| {
            let leases = leases.clone();
            spawn(async move {
                for turn in 0..100 {
                    let refused = leases.lock("k").timeout(ms(1 + (task + turn) % 3)).acquire().await;
                    assert!(refused.is_err());
                }
            })
        });
        for task in join_all(impatient.collect::<Vec<_>>()).await {
            task.unwrap();
        }
        // Those that were put off end in their own tasks. Two are the executors'.
        until(async || Arc::strong_count(&executor.timers) - 2 <= 1).await;
    }
}
