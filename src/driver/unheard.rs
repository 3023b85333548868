//! Requests on their way to who asked.

use alloc::vec::Vec;

use super::Driver;
use crate::machine::{Input, TurnId};

/// Requests that nobody waits for yet: so many, named one after the other. Dropped by a panic, they are given up.
pub(super) struct Unheard<'a> {
    driver: &'a Driver,
    first: TurnId,
    count: usize,
}

impl<'a> Unheard<'a> {
    /// To be forgotten once whoever asked has the means to give up.
    pub(super) const fn new(driver: &'a Driver, first: TurnId, count: usize) -> Self {
        Self { driver, first, count }
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        let driver = self.driver;
        let (now, mut core) = (driver.executor.now(), driver.core());
        let mut questions = Vec::new();
        for turn in (self.first.0..).map(TurnId).take(self.count) {
            let slot = core.registry.slot_of(turn);
            questions.extend(core.registry.forget(turn, now.monotonic));
            if let Some(slot) = slot {
                driver.digest(&mut core, Input::Cancel { turn, slot }, now);
            }
        }
        core.sort_news();
        driver.leave(core);
    }
}
