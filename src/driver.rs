//! The driver: brings inputs to the machine, does what its outputs say, and decides nothing.
//!
//! Whoever brings an input pumps the outputs, in place and in their order; whoever comes meanwhile leaves its own to that
//! pump. Nothing outside is called while the lock is held.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{
    fmt,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::{
    channel::oneshot,
    future::{AbortHandle, abortable},
};

use crate::executor::{Executor, MaybeSendFuture, Shared, WeakShared};
use crate::guard::Fate;
use crate::machine::{
    Config, Incarnation, Input, Key, Machine, Monotonic, Outcome, Output, Refusal, SortedMap, StoreError, Token, Turn,
    TurnId,
};
use crate::signal::{Inbox, Notice, Signals};
use crate::store::Store;

/// One context at work: its machine, and the world that it acts on.
pub(crate) struct Driver {
    pub(crate) store: Shared<dyn Store>,
    pub(crate) executor: Shared<dyn Executor>,
    signals: Shared<dyn Signals>,
    core: Mutex<Core>,
    this: WeakShared<Self>,
}

struct Core {
    machine: Machine,
    last_turn: u64,
    questions: SortedMap<TurnId, oneshot::Sender<Reaction>>,
    guards: SortedMap<TurnId, Shared<Fate>>,
    alarm: Option<Alarm>,
    last_alarm: u64,
    closing: Vec<oneshot::Sender<()>>,
    closed: bool,
    deeds: Vec<Deed>,
    pumping: bool,
}

/// The one timer of a context; it stands only while the machine waits for a time.
struct Alarm {
    id: u64,
    at: Monotonic,
    /// Keeps the context alive until it rings: there is something to be tried again.
    keeps_alive: bool,
    /// `None` until it is set.
    sleep: Option<AbortHandle>,
}

/// What the machine says to one request or question.
#[derive(Debug)]
pub(crate) enum Reaction {
    Granted(Token, Shared<Fate>),
    Busy,
    Failed(Refusal),
    Verified(Result<bool, StoreError>),
    Status(Result<Outcome, StoreError>),
}

/// What is to be done after the lock was let go.
enum Deed {
    Act(Output),
    Answer(oneshot::Sender<Reaction>, Reaction),
    Close(Vec<oneshot::Sender<()>>),
    Wake(Vec<Waker>),
    SetAlarm,
}

impl Driver {
    pub(crate) fn new(
        store: Shared<dyn Store>,
        signals: Shared<dyn Signals>,
        executor: Shared<dyn Executor>,
        config: Config,
    ) -> Shared<Self> {
        let machine = Machine::new(config, Incarnation(executor.random()));
        let core = Core {
            machine,
            last_turn: 0,
            questions: SortedMap::new(),
            guards: SortedMap::new(),
            alarm: None,
            last_alarm: 0,
            closing: Vec::new(),
            closed: false,
            deeds: Vec::new(),
            pumping: false,
        };
        Shared::new_cyclic(|this| Self { store, executor, signals, core: Mutex::new(core), this: this.clone() })
    }

