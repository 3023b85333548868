//! The driver: it brings inputs to the machine, does what the outputs say, and decides nothing.
//!
//! The thread that brings an input also performs the outputs, in place and in order: it *pumps*. A thread that brings an input meanwhile
//! leaves its outputs to that pump. While the lock is held, no outside code is called but
//! the executor: its `now`, `sleep` and `elsewhere`, and the wakers of its tasks.

mod admission;
mod alarm;
mod baton;
mod closing;
mod event;
mod events;
mod fences;
mod flight;
mod forked;
mod guards;
mod pump;
mod questions;
mod registry;
mod requests;
mod scratch;
mod transactions;
mod unheard;
mod wakers;

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::{fmt, mem, pin::pin, time::Duration};
use std::sync::MutexGuard;

use futures::future::{Either, select};

use crate::executor::{
    Executor, Lifecycle, LifecycleWatch, LifecycleWatcher, Mutex, ProcessMark, Shared, ThreadMark, WeakShared,
    this_process,
};
use crate::machine::{Config, Input, Key, Machine, Now, Parcel, Refusal, SessionId, Slot, StoreError, TurnId};
use crate::oneshot::Sender;
use crate::signal::{Inbox, Notice, Signals};
use crate::store::{Reach, Store, StoreWatcher};

use alarm::Alarm;
use closing::StoreEnd;
use event::Event;
use pump::Deed;
use registry::{Effect, Registry};
use transactions::OpenTransactions;
use wakers::{wake_all, wake_with};

pub use event::{LeaseEvent, LeaseEventKind, LeaseStats};
pub(crate) use event::{Origin, tell_of_outage};
pub use events::LeaseEvents;
pub(crate) use questions::Answer;
pub(crate) use registry::Response;

const RUNTIME_ENDED: &str = "the runtime ended before the store answered";

/// One context at work: its machine, and the world that it acts on.
pub(crate) struct Driver {
    pub(crate) store: Shared<dyn Store>,
    pub(crate) executor: Shared<dyn Executor>,
    long_wait: Duration,
    /// Called once, when a request has waited for this long for a guard of its own context.
    warn_of_own_wait: fn(&Key),
    pub(crate) store_timeout: Duration,
    signals: Shared<dyn Signals>,
    /// Whether all contexts that share the store see the beacons of these signals. If not, an absent beacon proves nothing, so none is
    /// raised or watched.
    beacons: bool,
    core: Mutex<Core>,
    /// The key of the last request, because most requests name the same key as the one before.
    last_key: Mutex<Option<Key>>,
    this: WeakShared<Self>,
    /// The process that built this driver. A fork copies the driver into another process.
    process: ProcessMark,
    /// Whether a fork also copies the store.
    stays_within: bool,
    /// Ends the watching when it is dropped.
    lifecycle: Mutex<Option<Box<dyn LifecycleWatch>>>,
}

struct Core {
    machine: Machine,
    registry: Registry,
    open: OpenTransactions,
    alarm: Option<Alarm>,
    last_alarm: u64,
    closing: Vec<Sender<Response>>,
    closed: bool,
    store_end: StoreEnd,
    deeds: VecDeque<Deed>,
    /// The thread that pumps, if one does.
    pumping: Option<ThreadMark>,
    /// The process of that thread.
    process: ProcessMark,
    /// How many inputs other threads have left to this pump.
    for_others: u32,
    /// When the machine took its last input.
    now: Now,
}

impl Core {
    fn new(machine: Machine) -> Self {
        Self {
            registry: Registry::new(machine.session()),
            machine,
            open: OpenTransactions::default(),
            alarm: None,
            last_alarm: 0,
            closing: Vec::new(),
            closed: false,
            store_end: StoreEnd::Open,
            deeds: VecDeque::new(),
            pumping: None,
            process: this_process(),
            for_others: 0,
            now: Now::default(),
        }
    }
}

