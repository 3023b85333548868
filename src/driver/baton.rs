//! Whoever pumps does in place what others bring meanwhile, up to a limit. Beyond that a task of the executor goes on, so that
//! dropping a guard takes a bounded time.

use alloc::boxed::Box;
use std::sync::MutexGuard;

use super::{Core, Driver};
use crate::executor::{Shared, this_thread};

/// So many inputs of other threads one pump takes along.
pub(super) const MOST_FOR_OTHERS: u32 = 32;

/// The right to pump, on its way to a task. Whoever drops it pumps: nobody else would.
struct Baton {
    driver: Shared<Driver>,
    /// The task runs; else the runtime is gone, and whatever is left is done in place.
    arrived: bool,
    /// This thread panics. If a deed that is done in place panicked as well, the process would end. So if no task takes the deeds, they
    /// are left to whoever brings the next input.
    panics: bool,
}

impl Drop for Baton {
    fn drop(&mut self) {
        if self.panics && !self.arrived {
            self.driver.core().pumping = None;
            return;
        }
        let most_for_others = if self.arrived { MOST_FOR_OTHERS } else { u32::MAX };
        self.driver.pump_up_to(self.driver.core(), most_for_others);
    }
}

impl Driver {
    /// Leaves the pump to a task. Until that runs, everybody leaves their own to it.
    pub(super) fn hand_over(driver: Shared<Self>) {
        Self::pass_on(Baton { driver, arrived: false, panics: false });
    }

    /// For a thread that panics: leaves to a task what is still to be done.
    pub(super) fn leave<'a>(&'a self, mut core: MutexGuard<'a, Core>) {
        if core.pumping.is_none()
            && !core.deeds.is_empty()
            && let Some(driver) = self.this.upgrade()
        {
            core.pumping = Some(this_thread());
            drop(core);
            Self::pass_on(Baton { driver, arrived: false, panics: true });
        }
    }

    fn pass_on(mut baton: Baton) {
        let executor = baton.driver.executor.clone();
        executor.spawn(Box::pin(async move {
            baton.arrived = true;
            drop(baton);
        }));
    }
}
