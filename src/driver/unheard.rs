//! Requests whose callers have no future yet.

use alloc::vec::Vec;

use super::Driver;
use crate::machine::{Input, TurnId};

/// `count` requests with consecutive ids, for which nobody waits yet. If a panic drops this, they are cancelled.
pub(super) struct Unheard<'a> {
    driver: &'a Driver,
    first: TurnId,
    count: usize,
}

impl<'a> Unheard<'a> {
    /// To be forgotten once the caller can cancel by itself.
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
