//! The executor for native programs on tokio.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use boot_time::Instant;
use tokio::runtime::Handle;

use super::{Executor, MaybeSendFuture};
use crate::machine::{Monotonic, Now, Wall, whole_ms};

/// Runs tasks on a tokio runtime, and counts on a clock that goes on while the machine is suspended.
///
/// A guard may be dropped on any thread: its release goes on in the runtime.
///
/// ```
/// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build();
/// # assert!(leases.is_ok());
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TokioExecutor {
    runtime: Option<Handle>,
}

impl TokioExecutor {
    /// The executor of whichever runtime it is used in; where there is none, of the one that this is called in.
    pub fn new() -> Self {
        Self { runtime: Handle::try_current().ok() }
    }

    /// Ends when the process is told to stop, by Ctrl-C or SIGTERM: for
    /// [`LeaseManager::close_when`](crate::LeaseManager::close_when). From its first poll on, the signal no longer ends the
    /// process by itself: the program does so, when its leases are given back. It never ends where signals cannot be had.
    pub async fn shutdown_signal() {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            if let Ok(mut terminate) = signal(SignalKind::terminate()) {
                let interrupt = core::pin::pin!(interrupt());
                futures::future::select(interrupt, core::pin::pin!(terminate.recv())).await;
                return;
            }
        }
        interrupt().await;
    }
}

/// Ends at Ctrl-C.
async fn interrupt() {
    if tokio::signal::ctrl_c().await.is_err() {
        futures::future::pending::<()>().await;
    }
}

impl Default for TokioExecutor {
    fn default() -> Self {
        Self::new()
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

    fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
        let runtime = Handle::try_current().ok().or_else(|| self.runtime.clone());
        // Without any, as after the end of `main`, nothing goes on in the background: what is held then runs out.
        if let Some(runtime) = runtime {
            runtime.spawn(task);
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
