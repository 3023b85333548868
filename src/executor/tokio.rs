//! The executor for native programs on tokio.

mod clock;
mod place;
mod sleep;

use alloc::{sync::Arc, vec::Vec};
use core::{
    fmt,
    future::pending,
    mem,
    sync::atomic::Ordering,
    task::{Context, Poll},
    time::Duration,
};
use std::panic::catch_unwind;

use tokio::{
    runtime::{Handle, Id},
    task::coop,
};

use place::{Away, Place, STANDS_STILL, Unbegun};
use sleep::{sleep_in, sleep_while_in, sleep_without_runtime};

use super::{Executor, MaybeSendFuture, Mutex, Shared};
use crate::machine::Now;

pub use clock::process_clock;

/// Runs tasks on a tokio runtime, and reads a clock that continues while the machine is suspended.
///
/// **Not for a paused clock.** Leases count on this clock, and not on that of tokio. In a test under `tokio::time::pause` or
/// `#[tokio::test(start_paused = true)]`, tokio's clock jumps from timer to timer while hardly any real time passes: each timer of a lease
/// fires too early and is set again at once, so the test spins and ends no sooner. Test with `SimExecutor` (feature `test-util`), whose
/// [own virtual time](https://github.com/leasehold/leasehold/blob/HEAD/docs/test-your-code.md#in-rust) the leases follow, or leave the
/// clock running. Tokio does not tell whether its clock is paused, so this is not refused.
///
/// The runtime needs its timers (`enable_time`, `enable_all` or `#[tokio::main]`). A first request outside of any runtime, or in one
/// without timers, is refused as [`AcquireError::Unsupported`](crate::AcquireError::Unsupported). Tokio reveals only by a panic that timers
/// are missing. The executor catches this panic, but the panic hook has printed tokio's message by then.
///
/// **Do not block on a lease inside a task.** Over most stores, a task of this runtime brings the answer to a request, and that task may
/// have to run on the same thread. After a number of requests without a pause, a request also lets other tasks of its thread run first,
/// like every wait in tokio ([cooperative scheduling](https://docs.rs/tokio/latest/tokio/task/coop/)). If a task blocks its thread on its
/// own request, as by `futures::executor::block_on`, the two tasks may wait for each other for ever, whatever the time limit of the
/// request. Block on a thread of [`spawn_blocking`](tokio::task::spawn_blocking), which works in every runtime. In a multi-thread runtime
/// you may also block inside [`block_in_place`](https://docs.rs/tokio/latest/tokio/task/fn.block_in_place.html). In a current-thread
/// runtime `block_in_place` panics.
///
/// **Do not let any task of the runtime compute for longer than a lease allows.** A task that occupies its thread, even one thread of
/// several, may keep tokio from running any timer of the runtime. Then nothing renews the leases, and after a lease others are granted
/// them: the guard turns invalid in time, but the work goes on. Compute in `spawn_blocking`. Or make the first request of the manager, and
/// open its store, in a runtime of its own whose thread does nothing else; any other runtime may then use the manager.
///
/// A call inside a runtime with timers starts its background work there. Any other call, such as the drop of a guard on a thread without a
/// runtime, starts it in the runtime in which the first request was made. Two runtimes have a timer that renews the leases: the one of the
/// first request, and, if other runtimes use the manager, the one of them that used it last. So the leases are renewed even if one of the
/// two has ended, or is a current-thread runtime that nobody drives at the moment. When both have ended, nothing renews the leases and
/// [`lost`](crate::LeaseGuard::lost) stays pending, while [`is_valid`](crate::LeaseGuard::is_valid) turns false by the clock. A request for
/// one lease that waits in a third runtime then queues again from there, and that runtime renews the leases; whatever else waits fails as
/// [`AcquireError::Store`](crate::AcquireError::Store). Once the runtime of the first request has ended, the next request inside a runtime
/// makes its own runtime the first; a request on a thread without a runtime is refused.
///
/// A program with several runtimes should await [`release`](crate::LeaseGuard::release) before the guard's runtime shuts down. If a guard
/// is dropped just before, its release transaction is lost with the runtime, and the manager repeats it in the other one of those two. If
/// that runtime has ended, too, the next call repeats the transaction. If no call follows, the lease expires.
///
/// ```
/// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build();
/// # assert!(leases.is_ok());
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TokioExecutor {
    home: Arc<Home>,
    /// If set, the place to use, wherever the executor is called.
    bound_to: Option<Arc<Place>>,
}