    /// A panic under the lock would be a bug of the machine; what it guards stays usable all the same.
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.core().machine.incarnation()
    }

    /// Asks for a lease; dropping the receiver is not enough to stop asking, see [`abandon`](Self::abandon).
    pub(crate) fn request(
        &self,
        key: Key,
        wait: bool,
        deadline: Option<Monotonic>,
        info: String,
    ) -> (TurnId, oneshot::Receiver<Reaction>) {
        self.ask(|id| Input::Acquire(Turn { id, key, wait, deadline, info }))
    }

    /// Puts a question under a fresh name.
    pub(crate) fn ask(&self, input: impl FnOnce(TurnId) -> Input) -> (TurnId, oneshot::Receiver<Reaction>) {
        let (sender, receiver) = oneshot::channel();
        let mut core = self.core();
        core.last_turn += 1;
        let turn = TurnId(core.last_turn);
        core.questions.insert(turn, sender);
        self.step(core, input(turn));
        (turn, receiver)
    }

    /// Nobody waits for this request any more: it is cancelled, or released if it was granted meanwhile.
    pub(crate) fn abandon(&self, turn: TurnId, key: Key) {
        let mut core = self.core();
        core.questions.remove(&turn);
        let granted = core.guards.contains_key(&turn);
        self.step(core, if granted { Input::Release { turn, key } } else { Input::Cancel { turn, key } });
    }

    pub(crate) fn remaining_ms(&self, turn: TurnId, key: &Key) -> u64 {
        let now = self.executor.now();
        self.core().machine.remaining_ms(turn, key, now)
    }

    /// Closes; the receiver hears when everything is released, and nothing at all if that was so before.
    pub(crate) fn close(&self) -> Option<oneshot::Receiver<()>> {
        let (sender, receiver) = oneshot::channel();
        let mut core = self.core();
        if core.closed {
            return None;
        }
        core.closing.push(sender);
        self.step(core, Input::Close);
        Some(receiver)
    }

    pub(crate) fn handle(&self, input: Input) {
        self.step(self.core(), input);
    }

    /// One turn of the driving rule: an input in, all outputs out, and done.
    fn step<'a>(&'a self, mut core: MutexGuard<'a, Core>, input: Input) {
        let now = self.executor.now();
        core.machine.handle(input, now);
        loop {
            match core.machine.poll_output() {
                Output::Timeout(wake) => break core.plan_alarm(wake, now.monotonic),
                output => core.sort(output),
            }
        }
        self.pump(core);
    }

    /// Does what is to be done. Only one thread pumps, so that everything is done in the machine's order.
    fn pump<'a>(&'a self, mut core: MutexGuard<'a, Core>) {
        if core::mem::replace(&mut core.pumping, true) {
            return;
        }
        let pump = Pump(self);
        while !core.deeds.is_empty() {
            let deeds = core::mem::take(&mut core.deeds);
            drop(core);
            deeds.into_iter().for_each(|deed| self.perform(deed));
            core = self.core();
        }
        core.pumping = false;
        drop(core);
        core::mem::forget(pump);
    }

    fn perform(&self, deed: Deed) {
        match deed {
            Deed::Act(output) => self.act(output),
            // Who dropped the receiver has abandoned the request, or does so in a moment.
            Deed::Answer(sender, reaction) => drop(sender.send(reaction)),
            Deed::Close(senders) => {
                for sender in senders {
                    // Who no longer waits need not hear.
                    let _ = sender.send(());
                }
            }
            Deed::Wake(wakers) => wakers.into_iter().for_each(Waker::wake),
            Deed::SetAlarm => self.set_alarm(),
        }
    }

    fn act(&self, output: Output) {
        match output {
            Output::Store { id, batch } => self.transact(id, batch),
            Output::Send(message) => self.signals.send(&message),
            Output::Wake { beacon } => self.wake(beacon),
            Output::Rest => self.signals.rest(),
            Output::Watch { watch, beacon } => self.signals.watch(watch, beacon),
            Output::Unwatch { watch } => self.signals.unwatch(watch),
            _ => {}
        }
    }

    fn wake(&self, beacon: Option<crate::machine::Beacon>) {
        let Some(this) = self.this.upgrade() else { return };
        let inbox: Shared<dyn Inbox> = this;
        if !self.signals.wake(beacon, Shared::downgrade(&inbox)) {
            self.handle(Input::NoBeacon);
        }
    }

    /// A store that answers at once costs no task.
    fn transact(&self, id: u64, batch: crate::machine::Batch) {
        let (store, now) = (self.store.clone(), self.executor.now());
        let mut transaction: MaybeSendFuture<'static, _> = Box::pin(async move { store.transact(batch, now).await });
        match transaction.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => self.handle(Input::Reply { id, result }),
            Poll::Pending => {
                let Some(this) = self.this.upgrade() else { return };
                self.executor.spawn(Box::pin(async move {
                    let result = transaction.await;
                    this.handle(Input::Reply { id, result });
                }));
            }
        }
    }

    /// Sets the alarm that was planned last, unless it is set already.
    fn set_alarm(&self) {
        let now = self.executor.now().monotonic;
        let mut core = self.core();
        let Some(alarm) = core.alarm.as_mut().filter(|alarm| alarm.sleep.is_none()) else { return };
        let sleep = self.executor.sleep(Duration::from_millis(alarm.at.since(now)));
        let kept = if alarm.keeps_alive { self.this.upgrade() } else { None };
        let bell = Bell { driver: self.this.clone(), id: alarm.id };
        let (ring, handle) = abortable(async move {
            sleep.await;
            bell.ring();
            drop(kept);
        });
        alarm.sleep = Some(handle);
        drop(core);
        self.executor.spawn(Box::pin(async move {
            // Aborted or not, there is nothing more to do.
            let _ = ring.await;
        }));
    }
}

