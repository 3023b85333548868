//! Whoever pumps does in place what others bring meanwhile, up to a limit. Beyond that a task of the executor goes on, so that
//! dropping a guard takes a bounded time.

use alloc::boxed::Box;

use super::Driver;
use crate::executor::Shared;

/// So many inputs of other threads one pump takes along.
pub(super) const MOST_FOR_OTHERS: u32 = 32;

/// The right to pump, on its way to a task. Whoever drops it pumps: nobody else would.
struct Baton {
    driver: Shared<Driver>,
    /// The task runs; else the runtime is gone, and whatever is left is done in place.
    arrived: bool,
}

impl Drop for Baton {
    fn drop(&mut self) {
        let most_for_others = if self.arrived { MOST_FOR_OTHERS } else { u32::MAX };
        self.driver.pump_up_to(self.driver.core(), most_for_others);
    }
}

impl Driver {
    /// Leaves the pump to a task. Until that runs, everybody leaves their own to it.
    pub(super) fn hand_over(driver: Shared<Self>) {
        let executor = driver.executor.clone();
        let mut baton = Baton { driver, arrived: false };
        executor.spawn(Box::pin(async move {
            baton.arrived = true;
            drop(baton);
        }));
    }
}
