//! What a transaction does against others that write the same rows: it begins anew, pauses, or reserves its records.

use core::time::Duration;
use std::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use tokio::time::{Instant, sleep};

use super::{
    super::reserving::{FAILURES, LEAST_TRIP, Pace, contested, writes_in_any_case},
    compare::{Comparison, Reservation},
    lua::LONGEST_MS,
    setup,
};
use crate::machine::Batch;

/// How many times a transaction starts again, without being sent back to the caller, because others have written the same rows.
pub(super) const TRIES: u32 = 1_024;
/// A transaction that may not reserve its records, or a fenced script, pauses once it has failed more often than this.
pub(super) const AT_ONCE: u32 = 1;
/// A transaction for more keys than this makes no reservations, and ignores those of others.
const MOST_RESERVED: usize = 8;
/// A context whose runtime is busy needs a little longer than its answers.
const SHORTEST_MS: u64 = 250;
/// No pause is longer, in ms.
const LONGEST_PAUSE_MS: u64 = 32;

/// One transaction among others.
pub(super) struct Contest {
    /// The id of the session, which names its reservations. So a transaction that is sent again does not wait for its own reservation.
    name: String,
    /// The rows that reserve its records; none if there are too many keys.
    rows: Vec<String>,
    may_reserve: bool,
    /// How often others have written its rows.
    tries: u32,
    /// Once this many attempts have failed, the next one that fails reserves the records.
    reserves_after: u32,
    pauses: u32,
    /// How long the last answer took.
    trip: Duration,
    has_reserved: bool,
}

impl Contest {
    /// If the previous transaction failed, this one reserves its records as soon as an attempt fails.
    pub(super) fn of(batch: &Batch, pace: &Pace) -> Self {
        let keys = contested(batch, MOST_RESERVED);
        Self {
            name: batch.session.to_string(),
            may_reserve: !keys.is_empty() && writes_in_any_case(batch),
            rows: keys.iter().map(|key| format!("reserved:{key}")).collect(),
            tries: 0,
            reserves_after: if pace.has_failed() { 0 } else { FAILURES },
            pauses: 0,
            trip: pace.trip(),
            has_reserved: false,
        }
    }

    pub(super) const fn is_hopeless(&self) -> bool {
        self.tries >= TRIES
    }

    /// What goes with the next attempt, if it writes.
    pub(super) fn reservation(&self) -> Option<Reservation> {
        let wanted_ms = if self.reserves() { reservation_ms(self.trip) } else { 0 };
        (!self.rows.is_empty()).then(|| Reservation { name: self.name.clone(), rows: self.rows.clone(), wanted_ms })
    }

    fn reserves(&self) -> bool {
        self.may_reserve && self.tries >= self.reserves_after
    }

    /// Notes that an attempt failed; its answer took `trip`. The contest pauses if a reservation stands in the way, because the maker needs
    /// time for its own attempt. It also pauses if it may not reserve and has failed repeatedly: otherwise those who write the same rows in
    /// the same order would always leave the same one behind. Returns false if there is no time left for another attempt.
    pub(super) async fn lost(&mut self, trip: Duration, (is_free, wrote): (bool, bool), deadline: Instant) -> bool {
        self.trip = trip;
        self.has_reserved |= wrote && is_free && self.reserves();
        let pauses = !is_free || (self.tries > AT_ONCE && !self.may_reserve);
        let pause = if pauses { pause(self.pauses, trip) } else { Duration::ZERO };
        if Instant::now() + pause + self.trip.max(LEAST_TRIP) >= deadline {
            return false;
        }
        if pauses {
            sleep(pause).await;
            self.pauses += 1;
        }
        self.tries += u32::from(is_free);
        true
    }

    /// What takes the reservations back, if there are any: the transaction has nothing to write.
    pub(super) fn withdrawal(&mut self) -> Option<Comparison> {
        let own = Reservation { name: self.name.clone(), rows: self.rows.clone(), wanted_ms: 0 };
        core::mem::take(&mut self.has_reserved).then(|| Comparison { reservation: Some(own), ..Comparison::default() })
    }
}

/// How long a reservation lasts, in ms, for a context that waits this long for an answer.
fn reservation_ms(trip: Duration) -> u64 {
    u64::try_from(2 * trip.as_millis()).unwrap_or(LONGEST_MS).clamp(SHORTEST_MS, LONGEST_MS)
}

/// A random time. Its upper limit is a millisecond at first, and doubles each time up to [`LONGEST_PAUSE_MS`], or up to four times the
/// `trip` of the last answer if that is longer. If answers are slow because a crowd keeps the machine busy, the crowd must leave the maker
/// of the reservation enough time for its attempt.
pub(super) fn pause(earlier: u32, trip: Duration) -> Duration {
    let limit =
        Duration::from_millis(LONGEST_PAUSE_MS).max(trip.saturating_mul(4)).min(Duration::from_millis(LONGEST_MS));
    let longest = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX).min(1_000 << earlier.min(10));
    // Without random bits it does not pause.
    let drawn = setup::fresh_id().map_or(0, |drawn| drawn.0 % u128::from(longest));
    let micros = u64::try_from(drawn).unwrap_or_default();
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine that answers slowly because it is busy, a crowd that asks every few ms would use up the time that the maker of the
    /// reservation needs.
    #[test]
    fn a_context_that_is_answered_slowly_pauses_for_longer() {
        let longest = |trip_ms| (0..200).map(|_| pause(10, Duration::from_millis(trip_ms))).max().unwrap();
        assert!(longest(1) <= Duration::from_millis(32));
        assert!(longest(100) > Duration::from_millis(200) && longest(100) <= Duration::from_millis(400));
        assert!(longest(60_000) <= Duration::from_millis(1_000), "no reservation lasts longer");
        assert!(
            (0..200).all(|_| pause(0, Duration::from_secs(1)) <= Duration::from_millis(1)),
            "the first pause is short"
        );
    }
}
