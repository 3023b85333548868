//! Real tabs: what the tests, the demo and the benchmark share. A [`Server`] for the pages, a [`Browser`] driven over
//! WebDriver, and its [`Tab`]s.

mod browser;
mod driver;
mod engine;
mod processes;
mod server;
mod tab;
mod webkit;

pub use browser::{Browser, Shape};
pub use engine::Engine;
pub use server::Server;
pub use tab::Tab;

use std::time::{Duration, Instant};

/// What a poll waits between two looks.
const GLANCE: Duration = Duration::from_millis(10);

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
