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
    /// The beacons that this connection has seen, the latest one last. Entries outlive their watches: if the store does not accept that a
    /// context is dead, because it had sent a heartbeat just before, the same beacon is watched again.
    seen: Vec<i64>,
}

/// How many beacons are remembered.
const REMEMBERED: usize = 256;

#[derive(Debug)]
struct Watch {
    number: u64,
    lock: i64,
}

impl Watched {
    fn note_seen(&mut self, lock: i64) {
        if self.seen.contains(&lock) {
            return;
        }
        if self.seen.len() >= REMEMBERED {
            self.seen.remove(0);
        }
        self.seen.push(lock);
    }
}

impl Watches {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Watched { locks: Vec::new(), next: now, proves_from: now + GRACE, seen: Vec::new() }))
    }

    /// No other code runs under the lock, so the value is sound even if the lock is poisoned.
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, watch: u64, lock: i64) {
        self.watched().locks.push(Watch { number: watch, lock });
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
        watched.seen.clear();
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
        standing.iter().for_each(|lock| watched.note_seen(*lock));
        let Watched { locks, seen, .. } = &mut *watched;
        let is_gone = |watch: &mut Watch| {
            let proven = proves || seen.contains(&watch.lock);
            proven && !standing.contains(&watch.lock) && looked_at.contains(&(watch.number, watch.lock))
        };
        locks.extract_if(.., is_gone).map(|watch| watch.number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEACON: i64 = 7;

    #[test]
    fn a_beacon_that_was_seen_is_known_to_a_later_watch_of_the_same_connection() {
        let watches = Watches::new();
        watches.add(1, BEACON);
        assert!(watches.gone(&[(1, BEACON)], &[BEACON]).is_empty(), "it stands");
        watches.remove(1);
        watches.add(2, BEACON);
        assert_eq!(watches.gone(&[(2, BEACON)], &[]), [2]);
    }

    #[test]
    fn a_beacon_that_only_an_earlier_connection_saw_may_have_been_lost_in_a_restart() {
        let watches = Watches::new();
        watches.add(1, BEACON);
        assert!(watches.gone(&[(1, BEACON)], &[BEACON]).is_empty(), "it stands");
        watches.connected();
        assert!(watches.gone(&[(1, BEACON)], &[]).is_empty());
    }
}
