//! Stores that need the runtime: they are polled in it, and nowhere else.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use leasehold::{
    LeaseManager, LeaseManagerBuilder, StoreError,
    executor::{Executor, MaybeSendFuture, Shared, TokioExecutor},
    machine::{Batch, Now, Reply, SessionId, StoreClock},
    store::{Durability, MemoryStore, Reach, Store},
};
use tokio::{runtime::Builder, task::yield_now, time::timeout};

use crate::{PATIENCE, ms};

/// A store over the network: it has a time limit of its own, as all clients have.
#[derive(Debug, Clone)]
struct Remote(MemoryStore);

#[async_trait::async_trait]
impl Store for Remote {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let asked = async {
            yield_now().await;
            self.0.transact(batch, now, limit).await
        };
        let answer = timeout(ms(2_000), asked).await;
        answer.unwrap_or_else(|_| Err(StoreError::unknown("late")))
    }

    async fn close(&self) {}

    fn loses_writes_in_failover(&self) -> bool {
        true
    }

    fn reach(&self) -> Reach {
        self.0.reach()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_dropped_on_a_plain_thread_is_given_back_in_the_runtime() {
    let store = Remote(MemoryStore::new());
    let build = || LeaseManager::builder(store.clone(), TokioExecutor::new()).linger(ms(0)).build().unwrap();
    let (one, other) = (build(), build());
    let guard = one.lock("k").acquire().await.unwrap();
    let ended = thread::spawn(move || drop(guard)).join();
    assert!(ended.is_ok(), "dropping a guard panicked: {:?}", ended.unwrap_err().downcast_ref::<&str>());
    assert!(other.lock("k").timeout(PATIENCE).acquire().await.is_ok());
}

/// A program that chooses its store when it starts, and one that keeps a handle to it.
#[tokio::test]
async fn a_store_may_be_boxed_or_shared() {
    let memory = MemoryStore::with_clock(StoreClock::Observed);
    let boxed: Box<dyn Store> = Box::new(memory.clone());
    let shared = Arc::new(memory.clone());
    let other: Arc<dyn Store> = shared.clone();
    for store in [&boxed as &dyn Store, &shared, &other] {
        assert_eq!(
            (store.reach(), store.clock(), store.durability(), store.polls_inline(), store.abandons()),
            (memory.reach(), StoreClock::Observed, Durability::Ephemeral, true, true)
        );
        let batch = Batch::new(SessionId(1), Vec::new());
        assert!(store.transact_at_once(&batch, Now::default()).is_some());
    }
    let replicated: Arc<dyn Store> = Arc::new(Remote(memory.clone()));
    assert!(replicated.loses_writes_in_failover() && !other.loses_writes_in_failover());
    let build = |builder: LeaseManagerBuilder| builder.linger(ms(0)).build().unwrap();
    let one = build(LeaseManager::builder(boxed, TokioExecutor::new()));
    let two = build(LeaseManager::builder(shared, TokioExecutor::new()));
    let three = build(LeaseManager::builder(other, TokioExecutor::new()));
    let guard = one.lock("k").acquire().await.unwrap();
    assert!(two.lock("k").try_acquire().await.unwrap().is_none());
    assert_eq!(three.list("").await.unwrap().len(), 1);
    guard.release().await.unwrap();
    assert!(three.lock("k").try_acquire().await.unwrap().is_some());
    one.close().await;
}

/// A store that answers no operation, by mistake.
#[derive(Debug)]
struct Mute {
    inner: MemoryStore,
    polls_inline: bool,
}

#[async_trait::async_trait]
impl Store for Mute {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        let reply = self.inner.transact(batch, now, limit).await?;
        Ok(Reply { answers: Vec::new(), ..reply })
    }

    async fn close(&self) {}

    fn polls_inline(&self) -> bool {
        self.polls_inline
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

/// The store may answer within the call, or in a task, where nobody would hear a panic.
#[tokio::test]
async fn whoever_asks_a_store_that_answers_no_operation_is_told() {
    for polls_inline in [false, true] {
        let store = Mute { inner: MemoryStore::new(), polls_inline };
        let builder = LeaseManager::builder(store, TokioExecutor::new()).lease(ms(1_000));
        let leases = builder.build().unwrap();
        let asked = timeout(PATIENCE, leases.lock("k").try_acquire()).await;
        let told = asked.expect("it waits for ever").map(drop).unwrap_err().to_string();
        assert!(told.contains("Batch::apply"), "it tells the remedy: {told}");
        let asked = timeout(PATIENCE, leases.lock("k").acquire()).await;
        assert!(asked.expect("it waits for ever").is_err());
        timeout(PATIENCE, leases.close()).await.expect("it closes");
    }
}

/// An executor whose other place has no timers any more.
#[derive(Debug)]
struct TwoPlaces {
    inner: TokioExecutor,
    is_elsewhere: bool,
}

impl Executor for TwoPlaces {
    fn now(&self) -> Now {
        self.inner.now()
    }

    fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
        self.inner.spawn(task);
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        assert!(!self.is_elsewhere, "the timers of that place are gone");
        self.inner.sleep(duration)
    }

    fn random(&self) -> u128 {
        self.inner.random()
    }

    fn elsewhere(&self) -> Option<Shared<dyn Executor>> {
        Some(Arc::new(Self { inner: self.inner.clone(), is_elsewhere: true }))
    }
}

#[test]
fn an_executor_that_panics_hangs_nobody() {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let asks = || {
            runtime.block_on(async {
                let executor = TwoPlaces { inner: TokioExecutor::new(), is_elsewhere: false };
                let leases = LeaseManager::builder(MemoryStore::new(), executor).build().unwrap();
                leases.lock("k").try_acquire().await.map(drop)
            })
        };
        done.send(catch_unwind(AssertUnwindSafe(asks)).is_ok()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok(false), "it panics");
}

/// An executor whose clock panics at one of its readings, often while the manager is locked.
#[derive(Debug)]
struct Stopped {
    inner: TokioExecutor,
    readings_left: AtomicU64,
}

impl Executor for Stopped {
    fn now(&self) -> Now {
        assert!(self.readings_left.fetch_sub(1, Relaxed) != 1, "the clock has stopped");
        self.inner.now()
    }

    fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
        self.inner.spawn(task);
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        self.inner.sleep(duration)
    }

    fn random(&self) -> u128 {
        self.inner.random()
    }
}

/// Whoever cleans up must find the manager unlocked.
#[test]
fn a_clock_that_panics_hangs_nobody() {
    let mut panicked = 0;
    for readings in 1..=12 {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let asks = || {
                runtime.block_on(async {
                    let executor = Stopped { inner: TokioExecutor::new(), readings_left: AtomicU64::new(readings) };
                    let leases = LeaseManager::builder(MemoryStore::new(), executor).linger(ms(0)).build().unwrap();
                    let guard = leases.lock("k").try_acquire().await.unwrap().unwrap();
                    guard.release().await.unwrap();
                })
            };
            done.send(catch_unwind(AssertUnwindSafe(asks)).is_err()).unwrap();
        });
        let ended = is_done.recv_timeout(PATIENCE);
        panicked += u64::from(ended.unwrap_or_else(|_| panic!("it hangs after reading {readings}")));
    }
    assert!(panicked >= 5, "the clock was read only {panicked} times");
}
