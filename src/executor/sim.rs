//! A simulated world: virtual time that jumps to the next timer, and a seeded order of tasks.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    task::Wake,
    vec::Vec,
};
use core::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::{Executor, Lifecycle, LifecycleWatch, LifecycleWatcher, MaybeSendFuture, Mutex, Shared, WeakShared};
use crate::machine::{Monotonic, Now, Wall, whole_ms};

/// More polls than this in one [`block_on`](SimExecutor::block_on) mean that the world runs in circles.
const POLL_LIMIT: u64 = 10_000_000;
/// Where the wall clock starts: 2025-01-01.
const WALL_START_MS: u64 = 1_735_689_600_000;
/// The task that `block_on` drives.
const MAIN: u64 = 0;
/// The first context.
const FIRST: u64 = 1;

/// One context of a simulated world. Nothing really sleeps: when all tasks wait, time jumps to the next timer.
///
/// The same seed gives the same history.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{LeaseManager, executor::SimExecutor, store::MemoryStore};
///
/// let world = SimExecutor::new(7);
/// world.block_on(async {
///     let leases = LeaseManager::builder(MemoryStore::new(), world.context()).build().unwrap();
///     let guard = leases.lock("notes").acquire().await.unwrap();
///     world.pass(Duration::from_secs(3600)).await;    // at once
///     assert!(guard.is_valid());
/// });
/// ```
#[derive(Clone, Debug)]
pub struct SimExecutor {
    world: Shared<World>,
    context: u64,
}

struct World {
    state: Mutex<State>,
    ready: Arc<Ready>,
}

struct State {
    now: Monotonic,
    wall_ahead_ms: i64,
    dice: u64,
    tasks: BTreeMap<u64, Task>,
    timers: BTreeMap<(Monotonic, u64), Timer>,
    frozen: BTreeSet<u64>,
    crashed: BTreeSet<u64>,
    watchers: Vec<(u64, WeakShared<dyn LifecycleWatcher>)>,
    last_id: u64,
}

struct Task {
    context: u64,
    future: MaybeSendFuture<'static, ()>,
}

struct Timer {
    context: u64,
    waker: Waker,
}

/// Tasks that were woken.
#[derive(Default)]
struct Ready(Mutex<BTreeSet<u64>>);

struct TaskWaker {
    id: u64,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.insert(self.id);
    }
}

impl Ready {
    fn insert(&self, id: u64) {
        self.0.lock().insert(id);
    }

    fn take(&self, id: u64) -> bool {
        self.0.lock().remove(&id)
    }

    fn all(&self) -> Vec<u64> {
        self.0.lock().iter().copied().collect()
    }

    fn waker(self: &Arc<Self>, id: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker { id, ready: self.clone() }))
    }
}

impl SimExecutor {
    /// A new world with this seed, and its first context.
    pub fn new(seed: u64) -> Self {
        let state = State {
            now: Monotonic::from_ms(1),
            wall_ahead_ms: i64::try_from(WALL_START_MS).unwrap_or(0),
            dice: seed,
            tasks: BTreeMap::new(),
            timers: BTreeMap::new(),
            frozen: BTreeSet::new(),
            crashed: BTreeSet::new(),
            watchers: Vec::new(),
            last_id: FIRST,
        };
        let world = World { state: Mutex::new(state), ready: Arc::default() };
        Self { world: Shared::new(world), context: FIRST }
    }

    /// Another context of the same world: it can be frozen apart from the others.
    pub fn context(&self) -> Self {
        Self { world: self.world.clone(), context: self.world.state.lock().next_id() }
    }

    /// From now on no task and no timer of this context runs, as in a page that is frozen or an event loop that is
    /// blocked.
    pub fn freeze(&self) {
        self.world.state.lock().frozen.insert(self.context);
    }

    /// Lets the context run again. What was due meanwhile is due now.
    pub fn thaw(&self) {
        self.world.state.lock().frozen.remove(&self.context);
    }

    /// Ends the context at once, as a crash does: none of its tasks runs again.
    pub fn kill(&self) {
        let context = self.context;
        let mut state = self.world.state.lock();
        state.frozen.insert(context);
        state.crashed.insert(context);
        let dead: Vec<_> = state.tasks.iter().filter(|(_, task)| task.context == context).map(|(id, _)| *id).collect();
        // Dropped after the lock is released: a task may own something that uses the world.
        let dropped: Vec<_> = dead.iter().filter_map(|id| state.tasks.remove(id)).collect();
        drop(state);
        drop(dropped);
    }

    /// Notifies the lease managers of this context of what its platform does, as a browser does by its events.
    pub fn tell(&self, event: Lifecycle) {
        let mut told = self.world.state.lock().watchers.clone();
        told.retain(|(context, _)| *context == self.context);
        for watcher in told.iter().filter_map(|(_, watcher)| watcher.upgrade()) {
            watcher.lifecycle(event);
        }
    }

    /// Sets the wall clock forward by this many ms, or back if the number is negative.
    pub fn set_wall_clock(&self, by_ms: i64) {
        self.world.state.lock().wall_ahead_ms += by_ms;
    }

    /// How many timers are set.
    pub fn timers(&self) -> usize {
        self.world.state.lock().timers.len()
    }

    /// How many tasks exist.
    pub fn tasks(&self) -> usize {
        self.world.state.lock().tasks.len()
    }

