//! The signal mask. CHLD tells leasehold that its command has ended: whoever started leasehold may have left CHLD blocked. XFSZ comes
//! when a file may not grow, and would end leasehold without a message: while it is blocked, the write fails with an error instead.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

use super::codes::Failure;

/// Whether CHLD was blocked when this process began.
static WAS_DEAF: AtomicBool = AtomicBool::new(false);
/// Whether XFSZ was blocked then.
static WAS_SAFE: AtomicBool = AtomicBool::new(false);

/// Unblocks CHLD and blocks XFSZ, for this thread and those that it starts.
pub(crate) fn let_us_hear() -> Result<(), Failure> {
    let refused = |why| Failure::system(format!("cannot change the signal mask: {why}"));
    let before = SigSet::thread_get_mask().map_err(refused)?;
    WAS_DEAF.store(before.contains(Signal::SIGCHLD), Ordering::Relaxed);
    WAS_SAFE.store(before.contains(Signal::SIGXFSZ), Ordering::Relaxed);
    only(Signal::SIGCHLD).thread_unblock().and_then(|()| only(Signal::SIGXFSZ).thread_block()).map_err(refused)
}

/// Starts a process with both signals as this one found them: a command inherits the mask of the thread that starts it.
pub(crate) fn as_it_was<T>(start: impl FnOnce() -> T) -> T {
    let (was_deaf, was_safe) = (WAS_DEAF.load(Ordering::Relaxed), WAS_SAFE.load(Ordering::Relaxed));
    // A change of the mask fails for invalid arguments only.
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
