//! CHLD tells leasehold that its command has ended. Whoever started leasehold may have left it blocked.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use super::codes::Failure;

/// Whether it was blocked when this process began.
static WAS_BLOCKED: AtomicBool = AtomicBool::new(false);

/// From here on this process hears it.
pub(crate) fn let_us_hear() -> Result<(), Failure> {
    let refused = |why| Failure::system(format!("cannot unblock SIGCHLD: {why}"));
    let before = SigSet::thread_get_mask().map_err(refused)?;
    WAS_BLOCKED.store(before.contains(Signal::SIGCHLD), Ordering::Relaxed);
    masked().thread_unblock().map_err(refused)
}

/// Starts a process with CHLD as this one found it: a command inherits the mask of the thread that starts it.
pub(crate) fn as_it_was<T>(start: impl FnOnce() -> T) -> T {
    if !WAS_BLOCKED.load(Ordering::Relaxed) {
        return start();
    }
    // Both fail for invalid arguments only.
    let _ = masked().thread_block();
    let started = start();
    let _ = masked().thread_unblock();
    started
}

fn masked() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set
}
