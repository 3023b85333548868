//! When to look whether the disk has room for the file of a store to grow. Each look writes a file.

use std::time::{Duration, Instant};

/// The pause after the first look that finds no room. Each further one doubles it.
const PAUSE: Duration = Duration::from_secs(3);
/// The longest pause: the disk may stay full for hours.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How long room that was found counts. Until then, nobody looks again although the file does not grow: somebody may read the log for
/// hours.
const LASTS: Duration = Duration::from_secs(30);

/// What is known of the room on the disk.
#[derive(Debug)]
pub(super) struct Room {
    found: u64,
    until: Instant,
    next: Instant,
    pause: Duration,
}

impl Room {
    pub(super) const fn unknown(now: Instant) -> Self {
        Self { found: 0, until: now, next: now, pause: PAUSE }
    }

    /// Whether there is room for so many bytes, as far as is known.
    pub(super) fn is_there_for(&mut self, bytes: u64, now: Instant, look: impl FnOnce() -> bool) -> bool {
        if now < self.until && bytes <= self.found {
            return true;
        }
        if now < self.next {
            return false;
        }
        if !look() {
            (self.until, self.next) = (now, now + self.pause);
            self.pause = LONGEST_PAUSE.min(2 * self.pause);
            return false;
        }
        *self = Self { found: bytes, until: now + LASTS, ..Self::unknown(now) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{super::worker::clock, *};

    /// How often it looks in ten minutes, and how often it finds room, if it is asked ten times a second.
    fn in_ten_minutes(has_room: impl Fn(Duration) -> bool, bytes: impl Fn(u64) -> u64) -> (usize, usize) {
        let begun = clock();
        let (mut room, mut looks, mut found) = (Room::unknown(begun), 0, 0);
        for tenth in 0..6_000 {
            let passed = Duration::from_millis(100 * tenth);
            let is_there = room.is_there_for(bytes(tenth), begun + passed, || {
                looks += 1;
                has_room(passed)
            });
            found += usize::from(is_there);
        }
        (looks, found)
    }

    #[test]
    fn while_somebody_reads_the_log_it_seldom_looks_and_the_file_may_grow_at_any_time() {
        assert_eq!(in_ten_minutes(|_| true, |_| 4_096), (20, 6_000));
    }

    #[test]
    fn while_the_disk_is_full_it_looks_ever_less_often() {
        assert_eq!(in_ten_minutes(|_| false, |_| 4_096), (8, 0));
    }

    #[test]
    fn room_that_comes_back_is_found_and_more_than_was_found_is_looked_for() {
        let (_, found) = in_ten_minutes(|passed| passed > Duration::from_secs(60), |_| 4_096);
        assert!(found > 4_000, "{found}");
        assert_eq!(in_ten_minutes(|_| true, |tenth| 1 + tenth / 10).0, 600);
    }
}
