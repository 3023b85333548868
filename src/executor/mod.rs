//! Executors: they spawn, sleep, draw random bits and tell both clocks. They do not know what a lease is.

mod bounds;
#[cfg(not(all(feature = "marks", target_family = "wasm", target_os = "unknown")))]
mod marks;
mod mutex;
mod part;
mod pointers;
#[cfg(feature = "test-util")]
mod sim;
#[cfg(all(feature = "tokio", not(all(target_family = "wasm", target_os = "unknown"))))]
mod tokio;
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
mod web;
#[cfg(all(feature = "marks", target_family = "wasm", target_os = "unknown"))]
mod web_marks;

#[cfg(all(
    any(feature = "store-postgres", feature = "store-postgres-sqlx", feature = "store-redis", feature = "store-etcd"),
    not(all(target_family = "wasm", target_os = "unknown"))
))]
pub(crate) use self::tokio::timers_run_here;
#[cfg(all(feature = "tokio", not(all(target_family = "wasm", target_os = "unknown"))))]
pub use self::tokio::{TokioExecutor, process_clock};
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
pub use self::web::WebExecutor;
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
pub(crate) use self::web::{now, random, spawn};
pub(crate) use bounds::{
    HAS_MANY_CONTEXTS, ProcessMark, ThreadMark, after_panic, poll_proceed, process_wide, this_process, this_thread,
};
pub use bounds::{MaybeSend, MaybeSendFuture, MaybeSendSync, Shared, WeakShared};
pub(crate) use mutex::Mutex;
pub(crate) use part::Part;
#[cfg(feature = "test-util")]
pub use sim::SimExecutor;
#[cfg(all(feature = "marks", target_family = "wasm", target_os = "unknown"))]
use web_marks as marks;

use core::{
    fmt::Debug,
    task::{Context, Poll},
    time::Duration,
};

use crate::machine::Now;

/// Whether a task may be dropped before it has ended, as by a runtime that ends. The bindings for JavaScript use only the browser's
/// executor, which drops no task.
pub(crate) const DROPS_TASKS: bool = cfg!(not(all(feature = "js", target_family = "wasm", target_os = "unknown")));

/// What a platform does to a context that runs on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lifecycle {
    /// It may stop the context at any moment, without further notice.
    Suspending,
    /// It ends the context for good. The context's code may still run for a moment.
    Ending,
    /// It stopped the context, or was about to, and now lets it run again.
    Resumed,
    /// The context is hidden, as a page in a background tab is, and its timers get slow.
    Hidden,
    /// The context is visible again. It may have been paused meanwhile.
    Shown,
}

/// Is notified of what the platform does to the context.
pub trait LifecycleWatcher: MaybeSendSync {
    /// Reports what the platform did. Work that is not done when this returns may never be done.
    fn lifecycle(&self, event: Lifecycle);
}

/// Notifies a [`LifecycleWatcher`] of what the platform does, until this is dropped.
pub trait LifecycleWatch: MaybeSendSync {
    /// Restores what the platform has removed meanwhile, such as the listeners of a page. A manager calls this with each new session and at
    /// each heartbeat. It must not call the watcher. By default it does nothing.
    fn renew(&self) {}
}

/// What a lease manager needs of the world it runs in.
///
/// A `Box<dyn Executor>` is an executor, too; and so is an `Arc` of an executor, or in a browser an `Rc`.
///
/// # Behavior
/// * [`now`](Self::now) MUST read a monotonic clock that all executors of one process share. It must continue while the machine is
///   suspended, if the platform has such a clock. `process_clock` (feature `tokio`) is the clock that `TokioExecutor` reads.
/// * [`spawn`](Self::spawn) MUST run the task to its end, and MAY run it on any thread natively.
/// * [`sleep`](Self::sleep) MUST NOT end early; dropping its future MUST cancel the timer.
/// * [`random`](Self::random) MUST draw from a source whose state no two contexts share.
/// * No method of the executor, and no waker of its tasks, may synchronously call the manager or poll a task: the manager may hold a lock
///   meanwhile.
pub trait Executor: MaybeSendSync + Debug + 'static {
    /// Reads both clocks.
    fn now(&self) -> Now;

    /// Runs a task in the background.
    fn spawn(&self, task: MaybeSendFuture<'static, ()>);

    /// Completes after this time at the earliest.
    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()>;

    /// Draws 128 random bits: the id of a session.
    fn random(&self) -> u128;

    /// Checks whether [`spawn`](Self::spawn) and [`sleep`](Self::sleep) work where this is called. The manager calls it before each
    /// request, so it should be cheap once it has succeeded.
    ///
    /// # Errors
    /// A sentence that says what is missing, and the remedy. The request is then refused as
    /// [`AcquireError::Unsupported`](crate::AcquireError::Unsupported).
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Asks whether the calling task may go on. If it has worked for long without a pause, the answer is [`Poll::Pending`], and the
    /// executor wakes the task again after it has let other tasks run. The manager asks when a request for a lease is polled and its answer
    /// is there; after it has begun a downgrade; and before each other request except a release. It never asks in a browser. The executor
    /// may count each [`Poll::Ready`] as work done. Many requests are answered without a wait, so a task that makes one after the other
    /// would otherwise keep its thread busy for ever. With `TokioExecutor` this is [cooperative
    /// scheduling](https://docs.rs/tokio/latest/tokio/task/coop/).
    fn poll_proceed(&self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// An executor for a second place, such as another runtime, in which this context was used. If the caller is in the place where the
    /// context was used first, it is for the other place that used it last; else it is for the first one. `None` if there is no second
    /// place. The driver sets its timer in both places, because either may end or stall.
    fn elsewhere(&self) -> Option<Shared<dyn Executor>> {
        None
    }

    /// Tells whether this context has crashed. If it has, its tasks do nothing more when they are dropped: they neither fail the requests
    /// that wait for them nor withdraw those from the store. A real crash drops no task, so only a simulation such as `SimExecutor` needs
    /// this.
    fn has_crashed(&self) -> bool {
        false
    }

    /// Tells whether a timer that another timer's task sets may ring much later than other timers, as in a hidden page. If so, the driver
    /// sets its timer again whenever the store answers, at the cost of a task.
    fn delays_chained_timers(&self) -> bool {
        false
    }

    /// Notifies the watcher of what the platform does to this context, until the returned value is dropped. `None` if the platform does
    /// nothing to contexts, or does not report it.
    fn watch_lifecycle(&self, _watcher: WeakShared<dyn LifecycleWatcher>) -> Option<Box<dyn LifecycleWatch>> {
        None
    }
}
