//! Real tabs: what the tests, the demo and the benchmark share. A [`Server`] for the pages, a [`Browser`] driven over
//! WebDriver, and its [`Tab`]s.

mod browser;
mod driver;
mod engine;
#[path = "../../processes/port.rs"]
mod port;
mod process;
mod server;
#[path = "../../processes/skipped.rs"]
mod skipped;
mod tab;
mod webkit;

pub use browser::{Browser, Shape};
pub use engine::Engine;
pub use process::Process;
pub use server::Server;
pub use tab::Tab;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a poll waits between two looks.
const GLANCE: Duration = Duration::from_millis(10);

/// The wall clock, which this program and all pages read alike.
///
/// # Panics
/// When the clock stands before 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from(since.as_millis()).expect("the clock is before the year 500 million")
}

/// When to give up waiting for something.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// So far from now.
    #[must_use]
    pub fn after(within: Duration) -> Self {
        Self(Instant::now() + within)
    }

    /// Sleeps until the next look is due; `false` when there is to be none.
    pub async fn glance(self) -> bool {
        tokio::time::sleep(GLANCE).await;
        Instant::now() < self.0
    }
}
