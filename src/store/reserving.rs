//! Which transactions reserve records in an optimistic store, so that others do not overtake them again and again.

use core::time::Duration;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    vec::Vec,
};

use crate::machine::{Action, Batch, Key};

/// An attempt after the first is made only if at least this long is left, because a busy machine may answer later than before. Otherwise
/// the error would say that the server is silent, and not that others wrote.
pub(super) const LEAST_TRIP: Duration = Duration::from_millis(20);

/// Once this many attempts of a transaction have failed, the next one that fails reserves its records. A reservation is a write, too, and
/// contexts near the server often overtake each other once or twice, but seldom three times.
pub(super) const FAILURES: u32 = 2;

/// What the transactions of one handle leave for later ones.
#[derive(Debug, Default)]
pub(super) struct Pace {
    failed: AtomicBool,
    trip_ms: AtomicU64,
}

impl Pace {
    /// Whether the latest transaction that may reserve failed, for whatever reason. The next one then reserves at its first failure.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Notes how a transaction ended. Of one that may not reserve, nothing is kept.
    pub(super) fn note_end(&self, batch: &Batch, failed: bool) {
        if writes_in_any_case(batch) {
            self.failed.store(failed, Relaxed);
        }
    }

    /// How long the latest attempt to write took; zero before the first.
    pub(super) fn trip(&self) -> Duration {
        Duration::from_millis(self.trip_ms.load(Relaxed))
    }

    pub(super) fn note_trip(&self, trip: Duration) {
        self.trip_ms.store(u64::try_from(trip.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Whether a batch waits for a lease or gives one back, so that it writes whatever it finds. A batch that only tries would often find the
/// key taken and write nothing. Its reservation would stay, and keep the holder from giving the lease back.
pub(super) fn writes_in_any_case(batch: &Batch) -> bool {
    let is_try = |action: &Action| match action {
        Action::Acquire(ask) => !ask.wait,
        Action::AcquireAll(_) => true,
        _ => false,
    };
    let writes = |action: &Action| match action {
        Action::Acquire(ask) => ask.wait,
        Action::Release { .. } | Action::Withdraw { .. } => true,
        _ => false,
    };
    let mut actions = batch.operations.iter().map(|operation| &operation.action);
    actions.clone().any(writes) && !actions.any(is_try)
}

/// The keys of a batch that may be reserved, and whose reservations count for it; none if there are more than `most`. For a record that is
/// only to be deleted, others' reservations do not matter.
pub(super) fn contested(batch: &Batch, most: usize) -> Vec<Key> {
    let mut keys = batch.keys();
    keys.retain(|key| !batch.forgets.contains(key));
    if keys.len() > most {
        keys.clear();
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Acquire, Operation, RequestId, SessionId, Token};

    fn batch(actions: impl IntoIterator<Item = Action>) -> Batch {
        let key = |number| Key::new(&format!("k{number}")).unwrap();
        let operations = actions.into_iter().enumerate().map(|(number, action)| Operation { key: key(number), action });
        Batch::new(SessionId(1), operations.collect())
    }

    fn asks(wait: bool) -> Action {
        Action::Acquire(Acquire { wait, ..Acquire::new(RequestId(1), 1) })
    }

    fn releases() -> Action {
        Action::Release { token: Token::from_u64(64).unwrap(), request: RequestId(1) }
    }

    #[test]
    fn a_batch_with_a_try_reserves_nothing() {
        assert!(writes_in_any_case(&batch([asks(true), releases()])));
        assert!(!writes_in_any_case(&batch([asks(false)])) && !writes_in_any_case(&batch([Action::Look])));
        assert!(!writes_in_any_case(&batch([asks(true), asks(false)])));
        assert!(!writes_in_any_case(&batch([releases(), Action::AcquireAll(Vec::new())])));
    }

    /// Its failure says nothing about the next batch: a try may have no time at all.
    #[test]
    fn a_batch_with_a_try_does_not_count_as_failed() {
        let pace = Pace::default();
        pace.note_end(&batch([asks(false)]), true);
        assert!(!pace.has_failed());
        pace.note_end(&batch([asks(true)]), true);
        pace.note_end(&batch([asks(false)]), false);
        assert!(pace.has_failed(), "the try is no success, either");
        pace.note_end(&batch([releases()]), false);
        assert!(!pace.has_failed());
    }
}