impl Driver {
    pub(crate) fn new(
        store: Shared<dyn Store>,
        signals: Shared<dyn Signals>,
        executor: Shared<dyn Executor>,
        config: Config,
        lingers_anyway: bool,
        (long_wait, warn_of_own_wait): (Duration, fn(&Key)),
    ) -> Shared<Self> {
        let (store_timeout, me) = (config.store_timeout(), SessionId(executor.random()));
        let beacons = signals.beacons().cover(&(*store).reach());
        let driver = Shared::new_cyclic(|this: &WeakShared<Self>| {
            let lifecycle = executor.watch_lifecycle(this.clone());
            let stays_within = matches!((*store).reach(), Reach::Process(_));
            // Otherwise a process that ends within the linger would leave a lease behind, which blocks its successor.
            let config =
                if lingers_anyway || lifecycle.is_some() || stays_within { config } else { config.without_linger() };
            let config = if signals.shows_deaths_at_once() { config } else { config.with_late_deaths() };
            let config = if (*store).loses_writes_in_failover() { config.for_failovers() } else { config };
            let core = Mutex::new(Core::new(Machine::new(config, me)));
            let lifecycle = Mutex::new(lifecycle);
            let this = this.clone();
            Self {
                store,
                executor,
                long_wait,
                warn_of_own_wait,
                store_timeout,
                signals,
                beacons,
                core,
                last_key: Mutex::default(),
                this,
                process: this_process(),
                stays_within,
                lifecycle,
            }
        });
        // Only now: before the driver exists, a weak handle to it looks dropped, and the store forgets dropped watchers.
        let watcher = Shared::downgrade(&driver);
        (*driver.store).watch(watcher);
        driver
    }

    /// A panic under the lock would be a bug of the machine. The state stays usable nevertheless.
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    pub(crate) fn session(&self) -> SessionId {
        self.core().machine.session()
    }

    /// The output of the future, or `None` if it takes longer than this.
    pub(crate) async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        match select(pin!(future), self.executor.sleep(limit)).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }

    pub(crate) fn keys_under(&self, prefix: &str) -> Vec<Key> {
        self.core().machine.keys_under(prefix)
    }

    pub(crate) fn remaining_ms(&self, turn: TurnId, slot: &Slot) -> u64 {
        let now = self.executor.now();
        self.core().machine.remaining_ms(turn, slot, now)
    }

    /// How long work may go on while its lease is in doubt.
    pub(crate) fn longest_doubt(&self) -> Duration {
        self.core().machine.longest_doubt()
    }

    /// Whether the leases have been in doubt for at least [`longest_doubt`](Self::longest_doubt), so that work under them must stop.
    pub(crate) fn is_overdue(&self) -> bool {
        let now = self.executor.now();
        self.core().machine.is_overdue(now.monotonic)
    }

    pub(crate) fn changed_hands(&self, key: &Key) -> bool {
        self.core().machine.changed_hands(key)
    }

    /// Takes a lease out of its guard, unless others use it, too.
    pub(crate) fn detach(&self, turn: TurnId, slot: &Slot) -> Option<Parcel> {
        let mut core = self.core();
        let parcel = core.machine.parcel(turn, slot)?;
        self.step(core, Input::Detach { turn, slot: slot.clone(), to: parcel.from });
        Some(parcel)
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        self.core().registry.stats
    }

    /// A stream of the events from now on. It is empty if the context has closed.
    pub(crate) fn events(&self) -> LeaseEvents {
        let mut core = self.core();
        let closed = core.closed;
        core.registry.audience().join(closed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.core().machine.is_closed()
    }

    /// Reports the guards that still exist although their manager is dropped.
    pub(crate) fn tell_leaks(&self) {
        if !Event::are_heard() {
            return;
        }
        let core = self.core();
        let (keys, holder) = (core.registry.forgotten_keys(), core.machine.session());
        drop(core);
        keys.into_iter().for_each(|key| Event::Leaked { key }.tell(holder, &Origin::here()));
    }

    /// The runtime that ran the timers is gone. Answers everything that waits here, because it would wait for ever.
    fn runtime_ended(&self) {
        let mut core = self.core();
        let now = self.executor.now();
        let gone = StoreError::unknown(RUNTIME_ENDED);
        let (closing, asked) = (mem::take(&mut core.closing), core.registry.forget_all(now.monotonic));
        for (turn, slot, question) in asked {
            if let Some(slot) = slot {
                self.digest(&mut core, Input::Cancel { turn, slot }, now);
            }
            let response = Response::Failed(Refusal::Store(gone.clone()));
            core.plan_deed(Deed::Effect(Effect::Answer(question, response)));
        }
        // Upgrades are cancelled last: earlier, requests that wait behind one would be granted, and nobody would be left to release them.
        for (query, slot) in core.machine.awaited_upgrades() {
            self.digest(&mut core, Input::CancelUpgrade { query, slot }, now);
        }
        for released in core.registry.end_releases(&gone, now.monotonic) {
            core.plan_deed(Deed::Effect(released));
        }
        core.sort_news();
        if !closing.is_empty() {
            core.plan_deed(Deed::Close(closing));
        }
        self.pump(core);
    }

    pub(crate) fn suspend(&self) {
        self.stop(Input::Suspend { abandons: (*self.store).abandons() });
    }

    fn stop(&self, input: Input) {
        let mut core = self.core();
        core.registry.leave_queues();
        self.step(core, input);
    }

    /// Whether the store has ever answered this context.
    pub(crate) fn has_heard_of_store(&self) -> bool {
        self.core().registry.has_heard
    }

    pub(crate) fn wake_up(&self) {
        self.handle(Input::Wake);
    }

    pub(crate) fn handle(&self, input: Input) {
        self.step(self.core(), input);
    }
}

