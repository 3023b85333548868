//! The alarm of a task that does something again and again.

use core::pin::Pin;
use std::boxed::Box;

use tokio::time::{Instant, Sleep, sleep_until};

/// Goes off at one moment after another. The alarm after the next one is set in advance, because a timer that is set to be the first of the
/// runtime to go off wakes the runtime's driver, which costs two system calls.
pub(super) struct Alarm([Pin<Box<Sleep>>; 2]);

impl Alarm {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self([now, now].map(|moment| Box::pin(sleep_until(moment))))
    }

    /// Sets it to these two moments.
    pub(super) fn set(&mut self, moments: [Instant; 2]) {
        if self.0[1].deadline() == moments[0] {
            self.0.swap(0, 1);
        }
        for (sleep, moment) in self.0.iter_mut().zip(moments) {
            if sleep.deadline() != moment {
                sleep.as_mut().reset(moment);
            }
        }
    }

    /// Waits until the next moment.
    pub(super) async fn goes_off(&mut self) {
        self.0[0].as_mut().await;
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use tokio::runtime::{Builder, Handle};

    use super::*;

    /// How often the runtime sleeps during as many alarms.
    async fn sleeps(alarms: u32) -> u64 {
        let (metrics, began, pause) = (Handle::current().metrics(), Instant::now(), Duration::from_millis(5));
        let (mut alarm, before) = (Alarm::new(), metrics.worker_park_count(0));
        for number in 1..=alarms {
            let next = began + pause * number;
            alarm.set([next, next + pause]);
            alarm.goes_off().await;
        }
        metrics.worker_park_count(0) - before
    }

    #[test]
    fn the_runtime_wakes_up_once_for_each_alarm() {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let sleeps = runtime.block_on(sleeps(100));
        // Tokio also wakes up each 64 ms to sort its timers.
        assert!(sleeps < 150, "{sleeps}");
    }
}