/// A pump at work. Dropped by a panic, of a store say, it leaves the rest to the next one who comes.
struct Pump<'a>(&'a Driver);

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        self.0.core().pumping = false;
    }
}

/// What an alarm does when its time has come, or when the runtime that it slept in is gone.
struct Bell {
    driver: WeakShared<Driver>,
    id: u64,
}

impl Bell {
    fn ring(&self) {
        let Some(driver) = self.driver.upgrade() else { return };
        if driver.core().forget_alarm(self.id) {
            driver.handle(Input::Tick);
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // An alarm that will never ring must not keep the next one from being set.
        if let Some(driver) = self.driver.upgrade() {
            driver.core().forget_alarm(self.id);
        }
    }
}

impl Core {
    /// Plans the alarm anew if it must ring earlier: one that rings too early does no harm, one that rings late does.
    fn plan_alarm(&mut self, wake: Option<Monotonic>, now: Monotonic) {
        let keeps_alive = self.machine.has_retries();
        let serves = |alarm: &Alarm, at| alarm.at <= at && alarm.at > now && (alarm.keeps_alive || !keeps_alive);
        if wake.is_some_and(|at| self.alarm.as_ref().is_some_and(|alarm| serves(alarm, at))) {
            return;
        }
        self.last_alarm += 1;
        let id = self.last_alarm;
        let planned = wake.map(|at| Alarm { id, at, keeps_alive, sleep: None });
        let old = core::mem::replace(&mut self.alarm, planned);
        if let Some(sleep) = old.and_then(|alarm| alarm.sleep) {
            sleep.abort();
        }
        if wake.is_some() {
            self.deeds.push(Deed::SetAlarm);
        }
    }

    /// Whether it is this alarm that stood.
    fn forget_alarm(&mut self, id: u64) -> bool {
        self.alarm.take_if(|alarm| alarm.id == id).is_some()
    }

    /// What concerns a guard or a question is noted under the lock, so that it is never seen half done.
    fn sort(&mut self, output: Output) {
        let deed = match output {
            Output::Granted { turn, token } => {
                let fate = Shared::new(Fate::default());
                self.guards.insert(turn, fate.clone());
                self.answer(turn, Reaction::Granted(token, fate))
            }
            Output::Busy { turn } => self.answer(turn, Reaction::Busy),
            Output::Failed { turn, refusal } => self.answer(turn, Reaction::Failed(refusal)),
            Output::Verified { query, result } => self.answer(query, Reaction::Verified(result)),
            Output::Status { query, result } => self.answer(query, Reaction::Status(result)),
            Output::Lost { turn, reason } => self.guards.get(&turn).map(|fate| Deed::Wake(fate.lose(reason))),
            Output::Released { turn, result } => self.guards.remove(&turn).map(|fate| Deed::Wake(fate.release(result))),
            Output::Closed => {
                self.closed = true;
                Some(Deed::Close(core::mem::take(&mut self.closing)))
            }
            Output::Suspect { .. } | Output::Timeout(_) => None,
            act => Some(Deed::Act(act)),
        };
        self.deeds.extend(deed);
    }

    fn answer(&mut self, turn: TurnId, reaction: Reaction) -> Option<Deed> {
        self.questions.remove(&turn).map(|sender| Deed::Answer(sender, reaction))
    }
}

impl Inbox for Driver {
    fn notice(&self, notice: Notice) {
        self.handle(match notice {
            Notice::Message(message) => Input::Message(message),
            Notice::BeaconStands(beacon) => Input::BeaconStands(beacon),
            Notice::BeaconGone { watch } => Input::BeaconGone { watch },
        });
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Nobody is left to hold or to wait: other contexts see the beacon go.
        self.signals.rest();
        let mut core = self.core();
        if let Some(sleep) = core.alarm.take().and_then(|alarm| alarm.sleep) {
            sleep.abort();
        }
        let guards = core::mem::take(&mut core.guards);
        drop(core);
        for (_, fate) in guards {
            let gone = StoreError::unknown("the runtime ended before the store answered");
            fate.release(Err(gone)).into_iter().for_each(Waker::wake);
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Driver({:?})", self.store)
    }
}
