//! How outputs are performed: in the machine's order, by one thread at a time, and without calls to outside code while the lock is held.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::{
    mem,
    task::{Context, Poll, Waker},
};
use std::sync::MutexGuard;

use super::registry::{Effect, Response};
use super::{Core, Driver, baton::MOST_FOR_OTHERS, flight::Flight, scratch, wakers::wake_all};
use crate::executor::{HAS_MANY_CONTEXTS, MaybeSendFuture, Part, Shared, this_process, this_thread};
use crate::machine::{Batch, Command, Event, Input, Monotonic, Now, Output, SessionId};
use crate::oneshot::Sender;
use crate::signal::Inbox;
use crate::store::OpenTransaction;

/// Something to do after the lock is released.
pub(super) enum Deed {
    Command(Command),
    Effect(Effect),
    Abort(Vec<Shared<dyn OpenTransaction>>),
    Close(Vec<Sender<Response>>),
    SetAlarm,
}

impl Driver {
    /// Handles one input: feeds it to the machine, then performs all outputs. It owns the mutex guard, so that a panic unlocks the core
    /// before destructors such as `Unheard` lock it again.
    pub(super) fn step<'a>(&'a self, mut core: MutexGuard<'a, Core>, input: Input) {
        let now = self.executor.now();
        self.digest(&mut core, input, now);
        self.pump(core);
    }

    /// Feeds one input to the machine, and plans the deeds that result. The caller [pumps](Self::pump) after its last input.
    // Protocol: docs/protocol.md#s9.
    pub(super) fn digest(&self, core: &mut Core, input: Input, now: Now) {
        if matches!(input, Input::Suspend { .. } | Input::Ending { .. }) {
            // Transactions that are still open, the user's and the store's own, would delay the deletion of the session, and keep all other
            // contexts waiting. So they are aborted before anything else.
            let open = core.open.take_all();
            core.plan_deed(Deed::Abort(open));
        }
        // Threads may take the lock in another order than they read the clock, so only a later time replaces this one.
        if now.monotonic >= core.now.monotonic {
            core.now = now;
        }
        if let Input::Reply { result, .. } = &input {
            core.registry.note_result(result, now.monotonic);
        }
        if HAS_MANY_CONTEXTS {
            core.machine.lend(scratch::take_outputs());
        }
        let machine = Part::Machine.begin();
        core.machine.handle(input, now);
        drop(machine);
        core.sort_news();
        let wake = core.sort_outputs(now.monotonic);
        core.plan_alarm(wake, now.monotonic, || self.executor.elsewhere().is_some());
    }

    /// Does the planned deeds. Only one thread pumps, so that everything is done in the machine's order.
    pub(super) fn pump<'a>(&'a self, mut core: MutexGuard<'a, Core>) {
        match core.pumping {
            None if core.deeds.is_empty() => {}
            None => self.pump_up_to(core, MOST_FOR_OTHERS),
            // A fork copied the core, but not the thread that was at work.
            Some(pumping) if pumping != this_thread() && core.process != this_process() => {
                core.process = this_process();
                self.pump_up_to(core, MOST_FOR_OTHERS);
            }
            Some(pumping) => core.for_others += u32::from(pumping != this_thread()),
        }
    }

    /// Handles at most this many inputs of other threads, and leaves the rest to a task.
    pub(super) fn pump_up_to<'a>(&'a self, core: MutexGuard<'a, Core>, most_for_others: u32) {
        let mut pump = Pump { driver: self, ended: false };
        // Declared last: a panic must unlock the core before the pump's destructor locks it.
        let mut core = core;
        (core.pumping, core.for_others) = (Some(this_thread()), 0);
        while let Some(deed) = core.next_deed() {
            let now = core.now;
            drop(core);
            let reply = self.perform(deed, now);
            core = self.core();
            if let Some(reply) = reply {
                self.digest(&mut core, reply, self.executor.now());
            }
            if core.for_others >= most_for_others
                && !core.deeds.is_empty()
                && let Some(driver) = self.this.upgrade()
            {
                pump.ended = true;
                // The caller's runtime may not run again after this, so the next thread that comes does what is left.
                core.pumping = None;
                drop(core);
                return Self::hand_over(&driver);
            }
        }
        core.pumping = None;
        pump.ended = true;
    }

    /// Returns the store's reply if it came at once: the caller handles it as the next input.
    fn perform(&self, deed: Deed, now: Now) -> Option<Input> {
        match deed {
            Deed::Command(command) => return self.obey(command, now),
            Deed::Effect(Effect::Answer(question, response)) => question.answer(response),
            Deed::Effect(Effect::Wake(wakers)) => wake_all(wakers),
            Deed::Effect(Effect::WakeOne(waker)) => waker.wake(),
            Deed::Effect(Effect::End(fate, wakers)) => {
                drop(fate);
                wake_all(wakers);
            }
            Deed::Effect(Effect::WarnOfOwnWait(key)) => (self.warn_of_own_wait)(&key),
            Deed::Close(senders) => {
                self.end_watching();
                drop(senders);
            }
            Deed::Abort(open) => {
                open.iter().for_each(|transaction| transaction.abort());
                self.store.interrupt();
            }
            Deed::Effect(Effect::Tell(event, holder, origin)) => event.tell(holder, &origin),
            Deed::SetAlarm => self.set_alarm(),
        }
        None
    }

    /// Renews the watch of the life cycle, unless the context has closed.
    pub(super) fn renew_watch(&self) {
        if let Some(watch) = &*self.lifecycle.lock() {
            watch.renew();
        }
    }

    /// Ends the watch of the life cycle, which no longer concerns a closed context.
    fn end_watching(&self) {
        let watching = self.lifecycle.lock().take();
        drop(watching);
    }

    fn obey(&self, command: Command, now: Now) -> Option<Input> {
        match command {
            Command::Store { id, batch } => return self.transact(id, batch, now),
            Command::Wake { session, beacon } => self.wake(session, beacon),
            // A forked copy shares its parent's connections: it would send messages in the parent's name, or lower the parent's beacon.
            _ if !self.is_ours() => {}
            Command::Abandon(session) => self.store.abandon(session),
            Command::Send(message) => self.signals.send(&message),
            Command::Rest => self.signals.rest(),
            Command::Fall => self.signals.fall(),
            Command::Watch { watch, session } => self.watch(watch, session),
            Command::Unwatch { watch } => self.signals.unwatch(watch),
        }
        None
    }

    fn wake(&self, session: SessionId, beacon: bool) {
        let Some(this) = self.this.upgrade() else { return };
        self.renew_watch();
        let beacon = beacon && self.beacons;
        let inbox: Shared<dyn Inbox> = this;
        if !self.is_ours() || !self.signals.wake(session, beacon, Shared::downgrade(&inbox)) {
            self.handle(Input::NoBeacon);
        }
    }

    /// Watches a beacon, unless other contexts may have beacons that these signals do not see.
    fn watch(&self, watch: u64, session: SessionId) {
        if self.beacons {
            self.signals.watch(watch, session);
        }
    }

    /// A store that answers at once costs no future, and one that may be polled here costs no task. The store is told the time at which
    /// the machine took its last input. So a lease does not expire in the store before its holder stops considering it valid.
    // Protocol: docs/protocol.md#p7.
    fn transact(&self, id: u64, batch: Batch, now: Now) -> Option<Input> {
        let at_once = |result| Some(Input::Reply { id, result });
        if let Some(result) = (*self.store).transact_at_once(&batch, now) {
            return at_once(result);
        }
        if let Err(error) = self.check_process() {
            return at_once(Err(error));
        }
        let (store, limit) = (self.store.clone(), self.store_timeout);
        let mut transaction: MaybeSendFuture<'static, _> =
            Box::pin(async move { (*store).transact(batch, now, limit).await });
        if self.store.polls_inline() {
            let polled = transaction.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(result) = polled {
                return at_once(result);
            }
        }
        let driver = self.this.upgrade()?;
        self.executor.spawn(Box::pin(Flight { transaction: Some(transaction), driver, id }));
        None
    }
}

