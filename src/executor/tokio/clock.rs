//! The clocks of this process.

use core::cell::Cell;
use std::{
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

use boot_time::Instant;

use crate::machine::{Monotonic, Now, Wall, whole_ms};

/// Reads the clock that continues while the machine is suspended. On Windows that is the standard library's own.
#[cfg_attr(windows, expect(clippy::disallowed_methods, reason = "an executor is where clocks are read"))]
pub(super) fn instant() -> Instant {
    Instant::now()
}

/// The moment when this process first asked for the time. All executors share it.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(instant)
}

thread_local! {
    /// The time that this thread read last.
    static LAST_READ: Cell<Option<Now>> = const { Cell::new(None) };
}

/// Reads the clocks of this process, which every [`TokioExecutor`](super::TokioExecutor) reads: the monotonic one counts from the first
/// reading, and continues while the machine is suspended. A thread reads the wall clock at most once per millisecond of the monotonic clock.
///
/// If an [`Executor`](super::Executor) of your own shares a store with a `TokioExecutor`, let its [`now`](super::Executor::now) return this.
/// A store such as `MemoryStore` compares the times of all its callers, so by another clock it might consider a living holder dead.
///
/// ```
/// use leasehold::executor::{Executor, TokioExecutor, process_clock};
/// let earlier = process_clock();
/// assert!(TokioExecutor::new().now().monotonic >= earlier.monotonic);
/// ```
#[expect(clippy::disallowed_methods, reason = "an executor is where clocks are read")]
pub fn process_clock() -> Now {
    let monotonic = Monotonic::from_ms(whole_ms(origin().elapsed()));
    let read_both = || {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { monotonic, wall: Wall::from_ms(whole_ms(wall)) }
    };
    let now = LAST_READ.get().filter(|last| last.monotonic == monotonic).unwrap_or_else(read_both);
    LAST_READ.set(Some(now));
    now
}
