//! The checks before a request.

use core::{
    future::poll_fn,
    task::{Context, Poll},
};

use super::{Driver, RUNTIME_ENDED, Response};
use crate::client::error::AcquireError;
use crate::executor::{DROPS_TASKS, poll_proceed};
use crate::machine::{Refusal, StoreError, StoreErrorKind};

impl Driver {
    /// Checks that the executor can renew a lease. Call this before a request for one. A refusal lets other tasks go first, as an
    /// answer does.
    pub(crate) fn admit(&self) -> impl Future<Output = Result<(), AcquireError>> {
        // Not an `async fn`, whose future would be larger: each request that waits stores this future.
        let missing = self.executor.check().err();
        poll_fn(move |context| {
            let Some(missing) = missing else { return Poll::Ready(Ok(())) };
            self.poll_proceed(context).map(|()| Err(unsupported(missing)))
        })
    }

    /// Lets other tasks go first if this one has made many requests without a pause.
    pub(crate) fn proceed(&self) -> impl Future<Output = ()> {
        poll_fn(|context| self.poll_proceed(context))
    }

    pub(crate) fn poll_proceed(&self, context: &mut Context<'_>) -> Poll<()> {
        poll_proceed(&*self.executor, context)
    }

    /// Checks that a lease that is requested here can be renewed, which needs tasks and timers.
    pub(crate) fn check(&self) -> Result<(), AcquireError> {
        self.executor.check().map_err(unsupported)
    }

    /// Whether a request failed only because the runtime that ran its timers has ended, and can be made again in the runtime that polls it.
    pub(crate) fn can_go_on_after(&self, response: Option<&Response>) -> bool {
        let Some(Response::Failed(Refusal::Store(error))) = response else { return false };
        DROPS_TASKS && error.message == RUNTIME_ENDED && self.executor.check().is_ok()
    }
}

/// The error for what the executor lacks.
fn unsupported(sentence: &'static str) -> AcquireError {
    AcquireError::Unsupported(StoreError::permanent(StoreErrorKind::Unsupported, sentence))
}
