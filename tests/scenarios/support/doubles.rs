//! Stand-ins for stores, signals and clocks as they are on a bad day.

use std::{
    fmt,
    ops::RangeInclusive,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use leasehold::{
    StoreError,
    executor::{Executor, LifecycleWatch, LifecycleWatcher, MaybeSendFuture, SimExecutor, WeakShared},
    machine::{Batch, Message, Monotonic, Now, Reply, SessionId, StoreClock},
    signal::{Beacons, Inbox, LocalSignals, Notice, Signals},
    store::{Reach, Store},
};

use crate::support::{
    oracle::Tally,
    world::{Dice, ms},
};

/// A store that takes its time: before it applies, and before it answers.
#[derive(Debug)]
pub(crate) struct SlowStore<S> {
    inner: S,
    sim: SimExecutor,
    applies_ms: RangeInclusive<u64>,
    answers_ms: RangeInclusive<u64>,
}

impl<S> SlowStore<S> {
    /// It takes this long each way.
    pub(crate) fn new(inner: S, sim: SimExecutor, takes_ms: RangeInclusive<u64>) -> Self {
        Self { inner, sim, applies_ms: takes_ms.clone(), answers_ms: takes_ms }
    }

    async fn dawdle(&self, takes_ms: &RangeInclusive<u64>) {
        let (least, most) = (takes_ms.start(), takes_ms.end());
        self.sim.sleep(ms(least + Dice(&self.sim).below(most - least + 1))).await;
    }
}

#[async_trait::async_trait]
impl<S: Store> Store for SlowStore<S> {
    async fn transact(&self, batch: Batch, _: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.dawdle(&self.applies_ms).await;
        let reply = self.inner.transact(batch, self.sim.now(), limit).await;
        self.dawdle(&self.answers_ms).await;
        reply
    }

    fn abandons(&self) -> bool {
        self.inner.abandons()
    }

    /// Behind nothing that is on its way.
    fn abandon(&self, session: SessionId) {
        self.inner.abandon(session);
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    fn clock(&self) -> StoreClock {
        self.inner.clock()
    }

    fn reach(&self) -> Reach {
        self.inner.reach()
    }
}

/// Signals of a platform that has none.
#[derive(Debug)]
pub(crate) struct Deaf;

impl Signals for Deaf {
    fn beacons(&self) -> Beacons {
        Beacons::None
    }

    fn wake(&self, _: SessionId, _: bool, _: WeakShared<dyn Inbox>) -> bool {
        false
    }

    fn rest(&self) {}

    fn send(&self, _: &Message) {}

    fn watch(&self, _: u64, _: SessionId) {}

    fn unwatch(&self, _: u64) {}
}

/// Signals whose messages all arrive this much later, in order.
#[derive(Debug)]
pub(crate) struct SlowVoice {
    inner: Arc<LocalSignals>,
    sim: SimExecutor,
    late: Duration,
}

impl SlowVoice {
    pub(crate) fn new(reach: &Reach, sim: SimExecutor, late: Duration) -> Self {
        Self { inner: LocalSignals::new(reach).into(), sim, late }
    }
}

impl Signals for SlowVoice {
    fn beacons(&self) -> Beacons {
        self.inner.beacons()
    }

    fn wake(&self, session: SessionId, beacon: bool, inbox: WeakShared<dyn Inbox>) -> bool {
        self.inner.wake(session, beacon, inbox)
    }

    fn rest(&self) {
        self.inner.rest();
    }

    fn send(&self, message: &Message) {
        let (inner, sim, late, message) = (self.inner.clone(), self.sim.clone(), self.late, message.clone());
        self.sim.spawn(Box::pin(async move {
            sim.sleep(late).await;
            inner.send(&message);
        }));
    }

    fn watch(&self, watch: u64, session: SessionId) {
        self.inner.watch(watch, session);
    }

    fn unwatch(&self, watch: u64) {
        self.inner.unwatch(watch);
    }
}

/// Signals that come late; and of messages, some twice, some never, some before those that were sent earlier.
#[derive(Debug)]
pub(crate) struct LateSignals {
    inner: LocalSignals,
    post: Post,
    inbox: Mutex<Option<Arc<LateInbox>>>,
}

/// How late, at most, and where it is counted.
#[derive(Clone, Debug)]
struct Post {
    sim: SimExecutor,
    late_ms: u64,
    tally: Tally,
}

struct LateInbox {
    inner: WeakShared<dyn Inbox>,
    post: Post,
    /// How many notices came, and the latest one that was delivered.
    order: Arc<Mutex<(u64, u64)>>,
}

impl LateSignals {
    /// Half of them are late by milliseconds only; with 0 all are punctual.
    pub(crate) fn new(reach: &Reach, sim: SimExecutor, late_ms: u64, tally: Tally) -> Self {
        let post = Post { sim, late_ms, tally };
        Self { inner: LocalSignals::new(reach), post, inbox: Mutex::default() }
    }
}

impl Post {
    fn delay(&self) -> Duration {
        let dice = Dice(&self.sim);
        ms(match dice.below(4) {
            0 => 0,
            1 => dice.below(50),
            2 => dice.below(1_000),
            _ => dice.below(self.late_ms),
        })
    }

    /// How often a message comes.
    fn copies(&self) -> u64 {
        match Dice(&self.sim).below(4) {
            0 => self.tally.count("a signal was lost", 0),
            1 => self.tally.count("a signal came twice", 2),
            _ => 1,
        }
    }
}

impl Inbox for LateInbox {
    fn notice(&self, notice: Notice) {
        if self.post.late_ms == 0 {
            return self.inner.upgrade().map_or((), |inbox| inbox.notice(notice));
        }
        let common = self.post.delay();
        let copies = if matches!(notice, Notice::Message(_)) { self.post.copies() } else { 1 };
        let mut order = self.order.lock().unwrap();
        order.0 += 1;
        let number = order.0;
        drop(order);
        for _ in 0..copies {
            self.deliver(number, notice.clone(), common + self.post.delay());
        }
    }
}

impl LateInbox {
    fn deliver(&self, number: u64, notice: Notice, late: Duration) {
        let (inner, order, post) = (self.inner.clone(), self.order.clone(), self.post.clone());
        self.post.sim.spawn(Box::pin(async move {
            post.sim.sleep(late).await;
            let Some(inbox) = Weak::upgrade(&inner) else { return };
            let latest = std::mem::replace(&mut order.lock().unwrap().1, number);
            if number < latest {
                post.tally.count("a signal overtook another", ());
            }
            inbox.notice(notice);
        }));
    }
}

impl Signals for LateSignals {
    fn beacons(&self) -> Beacons {
        self.inner.beacons()
    }

    fn wake(&self, session: SessionId, beacon: bool, inner: WeakShared<dyn Inbox>) -> bool {
        let inbox = Arc::new(LateInbox { inner, post: self.post.clone(), order: Arc::default() });
        let shared: Arc<dyn Inbox> = inbox.clone();
        *self.inbox.lock().unwrap() = Some(inbox);
        self.inner.wake(session, beacon, Arc::downgrade(&shared))
    }

    fn rest(&self) {
        self.inner.rest();
    }

    fn send(&self, message: &Message) {
        self.inner.send(message);
    }

    fn watch(&self, watch: u64, session: SessionId) {
        self.inner.watch(watch, session);
    }

    fn unwatch(&self, watch: u64) {
        self.inner.unwatch(watch);
    }
}

impl fmt::Debug for LateInbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LateInbox").field("post", &self.post).finish_non_exhaustive()
    }
}

