//! The alarm of a context: one timer, or two if the context is used in another place than at first.

use alloc::boxed::Box;
use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::future::{AbortHandle, FutureExt, abortable};

use super::{Core, Driver, pump::Deed};
use crate::executor::{DROPS_TASKS, Executor, MaybeSendFuture, Shared, WeakShared};
use crate::machine::{Input, Monotonic};

/// The alarm of a context. It exists only while the machine waits for a time.
pub(super) struct Alarm {
    id: u64,
    at: Monotonic,
    /// Whether it keeps the context alive until it rings, because something must be tried again.
    keeps_alive: bool,
    /// Its timers, once they are set: in the place where the alarm was set, and elsewhere if the context is used in another place, too.
    bells: [Option<AbortHandle>; 2],
    /// Whether the store's answer set it, rather than whatever ran when it was planned.
    by_answer: bool,
}

impl Driver {
    /// Sets the alarm again from here. In a hidden page, Chromium fires timers only once a minute if each was set by the one before. This
    /// one is set by the store's answer, and fires within a second of its time.
    pub(super) fn reset_alarm(&self) {
        if !self.executor.delays_chained_timers() {
            return;
        }
        let mut core = self.core();
        let by_whoever = |alarm: &&Alarm| alarm.is_set() && !alarm.by_answer;
        if let Some(at) = core.alarm.as_ref().filter(by_whoever).map(|alarm| alarm.at) {
            core.replace_alarm(Some(at));
            core.alarm.iter_mut().for_each(|alarm| alarm.by_answer = true);
            self.pump(core);
        }
    }

    /// Sets the alarm that was planned last, unless it is set already.
    pub(super) fn set_alarm(&self) {
        // Declared before the guard: if an executor panics, the core must be unlocked before the destructor of a bell locks it.
        let (elsewhere, here, there);
        {
            let mut core = self.core();
            let Some(alarm) = core.alarm.as_mut().filter(|alarm| !alarm.is_set()) else { return };
            elsewhere = self.executor.elsewhere();
            here = self.bell(alarm, 0, &self.executor);
            there = elsewhere.as_ref().map(|place| self.bell(alarm, 1, place));
        }
        self.executor.spawn(here);
        if let (Some(place), Some(there)) = (elsewhere, there) {
            place.spawn(there);
        }
    }

    /// Makes the timer of an alarm for one place, to be spawned there. Its task ends when the timer rings or is aborted.
    fn bell(&self, alarm: &mut Alarm, at: usize, place: &Shared<dyn Executor>) -> MaybeSendFuture<'static, ()> {
        let sleep = place.sleep(Duration::from_millis(alarm.at.since(self.executor.now().monotonic)));
        let kept = if alarm.keeps_alive { self.this.upgrade() } else { None };
        let (ring, handle) = abortable(Bell { sleep, driver: self.this.clone(), id: alarm.id, at, kept });
        alarm.bells[at] = Some(handle);
        Box::pin(ring.map(drop))
    }
}

impl Alarm {
    fn is_set(&self) -> bool {
        self.bells.iter().any(Option::is_some)
    }

    fn end(self) {
        self.bells.into_iter().flatten().for_each(|bell| bell.abort());
    }
}

/// What an alarm does when its time has come, or when the runtime that it slept in is gone. It is not an `async` block, which would be
/// twice as large, because each context that waits has one.
struct Bell {
    sleep: MaybeSendFuture<'static, ()>,
    driver: WeakShared<Driver>,
    id: u64,
    /// Its index among the bells of its alarm.
    at: usize,
    /// Keeps the context alive until then.
    kept: Option<Shared<Driver>>,
}

impl Future for Bell {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.sleep.as_mut().poll(context));
        self.ring();
        self.kept = None;
        Poll::Ready(())
    }
}

impl Bell {
    fn ring(&self) {
        let Some(driver) = self.driver.upgrade() else { return };
        if driver.core().forget_alarm(self.id, self.at) {
            driver.renew_watch();
            driver.handle(Input::Tick);
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // An alarm that will never ring must not keep the next one from being set.
        if DROPS_TASKS
            && let Some(driver) = self.driver.upgrade()
            && !driver.executor.has_crashed()
            && driver.core().forget_bell(self.id, self.at)
        {
            driver.runtime_ended();
        }
    }
}

impl Core {
    /// Plans the alarm again if it must ring earlier, or in one more place. An alarm that rings too early does no harm; a late one does.
    /// `has_elsewhere` tells whether the context is used in another place, too.
    pub(super) fn plan_alarm(&mut self, wake: Option<Monotonic>, now: Monotonic, has_elsewhere: impl Fn() -> bool) {
        let keeps_alive = self.machine.has_loose_ends();
        let is_whole = |alarm: &Alarm| match alarm.bells {
            [Some(_), Some(_)] | [None, None] => true,
            // The place where the alarm was set may stand still by now.
            [Some(_), None] => !has_elsewhere(),
            // The place where the alarm was set has ended. A bell that is set here may ring.
            [None, Some(_)] => false,
        };
        let serves = |alarm: &Alarm, at| {
            alarm.at <= at && alarm.at > now && (alarm.keeps_alive || !keeps_alive) && is_whole(alarm)
        };
        if !wake.is_some_and(|at| self.alarm.as_ref().is_some_and(|alarm| serves(alarm, at))) {
            self.replace_alarm(wake);
        }
    }

    pub(super) fn replace_alarm(&mut self, wake: Option<Monotonic>) {
        if let Some(alarm) = self.alarm.take() {
            alarm.end();
        }
        if let Some(at) = wake {
            self.last_alarm += 1;
            let keeps_alive = self.machine.has_loose_ends();
            self.alarm = Some(Alarm { id: self.last_alarm, at, keeps_alive, bells: [None, None], by_answer: false });
            self.plan_deed(Deed::SetAlarm);
        }
    }

    /// Removes this alarm, because one of its timers rings, and stops the other timer. Returns whether the alarm still existed.
    fn forget_alarm(&mut self, id: u64, at: usize) -> bool {
        let Some(mut alarm) = self.alarm.take_if(|alarm| alarm.id == id) else { return false };
        alarm.bells[at] = None;
        alarm.end();
        true
    }

    /// Removes a bell. Returns whether the alarm existed and has lost its last bell.
    fn forget_bell(&mut self, id: u64, at: usize) -> bool {
        let Some(alarm) = self.alarm.as_mut().filter(|alarm| alarm.id == id) else { return false };
        alarm.bells[at] = None;
        self.alarm.take_if(|alarm| !alarm.is_set()).is_some()
    }
}
