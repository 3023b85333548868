//! Work that is handed to the store's runtime: either it begins there, or its caller gives it up before that.

use core::{
    pin::pin,
    sync::atomic::{AtomicU8, Ordering::SeqCst},
    time::Duration,
};

use futures::future::{Either, select};
use tokio::{
    runtime::Handle,
    sync::Notify,
    task::{JoinError, JoinHandle},
    time::timeout,
};

use crate::executor::timers_run_here;
use crate::machine::StoreError;

/// Work that waits for its turn.
const WAITS: u8 = 0;
const BEGAN: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Either the work begins, or its caller gives it up: never both, so a caller that gave up knows that nothing was written.
#[derive(Debug, Default)]
pub(super) struct Begin {
    state: AtomicU8,
    began: Notify,
}

impl Begin {
    /// Begins, unless the caller gave up.
    pub(super) fn begin(&self) -> bool {
        let begins = self.state.compare_exchange(WAITS, BEGAN, SeqCst, SeqCst).is_ok();
        self.began.notify_one();
        begins
    }

    pub(super) fn has_begun(&self) -> bool {
        self.state.load(SeqCst) == BEGAN
    }

    /// Awaits the task of the work, and gives the work up if it has not begun within this time. Where the caller's runtime has no timers,
    /// it waits for as long as the caller polls it.
    ///
    /// # Errors
    /// [`StoreError`] if the work did not begin in time: now it never will.
    pub(super) async fn watch<T>(
        &self,
        task: JoinHandle<T>,
        limit: Duration,
    ) -> Result<Result<T, JoinError>, StoreError> {
        if Handle::try_current().is_err() || cfg!(not(panic = "unwind")) || !timers_run_here() {
            return Ok(task.await);
        }
        match select(task, pin!(timeout(limit, self.began.notified()))).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right((Err(_), _)) if self.gives_up() => Err(stalled()),
            Either::Right((_, task)) => Ok(task.await),
        }
    }

    fn gives_up(&self) -> bool {
        self.state.compare_exchange(WAITS, GIVEN_UP, SeqCst, SeqCst).is_ok()
    }
}

/// The error for a caller that gave up.
pub(super) fn stalled() -> StoreError {
    StoreError::transient(
        "nothing runs in the tokio runtime in which the store was connected: no thread is inside its block_on, or one blocks it; drive that \
         runtime, or connect another store in a runtime that runs, such as a multi-thread one",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_never_begins() {
        let begin = Begin::default();
        assert!(begin.gives_up());
        assert!(!begin.begin() && !begin.has_begun());
    }

    #[test]
    fn what_began_is_not_given_up() {
        let begin = Begin::default();
        assert!(begin.begin() && begin.has_begun());
        assert!(!begin.gives_up());
    }
}
