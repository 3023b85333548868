//! Modes and times as JavaScript gives them.

use core::time::Duration;

use crate::Mode;

pub(super) fn mode(shared: bool) -> Mode {
    if shared { Mode::Shared } else { Mode::Exclusive }
}

/// A time that may be rounded down to whole ms. A number that is too large for the cast is out of every range.
pub(super) fn rounded_down(ms: f64) -> Duration {
    Duration::from_millis(ms as u64)
}

/// A time of which every bit counts.
pub(super) fn rounded_up(ms: f64) -> Duration {
    Duration::from_millis(ms.ceil() as u64)
}
