//! The thread that pumps also does what other threads bring meanwhile, up to a limit. Beyond that, a task of the executor continues, so
//! that dropping a guard takes a bounded time.

use alloc::boxed::Box;
use std::sync::MutexGuard;

use super::{Core, Driver, is_panicking};
use crate::executor::{DROPS_TASKS, MaybeSendFuture, Shared, after_panic};

/// How many inputs of other threads one pump handles.
pub(super) const MOST_FOR_OTHERS: u32 = 32;

/// The right to pump, on its way to a task. When it is dropped, that thread pumps, because nobody else would.
struct Baton {
    driver: Shared<Driver>,
    /// Whether the task runs. If not, the runtime is gone, and everything that is left is done in place.
    arrived: bool,
}

impl Drop for Baton {
    fn drop(&mut self) {
        let most_for_others = if self.arrived { MOST_FOR_OTHERS } else { u32::MAX };
        let core = self.driver.core();
        if core.pumping.is_none() && !core.deeds.is_empty() {
            self.driver.pump_up_to(core, most_for_others);
        }
    }
}

/// The work that a panicking thread leaves undone. It is done by the task that owns this, by the next input, or, if the runtime is gone,
/// when this is dropped.
struct Rest(Shared<Driver>);

impl Drop for Rest {
    fn drop(&mut self) {
        if !is_panicking() {
            return self.0.pump(self.0.core());
        }
        // The panic ends the runtime. A second panic, in the store, would end the process.
        let driver = self.0.clone();
        after_panic(move || driver.pump(driver.core()));
    }
}

impl Driver {
    /// Leaves the pump to a task, or to the next thread, if one comes before the task runs.
    pub(super) fn hand_over(driver: &Shared<Self>) {
        driver.spawn_in_each_place(|| {
            let mut baton = Baton { driver: driver.clone(), arrived: false };
            Box::pin(async move {
                baton.arrived = true;
                drop(baton);
            })
        });
    }

    /// Spawns the task here and elsewhere, because the runtime of the caller may not run again. The first of them to run does what is left.
    fn spawn_in_each_place(&self, task: impl Fn() -> MaybeSendFuture<'static, ()>) {
        // The constant keeps this out of the npm package, which has one place.
        let elsewhere = if DROPS_TASKS { self.executor.elsewhere() } else { None };
        self.executor.spawn(task());
        if let Some(place) = elsewhere {
            place.spawn(task());
        }
    }

    /// For a panicking thread: leaves what is still to be done to others. A thread that already pumps does it, too.
    // Protocol: docs/protocol.md#p4.
    pub(super) fn leave<'a>(&'a self, core: MutexGuard<'a, Core>) {
        let is_left = core.pumping.is_none() && !core.deeds.is_empty();
        drop(core);
        if is_left && let Some(driver) = self.this.upgrade() {
            driver.spawn_in_each_place(|| {
                let rest = Rest(driver.clone());
                Box::pin(async move { drop(rest) })
            });
        }
    }
}
