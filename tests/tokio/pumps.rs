//! What one thread does for others: whoever drops a guard goes on soon, however many others ask for something meanwhile.

use std::time::Duration;
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    task::{Context, Wake, Waker},
    thread,
};

use futures::{FutureExt as _, executor::block_on, future::join_all};
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, LeaseManagerBuilder, StoreError,
    executor::{Executor, TokioExecutor},
    machine::{Batch, Now, Reply, StoreClock},
    store::{MemoryStore, Reach, Store},
};
use tokio::runtime::{Builder, Runtime};

use crate::ms;

/// How many requests others have while one guard is dropped.
const CROWD: u64 = 1_000;

thread_local! {
    /// The transactions that this thread ran, and how many of them bring another request each.
    static RAN: Cell<u64> = const { Cell::new(0) };
    static FEEDS: Cell<u64> = const { Cell::new(0) };
}

/// A store in which each transaction of one thread takes long enough that another thread asks for something meanwhile.
#[derive(Debug)]
struct Feeding {
    inner: MemoryStore,
    others: Mutex<(Sender<bool>, Receiver<()>)>,
}

#[async_trait::async_trait]
impl Store for Feeding {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        RAN.set(RAN.get() + 1);
        if let Some(left) = FEEDS.get().checked_sub(1) {
            FEEDS.set(left);
            let others = self.others.lock().unwrap();
            others.0.send(true).unwrap();
            others.1.recv().unwrap();
        }
        self.inner.transact(batch, now, limit).await
    }

    async fn close(&self) {}

    fn polls_inline(&self) -> bool {
        true
    }

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

/// A runtime that ends without a word: whatever is spawned then is dropped.
#[derive(Debug, Clone)]
struct Mortal {
    tokio: TokioExecutor,
    has_ended: Arc<AtomicBool>,
}

impl Executor for Mortal {
    fn now(&self) -> Now {
        self.tokio.now()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        if !self.has_ended.load(Relaxed) {
            self.tokio.spawn(task);
        }
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.tokio.sleep(duration)
    }

    fn random(&self) -> u128 {
        self.tokio.random()
    }

    fn check(&self) -> Result<(), &'static str> {
        self.tokio.check()
    }
}

/// Tells that it was woken, or panics.
struct Woken(Option<Sender<()>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let told = self.0.as_ref().expect("the event loop of this waker has closed");
        let _ = told.send(());
    }
}

type Asked = Pin<Box<dyn Future<Output = Result<LeaseGuard, AcquireError>> + Send>>;

/// Asks for a key of its own each time it is told to, until it is told not to.
fn ask_when_told(leases: &LeaseManager, told: &Receiver<bool>, done: &Sender<()>) -> Vec<Asked> {
    let mut asked = Vec::new();
    while told.recv() == Ok(true) {
        let mut request: Asked = Box::pin(leases.lock(&format!("other {}", asked.len())).acquire());
        assert!((&mut request).now_or_never().is_none(), "it is left to the thread that is at work");
        asked.push(request);
        done.send(()).unwrap();
    }
    asked
}

/// How many transactions a thread runs that drops a guard while a crowd asks for something, and how many of these were granted.
fn drop_in_a_crowd(runtime_lives: bool) -> (u64, usize) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ((tell, told), (done, is_done)) = (channel(), channel());
    let others = Mutex::new((tell.clone(), is_done));
    let store = Feeding { inner: MemoryStore::with_clock(StoreClock::Trusted), others };
    let executor = Mortal { tokio: TokioExecutor::new(), has_ended: Arc::default() };
    let leases = LeaseManager::builder(store, executor.clone()).linger(ms(0)).build().unwrap();
    let guard = runtime.block_on(leases.lock("mine").acquire()).unwrap();
    let others = thread::spawn(move || {
        let asked = ask_when_told(&leases, &told, &done);
        (asked.len() as u64, asked.into_iter().map(block_on).filter(Result::is_ok).count())
    });
    executor.has_ended.store(!runtime_lives, Relaxed);
    RAN.set(0);
    FEEDS.set(CROWD);
    drop(guard);
    let ran = RAN.get();
    tell.send(false).unwrap();
    let (answered, granted) = others.join().unwrap();
    assert_eq!(answered, CROWD - FEEDS.replace(0), "nobody is forgotten");
    (ran, granted)
}