/// The runtime of the first request, which has timers. Once it has ended, the runtime of the next request takes its place.
#[derive(Debug, Default)]
struct Home {
    /// The runtime in which the executor was made.
    made_in: Option<Handle>,
    place: Arc<Place>,
    /// The other runtime that used the executor last.
    away: Away,
    /// The runtime that was last found to have no timers. It is not asked again, because tokio panics each time.
    timeless: Mutex<Option<Id>>,
    early: Mutex<Early>,
}

/// Tasks that were spawned when no runtime had been there yet: they wait for the first request.
#[derive(Default)]
struct Early(Vec<MaybeSendFuture<'static, ()>>);

impl fmt::Debug for Early {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Early({})", self.0.len())
    }
}

impl Home {
    /// Keeps a task for the runtime of the first request. Once that has ended, as after the end of `main`, nothing goes on in the
    /// background, and the task is dropped: what is held then runs out.
    fn keep(&self, task: MaybeSendFuture<'static, ()>) {
        let mut early = self.early.lock();
        let Some(runtime) = self.place.runtime() else { return early.0.push(task) };
        drop(early);
        // The first request was made meanwhile, or its runtime has ended and drops the task.
        runtime.spawn(task);
    }

    /// Adopts a runtime, and has it run what waited for one. False if it has ended.
    fn settle(&self, runtime: Handle) -> bool {
        let settled = self.place.settle(runtime.clone());
        if settled {
            let early = mem::take(&mut self.early.lock().0);
            early.into_iter().for_each(|task| _ = runtime.spawn(task));
        }
        settled
    }

    /// Whether that runtime has timers. The home has them, because requests were made in it.
    fn has_timers_in(&self, runtime: &Handle) -> bool {
        if self.place.is_in(runtime) {
            return true;
        }
        let mut timeless = self.timeless.lock();
        if *timeless == Some(runtime.id()) {
            return false;
        }
        let has_timers = has_timers(runtime);
        if !has_timers {
            *timeless = Some(runtime.id());
        }
        has_timers
    }
}

const NO_RUNTIME: &str = "there is no tokio runtime here, so nothing would reach a store or keep a lease; make the request inside one, \
                          or call TokioExecutor::new() inside one";
const RUNTIME_ENDED: &str = "the tokio runtime that this manager was used in has ended, so nothing would reach a store or keep a \
                             lease; make the request inside a running one";
const NO_TIMERS: &str = "the tokio runtime has no timers, so nothing would reach a store or keep a lease; call enable_time() or \
                         enable_all() on its Builder";

impl TokioExecutor {
    /// The executor of whichever runtime it is used in; where there is none, of the one that this is called in.
    pub fn new() -> Self {
        let home = Home { made_in: Handle::try_current().ok(), ..Home::default() };
        Self { home: Arc::new(home), bound_to: None }
    }

    fn here(&self) -> Option<Handle> {
        match &self.bound_to {
            Some(place) => place.runtime(),
            None => Handle::try_current().ok(),
        }
    }

    /// The runtime that this is called in; else the one that requests were made in, unless it has ended; before any request, the one
    /// that this was created in.
    fn runtime(&self) -> Option<Handle> {
        self.here().or_else(|| self.remembered())
    }

    fn remembered(&self) -> Option<Handle> {
        match self.home.place.runtime() {
            None => self.home.made_in.clone(),
            home => home.filter(|_| self.home.place.lives()),
        }
    }

