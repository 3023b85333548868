//! How much of the processors' time other programs take.

use std::fs;

use crate::work::{MS_PER_TICK, own_work_ms};

/// Watches other programs from `begin()` on. The load average would not do: it counts the benchmark, too.
pub struct Watch {
    worked_ms: f64,
    own_ms: f64,
    passed_ms: f64,
}

impl Watch {
    /// `None` on systems that do not tell these times.
    #[must_use]
    pub fn begin() -> Option<Self> {
        let (worked_ms, passed_ms) = times(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Self { worked_ms, own_ms: own_work_ms().ok()?, passed_ms })
    }

    /// The share of the processors' time that other programs have taken since the beginning, from 0 to 1.
    #[must_use]
    pub fn others(&self) -> Option<f64> {
        Some(self.others_until(&Self::begin()?))
    }

    fn others_until(&self, end: &Self) -> f64 {
        let others_ms = end.worked_ms - self.worked_ms - (end.own_ms - self.own_ms);
        // The system's counters and those of its processes can differ by some ticks.
        (others_ms / (end.passed_ms - self.passed_ms).max(MS_PER_TICK)).max(0.0)
    }
}

/// How long all processors together have worked since the system's start, and how much time has passed for all of them, in ms.
///
/// [proc_stat(5)](https://man7.org/linux/man-pages/man5/proc_stat.5.html)
fn times(told: &str) -> Option<(f64, f64)> {
    let ticks: Vec<f64> =
        told.lines().next()?.split_whitespace().skip(1).filter_map(|tick| tick.parse().ok()).collect();
    // User, nice, system, idle, waiting for a disk, and more; what a guest takes is counted as the user's, too.
    let passed = ticks.iter().take(8).sum::<f64>();
    Some(((passed - ticks.get(3)? - ticks.get(4)?) * MS_PER_TICK, passed * MS_PER_TICK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idling_and_waiting_for_a_disk_are_no_work() {
        let told = "cpu  10 2 5 70 8 1 1 3 10 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(times(told), Some((220.0, 1_000.0)));
        assert_eq!(times("cpu  10 2 5"), None);
    }

    #[test]
    fn own_work_is_not_that_of_others() {
        let begin = Watch { worked_ms: 1_000.0, own_ms: 100.0, passed_ms: 10_000.0 };
        let end = |own_ms| Watch { worked_ms: 1_500.0, own_ms, passed_ms: 12_000.0 };
        assert_eq!(begin.others_until(&end(100.0)), 0.25);
        assert_eq!(begin.others_until(&end(400.0)), 0.1);
        assert_eq!(begin.others_until(&end(700.0)), 0.0, "a tick more is no negative share");
    }

    #[test]
    fn a_moment_without_a_tick_divides_by_no_zero() {
        let begin = Watch { worked_ms: 1_000.0, own_ms: 100.0, passed_ms: 10_000.0 };
        let end = Watch { worked_ms: 1_000.0, own_ms: 100.0, passed_ms: 10_000.0 };
        assert_eq!(begin.others_until(&end), 0.0);
    }
}
