//! The beacons that a context watches: one look for all of them together.

use core::time::Duration;
use std::vec::Vec;

use tokio::time::Instant;

/// Between two looks. Each is a query.
const LOOK: Duration = Duration::from_millis(50);

/// Watches by number, with the advisory lock of each beacon, and when to look at them next.
#[derive(Debug)]
pub(super) struct Watches {
    watched: Vec<(u64, i64)>,
    next: Instant,
}

impl Watches {
    pub(super) fn new() -> Self {
        Self { watched: Vec::new(), next: Instant::now() }
    }

    pub(super) fn add(&mut self, watch: u64, lock: i64) {
        self.watched.push((watch, lock));
    }

    pub(super) fn remove(&mut self, watch: u64) {
        self.watched.retain(|(known, _)| *known != watch);
    }

    /// When to look, if there is anything to look at.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.watched.is_empty()).then_some(self.next)
    }

    /// For so long an absent beacon proves nothing.
    pub(super) fn wait(&mut self, duration: Duration) {
        self.next = Instant::now() + duration;
    }

    /// What to look at.
    pub(super) fn locks(&self) -> Vec<i64> {
        self.watched.iter().map(|(_, lock)| *lock).collect()
    }

    /// These stand. Ends the watches of all others, and gives their numbers.
    pub(super) fn looked(&mut self, standing: Option<&[i64]>) -> Vec<u64> {
        self.wait(LOOK);
        let Some(standing) = standing else { return Vec::new() };
        let gone = self.watched.extract_if(.., |(_, lock)| !standing.contains(lock));
        gone.map(|(watch, _)| watch).collect()
    }
}
