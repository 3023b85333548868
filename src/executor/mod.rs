//! Executors: they spawn, sleep, draw random bits and tell both clocks. They do not know what a lease is.

mod bounds;
#[cfg(feature = "test-util")]
mod sim;
#[cfg(all(feature = "tokio", not(all(target_family = "wasm", target_os = "unknown"))))]
mod tokio;
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
mod web;

#[cfg(all(feature = "tokio", not(all(target_family = "wasm", target_os = "unknown"))))]
pub use self::tokio::TokioExecutor;
#[cfg(all(feature = "web", target_family = "wasm", target_os = "unknown"))]
pub use self::web::WebExecutor;
pub(crate) use bounds::process_wide;
pub use bounds::{MaybeSend, MaybeSendFuture, MaybeSendSync, Shared, WeakShared};
#[cfg(feature = "test-util")]
pub use sim::SimExecutor;

use core::{fmt::Debug, time::Duration};

use crate::machine::Now;

/// What a lease manager needs of the world it runs in.
///
/// # Behavior
/// * [`now`](Self::now) MUST read a monotonic clock that all executors of one process share, and that goes on during
///   suspend where the platform has one.
/// * [`spawn`](Self::spawn) MUST run the task to its end, and MAY run it on any thread natively.
/// * [`sleep`](Self::sleep) MUST NOT end early; dropping its future MUST cancel the timer.
/// * [`random`](Self::random) MUST draw from a source that no two contexts share the state of.
pub trait Executor: MaybeSendSync + Debug + 'static {
    /// Reads both clocks.
    fn now(&self) -> Now;

    /// Runs a task in the background.
    fn spawn(&self, task: MaybeSendFuture<'static, ()>);

    /// Waits at least this long.
    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()>;

    /// Draws 128 random bits: the name of an incarnation.
    fn random(&self) -> u128;
}
