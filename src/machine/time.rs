//! Two clocks that cannot be mixed up, in whole milliseconds.

use core::{fmt, num::NonZeroU64, time::Duration};

/// A moment on a context's own monotonic clock, in ms since an arbitrary origin.
///
/// Leases are counted on this clock alone. Comparing it with a [`Wall`] does not compile:
///
/// ```compile_fail
/// use leasehold::machine::{Monotonic, Wall};
/// let _ = Monotonic::from_ms(1) < Wall::from_ms(2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(NonZeroU64);

impl Monotonic {
    /// The moment `ms` milliseconds after the clock's origin.
    pub const fn from_ms(ms: u64) -> Self {
        // Stored as one more, so that an `Option` of it needs no extra room.
        Self(NonZeroU64::MIN.saturating_add(ms))
    }

    /// Milliseconds since the clock's origin.
    pub const fn as_ms(self) -> u64 {
        self.0.get() - 1
    }

    /// The moment `span_ms` later; stops at the end of time.
    pub const fn plus(self, span_ms: u64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }

    /// Milliseconds from `earlier` to this moment, or 0 if `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }
}

impl Default for Monotonic {
    fn default() -> Self {
        Self::from_ms(0)
    }
}

impl fmt::Debug for Monotonic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Monotonic").field(&self.as_ms()).finish()
    }
}

/// A moment on the wall clock, in ms since the Unix epoch: for tokens and for display, never for judging a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(u64);

impl Wall {
    /// The moment `ms` milliseconds after the Unix epoch.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// The moment `span_ms` later; stops at the end of time.
    pub const fn plus(self, span_ms: u64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }
}

/// One reading of both clocks, taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// The context's monotonic clock.
    pub monotonic: Monotonic,
    /// The wall clock.
    pub wall: Wall,
}

impl Now {
    /// How far the wall clock is ahead of the monotonic one, in ms. It is constant unless one of them jumped.
    pub(crate) const fn wall_offset(self) -> i64 {
        // Both are far below 2^63 ms, 292 million years.
        self.wall.0.wrapping_sub(self.monotonic.as_ms()) as i64
    }
}

/// Whole milliseconds of a duration; at most `u64::MAX`.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    // Not by `as_millis`, whose 128-bit arithmetic would enlarge the wasm.
    match duration.as_secs() {
        secs if secs > u64::MAX / 1_000 => u64::MAX,
        secs => (secs * 1_000).saturating_add(duration.subsec_millis().into()),
    }
}

/// The first of several moments, if there is any.
pub(super) fn earliest(moments: &[Option<Monotonic>]) -> Option<Monotonic> {
    let mut first = None;
    for moment in moments {
        // `None` sorts before every `Some`, so it is compared apart.
        if moment.is_some() && (first.is_none() || *moment < first) {
            first = *moment;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_cut_to_whole_milliseconds_and_stop_at_the_end() {
        for (duration, ms) in [
            (Duration::ZERO, 0),
            (Duration::from_micros(1_999), 1),
            (Duration::new(7, 999_999_999), 7_999),
            (Duration::from_millis(u64::MAX), u64::MAX),
            (Duration::new(u64::MAX / 1_000, 999_999_999), u64::MAX),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(whole_ms(duration), ms, "{duration:?}");
        }
    }

    #[test]
    fn moments_stop_at_both_ends() {
        let (first, last) = (Monotonic::default(), Monotonic::from_ms(u64::MAX));
        assert_eq!((first.as_ms(), last, last.plus(1)), (0, first.plus(u64::MAX), last));
        assert_eq!((first.plus(5).since(first), first.since(last)), (5, 0));
        assert_eq!(alloc::format!("{:?}", first.plus(5)), "Monotonic(5)");
    }
}