/// A pump at work. If a panic drops it, for example one in a store, it leaves the rest to a task, because the next input may never come,
/// and the alarm may be in that rest.
struct Pump<'a> {
    driver: &'a Driver,
    /// Whether everything was done or handed over. The destructor cannot tell this from whether its thread is panicking: a pump may also
    /// run while its thread unwinds after a panic that began elsewhere.
    ended: bool,
}

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut core = self.driver.core();
        core.pumping = None;
        self.driver.leave(core);
    }
}

impl Core {
    /// Takes the next deed. When all are done, room for more than one is freed, because most contexts wait most of the time.
    fn next_deed(&mut self) -> Option<Deed> {
        let deed = self.deeds.pop_front();
        if HAS_MANY_CONTEXTS {
            if self.deeds.is_empty() {
                scratch::keep_deeds(mem::take(&mut self.deeds));
            }
        } else if self.deeds.is_empty() && self.deeds.capacity() > 1 {
            self.deeds = VecDeque::new();
        }
        deed
    }

    /// Sorts the machine's outputs. Returns when the machine wants to be woken.
    fn sort_outputs(&mut self, now: Monotonic) -> Option<Monotonic> {
        if !HAS_MANY_CONTEXTS {
            loop {
                match self.machine.poll_output() {
                    Output::Timeout(wake) => return wake,
                    Output::Command(command) => self.sort_command(command),
                    Output::Event(event) => self.sort_event(event, now),
                }
            }
        }
        let (mut outputs, wake) = self.machine.take_outputs();
        // Popped from the end, each is moved only once. Usually there is only one.
        outputs.reverse();
        while let Some(output) = outputs.pop() {
            match output {
                Output::Timeout(_) => {}
                Output::Command(command) => self.sort_command(command),
                Output::Event(event) => self.sort_event(event, now),
            }
        }
        scratch::keep_outputs(outputs);
        wake
    }