/// Wakers are other people's code. Two of them panic, and those who wait beside them are woken all the same.
#[test]
fn a_waker_that_panics_takes_no_wake_up_from_the_others() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build().unwrap();
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    let (tell, told) = channel();
    let mut waiting = Vec::new();
    for waker in [None, Some(tell.clone()), None, Some(tell)] {
        let (mut lost, waker) = (Box::pin(guard.lost()), Waker::from(Arc::new(Woken(waker))));
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        waiting.push(lost);
    }
    let _ = catch_unwind(AssertUnwindSafe(|| runtime.block_on(leases.close())));
    let woken = [told.recv_timeout(ms(12_000)), told.recv_timeout(ms(12_000))];
    assert_eq!(woken, [Ok(()), Ok(())], "the lease is lost, and nobody says so");
}

#[test]
fn one_drop_of_a_guard_does_a_bounded_part_of_what_others_ask_for() {
    let (ran, granted) = drop_in_a_crowd(true);
    assert!(ran <= 64 && granted > 0, "one drop ran {ran} transactions");
}

/// Nobody else is there to do it.
#[test]
fn where_the_runtime_is_gone_one_drop_does_it_all() {
    let (ran, _) = drop_in_a_crowd(false);
    assert!(ran > CROWD, "one drop ran {ran} transactions");
}

/// A runtime, and a guard that is dropped in another one, which nobody drives afterwards. In the midst of that, others ask for leases.
struct Dropped {
    home: Runtime,
    leases: LeaseManager,
    asked: Vec<Asked>,
    _kept: (Runtime, Vec<LeaseGuard>),
}

impl Dropped {
    /// The manager keeps these keys.
    fn with(options: impl FnOnce(LeaseManagerBuilder) -> LeaseManagerBuilder, held: &[&str]) -> Self {
        let home = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let idle = Builder::new_current_thread().enable_all().build().unwrap();
        let ((tell, told), (done, is_done)) = (channel(), channel());
        let others = Mutex::new((tell.clone(), is_done));
        let store = Feeding { inner: MemoryStore::with_clock(StoreClock::Trusted), others };
        let builder = LeaseManager::builder(store, TokioExecutor::new()).linger(ms(0));
        let leases = options(builder).build().unwrap();
        let take = |key| home.block_on(leases.lock(key).acquire()).unwrap();
        let (held, guard) = (held.iter().copied().map(take).collect(), take("mine"));
        let (other, asking) = (leases.clone(), home.handle().clone());
        let others = thread::spawn(move || {
            let _entered = asking.enter();
            ask_when_told(&other, &told, &done)
        });
        FEEDS.set(100);
        idle.block_on(async { drop(guard) });
        assert!(FEEDS.replace(0) > 0, "the drop leaves something over");
        tell.send(false).unwrap();
        Self { home, leases, asked: others.join().unwrap(), _kept: (idle, held) }
    }
}

#[test]
fn what_a_drop_leaves_over_is_done_although_its_runtime_stands_still() {
    let Dropped { home, leases, asked, _kept } = Dropped::with(|builder| builder, &[]);
    let (ended, end) = channel();
    home.spawn(async move {
        let later = leases.lock("later").timeout(ms(4_000)).acquire().await.is_ok();
        let granted = join_all(asked).await.iter().all(Result::is_ok);
        ended.send((later, granted)).unwrap();
    });
    assert_eq!(end.recv_timeout(ms(12_000)), Ok((true, true)));
}

/// The same, and nobody asks for anything later. No alarm rings meanwhile.
#[test]
fn what_a_drop_leaves_over_is_done_although_nobody_asks_later() {
    let seldom = |builder: LeaseManagerBuilder| builder.lease(ms(3_600_000)).store_timeout(ms(600_000));
    let Dropped { home, leases: _leases, asked, _kept } = Dropped::with(seldom, &["held"]);
    let (ended, end) = channel();
    home.spawn(async move { ended.send(join_all(asked).await.iter().all(Result::is_ok)) });
    assert_eq!(end.recv_timeout(ms(12_000)), Ok(true));
}
