//! The driver: brings inputs to the machine, does what its outputs say, and decides nothing.
//!
//! Whoever brings an input pumps the outputs, in place. Nothing outside is called while the lock is held.

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
    closing: Vec<oneshot::Sender<()>>,
    closed: bool,
}

/// The one timer of a context; it stands only while the machine waits for a time.
struct Alarm {
    at: Monotonic,
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
            closing: Vec::new(),
            closed: false,
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
        let deeds = self.step(&mut core, input(turn));
        drop(core);
        self.perform(deeds);
        (turn, receiver)
    }

    /// Nobody waits for this request any more: it is cancelled, or released if it was granted meanwhile.
    pub(crate) fn abandon(&self, turn: TurnId, key: Key) {
        let mut core = self.core();
        core.questions.remove(&turn);
        let granted = core.guards.contains_key(&turn);
        let input = if granted { Input::Release { turn, key } } else { Input::Cancel { turn, key } };
        let deeds = self.step(&mut core, input);
        drop(core);
        self.perform(deeds);
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
        let deeds = self.step(&mut core, Input::Close);
        drop(core);
        self.perform(deeds);
        Some(receiver)
    }

    pub(crate) fn handle(&self, input: Input) {
        let deeds = self.step(&mut self.core(), input);
        self.perform(deeds);
    }

    /// One turn of the driving rule: an input in, all outputs out.
    fn step(&self, core: &mut Core, input: Input) -> Vec<Deed> {
        let now = self.executor.now();
        core.machine.handle(input, now);
        let mut deeds = Vec::new();
        loop {
            match core.machine.poll_output() {
                Output::Timeout(wake) => {
                    deeds.extend(core.plan_alarm(wake).then_some(Deed::SetAlarm));
                    return deeds;
                }
                output => core.sort(output, &mut deeds),
            }
        }
    }

    fn perform(&self, deeds: Vec<Deed>) {
        for deed in deeds {
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
        let this = self.this.clone();
        let mut core = self.core();
        let Some(alarm) = core.alarm.as_mut().filter(|alarm| alarm.sleep.is_none()) else { return };
        let sleep = self.executor.sleep(Duration::from_millis(alarm.at.since(now)));
        let (ring, handle) = abortable(async move {
            sleep.await;
            if let Some(driver) = this.upgrade() {
                driver.core().alarm = None;
                driver.handle(Input::Tick);
            }
        });
        alarm.sleep = Some(handle);
        drop(core);
        self.executor.spawn(Box::pin(async move {
            // Aborted or not, there is nothing more to do.
            let _ = ring.await;
        }));
    }
}

impl Core {
    /// Whether the alarm must be set anew: one that goes off too early does no harm, one that goes off late does.
    fn plan_alarm(&mut self, wake: Option<Monotonic>) -> bool {
        if wake.is_some_and(|at| self.alarm.as_ref().is_some_and(|alarm| alarm.at <= at)) {
            return false;
        }
        let old = core::mem::replace(&mut self.alarm, wake.map(|at| Alarm { at, sleep: None }));
        if let Some(sleep) = old.and_then(|alarm| alarm.sleep) {
            sleep.abort();
        }
        wake.is_some()
    }

    /// What concerns a guard or a question is noted under the lock, so that it is never seen half done.
    fn sort(&mut self, output: Output, deeds: &mut Vec<Deed>) {
        match output {
            Output::Granted { turn, token } => {
                let fate = Shared::new(Fate::default());
                self.guards.insert(turn, fate.clone());
                self.answer(turn, Reaction::Granted(token, fate), deeds);
            }
            Output::Busy { turn } => self.answer(turn, Reaction::Busy, deeds),
            Output::Failed { turn, refusal } => self.answer(turn, Reaction::Failed(refusal), deeds),
            Output::Verified { query, result } => self.answer(query, Reaction::Verified(result), deeds),
            Output::Status { query, result } => self.answer(query, Reaction::Status(result), deeds),
            Output::Lost { turn, reason } => {
                deeds.extend(self.guards.get(&turn).map(|fate| Deed::Wake(fate.lose(reason))));
            }
            Output::Released { turn, result } => {
                deeds.extend(self.guards.remove(&turn).map(|fate| Deed::Wake(fate.release(result))));
            }
            Output::Closed => {
                self.closed = true;
                deeds.push(Deed::Close(core::mem::take(&mut self.closing)));
            }
            Output::Suspect { .. } | Output::Timeout(_) => {}
            act => deeds.push(Deed::Act(act)),
        }
    }

    fn answer(&mut self, turn: TurnId, reaction: Reaction, deeds: &mut Vec<Deed>) {
        deeds.extend(self.questions.remove(&turn).map(|sender| Deed::Answer(sender, reaction)));
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
        if let Some(sleep) = self.core().alarm.take().and_then(|alarm| alarm.sleep) {
            sleep.abort();
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Driver").field("store", &self.store).finish_non_exhaustive()
    }
}