    fn sort_command(&mut self, command: Command) {
        if let Command::Store { batch, .. } = &command {
            self.registry.note_transaction(batch, self.machine.session());
            self.sort_news();
        }
        self.plan_deed(Deed::Command(command));
    }

    pub(super) fn plan_deed(&mut self, deed: Deed) {
        if HAS_MANY_CONTEXTS && self.deeds.capacity() == 0 {
            self.deeds = scratch::take_deeds();
        }
        self.deeds.reserve_exact(usize::from(self.deeds.is_empty()));
        self.deeds.push_back(deed);
    }

    /// An event of a guard or a question is noted under the lock, so that nobody sees it half done.
    fn sort_event(&mut self, event: Event, now: Monotonic) {
        if event == Event::Closed {
            self.closed = true;
            self.registry.end_events();
            self.sort_news();
            let closing = mem::take(&mut self.closing);
            return self.plan_deed(Deed::Close(closing));
        }
        let effect = self.registry.note(event, &self.machine, now);
        self.sort_news();
        // Only if no deed is planned before this one. The deed that this thread is performing has already begun, so the order stays.
        let is_next = self.deeds.is_empty() && self.pumping.is_none_or(|pumping| pumping == this_thread());
        if let Some(left) = effect.and_then(|effect| self.registry.perform(effect, is_next)) {
            self.plan_deed(Deed::Effect(left));
        }
    }

    pub(super) fn sort_news(&mut self) {
        // Usually nobody listens, and each input comes here twice. The constant keeps this check out of the npm package, which is to be
        // small.
        if HAS_MANY_CONTEXTS && self.registry.news.is_empty() {
            return;
        }
        for effect in self.registry.news.drain(..) {
            self.deeds.push_back(Deed::Effect(effect));
        }
    }
}