    /// The runtime that this is called in, if it has timers. If it is not the home, it is remembered.
    fn here_with_timers(&self) -> Option<Handle> {
        let here = self.here().filter(|here| self.home.has_timers_in(here))?;
        if self.home.place.lives() && !self.home.place.is_in(&here) {
            self.note_away(&here);
        }
        Some(here)
    }

    fn note_away(&self, here: &Handle) {
        let mut away = self.home.away.place.lock();
        if !(away.lives() && away.is_in(here)) {
            // This runtime gets a place of its own: the end of the tenant in the previous one must not pass for the end of this one's.
            *away = Arc::default();
            away.settle(here.clone());
            self.home.away.is_known.store(true, Ordering::Release);
        }
    }

    /// Sleeps in the runtime `elsewhere`. Without one, it sleeps in whatever runtime polls it: the previous one may have ended.
    async fn sleep_elsewhere(&self, elsewhere: Option<Handle>, left: impl Fn() -> Duration + Send + 'static) {
        if let Some(runtime) = elsewhere {
            return sleep_in(&runtime, left).await;
        }
        let current = || Handle::try_current().ok().filter(|current| self.home.has_timers_in(current));
        while let Some(runtime) = current() {
            if sleep_while_in(&runtime, &left).await {
                return;
            }
        }
        match self.remembered() {
            Some(runtime) => sleep_in(&runtime, left).await,
            None => sleep_without_runtime(left()).await,
        }
    }

    /// Completes when Ctrl-C or SIGTERM asks the process to stop: for [`LeaseManager::close_when`](crate::LeaseManager::close_when). From
    /// its first poll on, the signal no longer ends the process by itself: the program has to end when its leases are released. The future
    /// stays pending where signals are not available, such as in a runtime without I/O; call `enable_all()` on its `Builder`. Tokio reports
    /// that only by a panic. It is caught here, but the panic hook has printed tokio's message by then.
    ///
    /// The same holds for every later Ctrl-C and SIGTERM, until the process ends, because tokio cannot restore a signal's default action.
    /// So a program whose own work may hang should wait for a second signal, and then exit:
    ///
    /// ```no_run
    /// # use leasehold::executor::TokioExecutor;
    /// # async fn example() {
    /// tokio::spawn(async {
    ///     TokioExecutor::shutdown_signal().await;    // `close_when` releases the leases meanwhile
    ///     TokioExecutor::shutdown_signal().await;
    ///     std::process::exit(130);                   // a user who sends it twice does not want to wait
    /// });
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// If the future was polled and dropped, a signal that arrives before the next one is polled is lost, and does not end the process
    /// either.
    pub async fn shutdown_signal() {
        if Handle::try_current().is_err() {
            return pending().await;
        }
        #[cfg(unix)]
        {
            use core::pin::pin;
            use tokio::signal::unix::{SignalKind, signal};
            let Ok(terminate) = catch_unwind(|| signal(SignalKind::terminate())) else { return pending().await };
            if let Ok(mut terminate) = terminate {
                let interrupt = pin!(interrupt());
                futures::future::select(interrupt, pin!(terminate.recv())).await;
                return;
            }
        }
        interrupt().await;
    }
}

/// Ends at Ctrl-C.
async fn interrupt() {
    if tokio::signal::ctrl_c().await.is_err() {
        pending::<()>().await;
    }
}

impl Default for TokioExecutor {
    fn default() -> Self {
        Self::new()
    }
}

fn has_timers(runtime: &Handle) -> bool {
    let _entered = runtime.enter();
    timers_run_here()
}

/// How many runtimes without timers are remembered: the last ones that a store or a manager was used in.
const TIMELESS: usize = 16;