    /// Waits for this time, outside of any context that could be frozen.
    ///
    /// # Cancel safety
    /// Dropping the future removes its timer.
    pub fn pass(&self, duration: Duration) -> impl Future<Output = ()> + use<> {
        Sleep::new(self.world.clone(), MAIN, duration)
    }

    /// Runs the world until this future is ready.
    ///
    /// # Panics
    /// If nothing is left to happen and the future is still not ready, or if the world runs in circles.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = core::pin::pin!(future);
        let ready = &self.world.ready;
        ready.insert(MAIN);
        for _ in 0..POLL_LIMIT {
            let Some(id) = self.world.pick() else {
                assert!(
                    self.world.jump(),
                    "nothing is left to happen in this world, and the test still waits: for what never comes, or for a thread, a \
                     timer or a socket outside the world; give requests a timeout, and wait with `pass`"
                );
                continue;
            };
            let waker = ready.waker(id);
            let mut context = Context::from_waker(&waker);
            if id != MAIN {
                self.world.poll(id, &mut context);
            } else if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return value;
            }
        }
        panic!(
            "{POLL_LIMIT} polls did not end this test: the world runs in circles, or something is waited for that never comes, such as \
             a lease that the same test holds; give requests a timeout"
        );
    }
}

impl World {
    /// Any of the tasks that are ready and not frozen.
    fn pick(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let mut ready = self.ready.all();
        ready.retain(|id| {
            // A waker may outlive its task.
            let is_over = *id != MAIN && !state.tasks.contains_key(id);
            !(is_over && self.ready.take(*id)) && state.may_run(*id)
        });
        let count = u64::try_from(ready.len()).ok().filter(|count| *count > 0)?;
        let chosen = ready[usize::try_from(state.roll() % count).ok()?];
        self.ready.take(chosen).then_some(chosen)
    }

    fn poll(&self, id: u64, context: &mut Context<'_>) {
        let Some(mut task) = self.state.lock().tasks.remove(&id) else { return };
        if task.future.as_mut().poll(context).is_pending() {
            let mut state = self.state.lock();
            // It may have killed its own context.
            if state.crashed.contains(&task.context) {
                drop(state);
                drop(task);
            } else {
                state.tasks.insert(id, task);
            }
        }
    }

    /// Lets time pass until the next timer. Whether there was one.
    fn jump(&self) -> bool {
        let mut state = self.state.lock();
        let running = state.timers.iter().find(|(_, timer)| !state.frozen.contains(&timer.context));
        let Some(next) = running.map(|(at, _)| *at) else { return false };
        state.now = state.now.max(next.0);
        let timer = state.timers.remove(&next);
        drop(state);
        if let Some(timer) = timer {
            timer.waker.wake();
        }
        true
    }
}

impl State {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn may_run(&self, id: u64) -> bool {
        id == MAIN || self.tasks.get(&id).is_some_and(|task| !self.frozen.contains(&task.context))
    }

    /// SplitMix64.
    fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.dice;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Executor for SimExecutor {
    fn now(&self) -> Now {
        let state = self.world.state.lock();
        let wall_ms = state.now.as_ms().saturating_add_signed(state.wall_ahead_ms);
        Now { monotonic: state.now, wall: Wall::from_ms(wall_ms) }
    }

    fn spawn(&self, future: MaybeSendFuture<'static, ()>) {
        let mut state = self.world.state.lock();
        let id = state.next_id();
        state.tasks.insert(id, Task { context: self.context, future });
        self.world.ready.insert(id);
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        Box::pin(Sleep::new(self.world.clone(), self.context, duration))
    }

    /// `None`, as for native processes: so no lease lingers here either, by default, in a store that processes share.
    fn watch_lifecycle(&self, watcher: WeakShared<dyn LifecycleWatcher>) -> Option<Box<dyn LifecycleWatch>> {
        let mut state = self.world.state.lock();
        state.watchers.retain(|(_, watcher)| watcher.strong_count() > 0);
        state.watchers.push((self.context, watcher));
        None
    }

    fn has_crashed(&self) -> bool {
        self.world.state.lock().crashed.contains(&self.context)
    }

    /// Always true, so that simulations also run what the driver does about such timers.
    fn delays_chained_timers(&self) -> bool {
        true
    }

    fn random(&self) -> u128 {
        let mut state = self.world.state.lock();
        u128::from(state.roll()) << 64 | u128::from(state.roll())
    }
}

/// A timer of the world; dropping it removes it.
struct Sleep {
    world: Shared<World>,
    context: u64,
    until: Monotonic,
    timer: Option<u64>,
}

impl Sleep {
    fn new(world: Shared<World>, context: u64, duration: Duration) -> Self {
        let until = world.state.lock().now.plus(whole_ms(duration));
        Self { world, context, until, timer: None }
    }

    fn cancel(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.world.state.lock().timers.remove(&(self.until, timer));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.cancel();
        let mut state = self.world.state.lock();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let id = state.next_id();
        let timer = Timer { context: self.context, waker: context.waker().clone() };
        state.timers.insert((self.until, id), timer);
        drop(state);
        self.timer = Some(id);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for World {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        out.debug_struct("World").field("now", &state.now).field("tasks", &state.tasks.len()).finish_non_exhaustive()
    }
}
