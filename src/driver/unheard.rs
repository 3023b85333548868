//! Requests on their way to who asked.

use alloc::vec::Vec;

use super::Driver;
use crate::machine::{Input, TurnId};

/// Requests that nobody waits for yet. Dropped by a panic, they are given up.
pub(super) struct Unheard<'a, A: AsRef<[TurnId]>> {
    driver: &'a Driver,
    asked: A,
}

impl<'a, A: AsRef<[TurnId]>> Unheard<'a, A> {
    /// To be forgotten once whoever asked has the means to give up.
    pub(super) const fn new(driver: &'a Driver, asked: A) -> Self {
        Self { driver, asked }
    }
}

impl<A: AsRef<[TurnId]>> Drop for Unheard<'_, A> {
    fn drop(&mut self) {
        let driver = self.driver;
        let (now, mut core) = (driver.executor.now(), driver.core());
        let mut questions = Vec::new();
        for turn in self.asked.as_ref() {
            let slot = core.registry.slot_of(*turn);
            questions.extend(core.registry.forget(*turn, now.monotonic));
            if let Some(slot) = slot {
                driver.digest(&mut core, Input::Cancel { turn: *turn, slot }, now);
            }
        }
        core.sort_news();
        driver.leave(core);
    }
}