/// Whether the runtime that this is called in has timers. Tokio tells this only by a panic, so a runtime without timers is not asked again.
/// Where panics abort, the process ends here, with tokio's own sentence about the remedy.
pub(crate) fn timers_run_here() -> bool {
    static KNOWN: Mutex<Vec<Id>> = Mutex::new(Vec::new());
    let known = || KNOWN.lock();
    let Ok(here) = Handle::try_current() else { return false };
    if known().contains(&here.id()) {
        return false;
    }
    // Without the lock: the panic hook is the application's.
    let run = catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok();
    if !run {
        let mut known = known();
        let oldest = known.len().saturating_sub(TIMELESS - 1);
        known.drain(..oldest);
        known.push(here.id());
    }
    run
}

impl Executor for TokioExecutor {
    fn now(&self) -> Now {
        process_clock()
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.home.place.lives() {
            return Ok(());
        }
        let missing = || if self.home.place.runtime().is_some() { RUNTIME_ENDED } else { NO_RUNTIME };
        let runtime = self.runtime().ok_or_else(missing)?;
        if !has_timers(&runtime) {
            return Err(NO_TIMERS);
        }
        if self.home.settle(runtime) { Ok(()) } else { Err(RUNTIME_ENDED) }
    }

    fn poll_proceed(&self, context: &mut Context<'_>) -> Poll<()> {
        coop::poll_proceed(context).map(|budget| budget.made_progress())
    }

    fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
        // A store may set timers, so its transactions would panic in a runtime that has none.
        let runtime = self.here_with_timers().or_else(|| self.remembered());
        // Before the first request, no transaction exists that could set a timer, so a runtime without timers will do.
        let runtime = runtime.or_else(|| self.here().filter(|_| self.home.place.runtime().is_none()));
        let Some(runtime) = runtime else { return self.home.keep(task) };
        match self.bound_to.clone().map(Unbegun::new) {
            None => runtime.spawn(task),
            Some(unbegun) => runtime.spawn(async move {
                drop(unbegun);
                task.await;
            }),
        };
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        let here = self.here_with_timers();
        let is_here = here.is_some();
        let runtime = here.or_else(|| self.remembered());
        let (executor, called) = (self.clone(), clock::instant());
        // The time counts from the call: a task may be polled much later.
        let left = move || duration.saturating_sub(called.elapsed());
        // Each waiting context has an alarm, which contains this future: so it must be small, and stores nothing twice.
        Box::pin(async move {
            if is_here
                && let Some(here) = &runtime
                && sleep_while_in(here, &left).await
            {
                return;
            }
            // Boxed, because it is rare, and would enlarge the alarm of each context.
            let elsewhere = runtime.filter(|_| !is_here);
            Box::pin(executor.sleep_elsewhere(elsewhere, left)).await;
        })
    }

    fn elsewhere(&self) -> Option<Shared<dyn Executor>> {
        let is_away = Handle::try_current().is_ok_and(|here| !self.home.place.is_in(&here));
        let place = if is_away {
            self.home.place.clone()
        } else {
            // Without a runtime, all is done at home. This may also be the home that is just ending, and drops its tasks.
            self.home.away.place()?
        };
        // The home may have ended, and the other runtime may be the home by now.
        let is_another = |runtime: &Handle| is_away || !self.home.place.is_in(runtime);
        // The home gets each alarm even if it stands still: it may go on when the other runtime has ended.
        let goes_on = is_away || place.unbegun.load(Ordering::Relaxed) < STANDS_STILL;
        (place.lives() && goes_on && place.runtime().as_ref().is_some_and(is_another))
            .then(|| -> Shared<dyn Executor> { Shared::new(Self { bound_to: Some(place), ..self.clone() }) })
    }

    fn random(&self) -> u128 {
        let mut bits = [0; 16];
        match getrandom::fill(&mut bits) {
            Ok(()) => u128::from_ne_bytes(bits),
            Err(error) => panic!("the system gives no random bits, so contexts cannot be told apart: {error}"),
        }
    }
}