/// Whether this thread is panicking. Without unwinding, no code runs after a panic.
fn is_panicking() -> bool {
    cfg!(panic = "unwind") && std::thread::panicking()
}

impl Inbox for Driver {
    fn notice(&self, notice: Notice) {
        self.handle(match notice {
            Notice::Message(message) => Input::Message(message),
            Notice::BeaconStands(session) => Input::BeaconStands(session),
            Notice::BeaconLost(session) => Input::BeaconLost(session),
            Notice::Reconnected => Input::Recheck,
            Notice::BeaconGone { watch } => Input::BeaconGone { watch },
        });
    }
}

impl LifecycleWatcher for Driver {
    fn lifecycle(&self, event: Lifecycle) {
        match event {
            Lifecycle::Suspending => self.suspend(),
            Lifecycle::Ending => self.stop(Input::Ending { abandons: (*self.store).abandons() }),
            Lifecycle::Resumed => self.wake_up(),
            Lifecycle::Hidden => {
                self.handle(Input::Hide);
                self.handle(Input::Doubt);
            }
            Lifecycle::Shown => self.handle(Input::Doubt),
        }
    }
}

impl StoreWatcher for Driver {
    fn store_gone(&self) {
        self.handle(Input::StoreGone { abandons: (*self.store).abandons() });
    }

    fn connection_ended(&self) {
        self.handle(Input::Doubt);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Nothing is left that holds or waits, or could end the session. Other contexts see that the beacon is gone.
        if self.is_ours() {
            self.signals.fall();
        }
        let mut core = self.core();
        core.replace_alarm(None);
        let guards = core.registry.take_guards();
        let mut wakers = core.registry.audience().end();
        drop(core);
        for (_, fate) in guards.iter() {
            let gone = StoreError::unknown(RUNTIME_ENDED);
            wake_with(&mut wakers, fate.release(Err(gone)));
        }
        wake_all(wakers);
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Driver({:?})", self.store)
    }
}