/// An executor whose monotonic clock stands still while its machine sleeps, as those of browsers may.
#[derive(Clone, Debug)]
pub(crate) struct PausingExecutor {
    pub(crate) sim: SimExecutor,
    pauses: Arc<Mutex<Pauses>>,
}

#[derive(Debug, Default)]
struct Pauses {
    total_ms: u64,
    since: Option<Monotonic>,
}

impl PausingExecutor {
    pub(crate) fn new(sim: SimExecutor) -> Self {
        Self { sim, pauses: Arc::default() }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pauses.lock().unwrap().since.is_some()
    }

    pub(crate) fn pause(&self) {
        self.pauses.lock().unwrap().since.get_or_insert_with(|| self.sim.now().monotonic);
        self.sim.freeze();
    }

    pub(crate) fn resume(&self) {
        let mut pauses = self.pauses.lock().unwrap();
        let paused = pauses.since.take().map(|since| self.sim.now().monotonic.since(since));
        pauses.total_ms += paused.unwrap_or(0);
        self.sim.thaw();
    }
}

impl Executor for PausingExecutor {
    fn now(&self) -> Now {
        let now = self.sim.now();
        let pauses = self.pauses.lock().unwrap();
        let running_ms = pauses.since.unwrap_or(now.monotonic).as_ms() - pauses.total_ms;
        Now { monotonic: Monotonic::from_ms(running_ms), ..now }
    }

    fn spawn(&self, future: MaybeSendFuture<'static, ()>) {
        self.sim.spawn(future);
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        let until = self.now().monotonic.plus(u64::try_from(duration.as_millis()).unwrap());
        let executor = self.clone();
        Box::pin(async move {
            // What was slept through does not count.
            loop {
                match until.since(executor.now().monotonic) {
                    0 => return,
                    left => executor.sim.sleep(ms(left)).await,
                }
            }
        })
    }

    fn random(&self) -> u128 {
        self.sim.random()
    }

    fn has_crashed(&self) -> bool {
        self.sim.has_crashed()
    }

    fn watch_lifecycle(&self, watcher: WeakShared<dyn LifecycleWatcher>) -> Option<Box<dyn LifecycleWatch>> {
        self.sim.watch_lifecycle(watcher)
    }
}
