//! The executor for native programs on tokio.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use boot_time::Instant;

use super::{Executor, MaybeSendFuture};
use crate::machine::{Monotonic, Now, Wall, whole_ms};

/// Runs tasks on the tokio runtime of the caller, and counts on a clock that goes on while the machine is suspended.
///
/// Its methods are called within the runtime: build the manager and use its guards there, and drop them there too.
///
/// ```
/// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
/// let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build();
/// # assert!(leases.is_ok());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioExecutor(());

impl TokioExecutor {
    /// The executor of the runtime that it is used in.
    pub const fn new() -> Self {
        Self(())
    }
}

/// The moment when this process first asked for the time. All executors share it.
fn origin() -> Instant {
    static ORIGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

impl Executor for TokioExecutor {
    #[expect(clippy::disallowed_methods, reason = "an executor is where clocks are read")]
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { monotonic: Monotonic::from_ms(whole_ms(origin().elapsed())), wall: Wall::from_ms(whole_ms(wall)) }
    }

    #[expect(clippy::disallowed_methods, reason = "an executor is where tasks are spawned")]
    fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
        // Dropped outside a runtime, say at the end of `main`, a guard cannot release in the background; its lease
        // runs out, and its beacon goes with the manager.
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::spawn(task);
        }
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        // Made when first polled, inside the runtime.
        Box::pin(async move { tokio::time::sleep(duration).await })
    }

    fn random(&self) -> u128 {
        let mut bits = [0; 16];
        match getrandom::fill(&mut bits) {
            Ok(()) => u128::from_ne_bytes(bits),
            Err(error) => panic!("the system gives no random bits, so contexts cannot be told apart: {error}"),
        }
    }
}
