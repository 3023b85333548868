//! CHLD tells leasehold that its command has ended. Whoever started leasehold may have left it blocked. XFSZ would end leasehold without a
//! word if a file may not grow; blocked, the write fails, and its error is told.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use super::codes::Failure;

/// Whether CHLD was blocked when this process began.
static WAS_DEAF: AtomicBool = AtomicBool::new(false);
/// Whether XFSZ was.
static WAS_SAFE: AtomicBool = AtomicBool::new(false);

/// From here on this process hears of its command, and its writes fail with an error.
pub(crate) fn let_us_hear() -> Result<(), Failure> {
    let refused = |why| Failure::system(format!("cannot change the mask of signals: {why}"));
    let before = SigSet::thread_get_mask().map_err(refused)?;
    WAS_DEAF.store(before.contains(Signal::SIGCHLD), Ordering::Relaxed);
    WAS_SAFE.store(before.contains(Signal::SIGXFSZ), Ordering::Relaxed);
    only(Signal::SIGCHLD).thread_unblock().and_then(|()| only(Signal::SIGXFSZ).thread_block()).map_err(refused)
}

/// Starts a process with both as this one found them: a command inherits the mask of the thread that starts it.
pub(crate) fn as_it_was<T>(start: impl FnOnce() -> T) -> T {
    let (was_deaf, was_safe) = (WAS_DEAF.load(Ordering::Relaxed), WAS_SAFE.load(Ordering::Relaxed));
    // All of them fail for invalid arguments only.
    if was_deaf {
        let _ = only(Signal::SIGCHLD).thread_block();
    }
    if !was_safe {
        let _ = only(Signal::SIGXFSZ).thread_unblock();
    }
    let started = start();
    let _ = only(Signal::SIGCHLD).thread_unblock();
    let _ = only(Signal::SIGXFSZ).thread_block();
    started
}

fn only(signal: Signal) -> SigSet {
    let mut set = SigSet::empty();
    set.add(signal);
    set
}
