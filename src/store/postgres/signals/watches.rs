//! The beacons that a context watches: one look for all of them together.

use core::time::Duration;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    vec::Vec,
};

use tokio::time::Instant;

/// Between two looks. Each is a query.
const LOOK: Duration = Duration::from_millis(50);
/// A restart of the server, or a cut, ends the beacons of living contexts. These get this long to record the loss in the store.
const GRACE: Duration = Duration::from_secs(10);

/// Watches by number, with the advisory lock of each beacon, and when to look at them next.
///
/// No connection outlives a restart of its server. So a beacon that a connection has seen was not lost in a restart. One that it never saw
/// may have been, unless the connection is older than `GRACE`. The server's clock proves nothing: it may jump.
#[derive(Debug)]
pub(super) struct Watches(Mutex<Watched>);

#[derive(Debug)]
struct Watched {
    locks: Vec<Watch>,
    next: Instant,
    /// From this time on, an absent beacon proves that its context ended, even if this connection never saw it.
    proves_from: Instant,
}

#[derive(Debug)]
struct Watch {
    number: u64,
    lock: i64,
    /// Whether this connection has seen the beacon.
    seen: bool,
}

impl Watches {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Watched { locks: Vec::new(), next: now, proves_from: now + GRACE }))
    }

    /// No other code runs under the lock, so the value is sound even if the lock is poisoned.
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, watch: u64, lock: i64) {
        self.watched().locks.push(Watch { number: watch, lock, seen: false });
    }

    /// What is under way reports nothing any more.
    pub(super) fn remove(&self, watch: u64) {
        self.watched().locks.retain(|known| known.number != watch);
    }

    /// When to look, if there is anything to look at.
    pub(super) fn next(&self) -> Option<Instant> {
        let watched = self.watched();
        (!watched.locks.is_empty()).then_some(watched.next)
    }

    /// Notes a new connection, which has seen no beacon yet.
    pub(super) fn connected(&self) {
        let (mut watched, now) = (self.watched(), Instant::now());
        (watched.next, watched.proves_from) = (now, now + GRACE);
        watched.locks.iter_mut().for_each(|watch| watch.seen = false);
    }

    /// What to look at: watches by number, each with its lock.
    pub(super) fn looked_at(&self) -> Vec<(u64, i64)> {
        self.watched().locks.iter().map(|watch| (watch.number, watch.lock)).collect()
    }

    /// Ends and returns those of these watches whose contexts have ended, because their beacons are gone.
    pub(super) fn gone(&self, looked_at: &[(u64, i64)], standing: &[i64]) -> Vec<u64> {
        let (mut watched, now) = (self.watched(), Instant::now());
        watched.next = now + LOOK;
        let proves = now >= watched.proves_from;
        let is_gone = |watch: &mut Watch| {
            let stands = standing.contains(&watch.lock);
            watch.seen |= stands;
            !stands && (watch.seen || proves) && looked_at.contains(&(watch.number, watch.lock))
        };
        watched.locks.extract_if(.., is_gone).map(|watch| watch.number).collect()
    }
}
