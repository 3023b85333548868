//! Executors behind pointers.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold::{
    LeaseManager,
    executor::{Executor, Lifecycle, LifecycleWatch, LifecycleWatcher, MaybeSendFuture, TokioExecutor},
    machine::{Monotonic, Now, Wall},
    store::MemoryStore,
};

/// It answers each question otherwise than an executor does by default, and counts what it is told to do.
#[derive(Debug, Default)]
struct Odd(AtomicUsize);

const NOW: Now = Now { monotonic: Monotonic::from_ms(7), wall: Wall::from_ms(8) };

struct Watch;

impl LifecycleWatch for Watch {}

struct Watcher;

impl LifecycleWatcher for Watcher {
    fn lifecycle(&self, _: Lifecycle) {}
}

impl Executor for Odd {
    fn now(&self) -> Now {
        NOW
    }

    fn spawn(&self, _: MaybeSendFuture<'static, ()>) {
        self.0.fetch_add(1, Relaxed);
    }

    fn sleep(&self, _: Duration) -> MaybeSendFuture<'static, ()> {
        self.0.fetch_add(10, Relaxed);
        Box::pin(async {})
    }

    fn random(&self) -> u128 {
        9
    }

    fn check(&self) -> Result<(), &'static str> {
        Err("something is missing")
    }

    fn poll_proceed(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn elsewhere(&self) -> Option<Arc<dyn Executor>> {
        Some(Arc::new(Self::default()))
    }

    fn has_crashed(&self) -> bool {
        true
    }

    fn delays_chained_timers(&self) -> bool {
        true
    }

    fn watch_lifecycle(&self, _: Weak<dyn LifecycleWatcher>) -> Option<Box<dyn LifecycleWatch>> {
        Some(Box::new(Watch))
    }
}

/// Asks the pointer itself, and not what it points to.
fn answers_as_what_it_points_to<E: Executor>(executor: &E, odd: &Odd) {
    let watcher: Weak<dyn LifecycleWatcher> = Weak::<Watcher>::new();
    let mut context = Context::from_waker(Waker::noop());
    executor.spawn(Box::pin(async {}));
    drop(executor.sleep(Duration::ZERO));
    assert_eq!(odd.0.swap(0, Relaxed), 11, "it spawns once and sleeps once");
    assert_eq!((executor.now(), executor.random()), (NOW, 9));
    assert_eq!(executor.check(), Err("something is missing"));
    assert!(executor.poll_proceed(&mut context).is_pending());
    assert!(executor.elsewhere().is_some() && executor.watch_lifecycle(watcher).is_some());
    assert!(executor.has_crashed() && executor.delays_chained_timers());
}

#[test]
fn a_pointer_to_an_executor_answers_as_what_it_points_to() {
    let odd = Arc::new(Odd::default());
    answers_as_what_it_points_to(&odd, &odd);
    let boxed: Box<dyn Executor> = Box::new(odd.clone());
    answers_as_what_it_points_to(&boxed, &odd);
    let shared: Arc<dyn Executor> = odd.clone();
    answers_as_what_it_points_to(&shared, &odd);
}

/// A program that chooses its executor when it starts.
#[tokio::test]
async fn a_manager_runs_on_a_boxed_executor() {
    let executor: Box<dyn Executor> = Box::new(TokioExecutor::new());
    let leases = LeaseManager::builder(MemoryStore::new(), executor).build().unwrap();
    let guard = leases.lock("k").acquire().await.unwrap();
    assert!(leases.lock("k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    leases.close().await;
}
