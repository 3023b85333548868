//! The beacons that a context watches: one look for all of them together.

use core::time::Duration;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    vec::Vec,
};

use tokio::time::Instant;

/// Between two looks. Each is a query.
const LOOK: Duration = Duration::from_millis(50);

/// Watches by number, with the advisory lock of each beacon, and when to look at them next.
#[derive(Debug)]
pub(super) struct Watches(Mutex<Watched>);

#[derive(Debug)]
struct Watched {
    locks: Vec<(u64, i64)>,
    next: Instant,
}

impl Watches {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Watched { locks: Vec::new(), next: Instant::now() }))
    }

    /// Nothing outside is called under the lock, so a poisoned one guards a sound value.
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, watch: u64, lock: i64) {
        self.watched().locks.push((watch, lock));
    }

    /// What is under way reports nothing any more.
    pub(super) fn remove(&self, watch: u64) {
        self.watched().locks.retain(|(known, _)| *known != watch);
    }

    /// When to look, if there is anything to look at.
    pub(super) fn next(&self) -> Option<Instant> {
        let watched = self.watched();
        (!watched.locks.is_empty()).then_some(watched.next)
    }

    /// For so long an absent beacon proves nothing.
    pub(super) fn wait(&self, duration: Duration) {
        self.watched().next = Instant::now() + duration;
    }

    /// What to look at.
    pub(super) fn looked_at(&self) -> Vec<(u64, i64)> {
        self.watched().locks.clone()
    }

    /// Of these watches, those of beacons that stand no more. They end.
    pub(super) fn gone(&self, looked_at: &[(u64, i64)], standing: Option<&[i64]>) -> Vec<u64> {
        self.wait(LOOK);
        let Some(standing) = standing else { return Vec::new() };
        let mut watched = self.watched();
        let is_gone = |watch: &mut (u64, i64)| looked_at.contains(watch) && !standing.contains(&watch.1);
        watched.locks.extract_if(.., is_gone).map(|(watch, _)| watch).collect()
    }
}
