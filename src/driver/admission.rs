//! What comes before a request.

use core::{
    future::poll_fn,
    task::{Context, Poll},
};

use super::Driver;
use crate::client::error::AcquireError;
use crate::executor::poll_proceed;
use crate::machine::{StoreError, StoreErrorKind};

impl Driver {
    /// Checks that the executor can renew a lease. Call this before a request for one. A refusal lets other tasks go first, as an
    /// answer does.
    pub(crate) async fn admit(&self) -> Result<(), AcquireError> {
        let checked = self.check();
        if checked.is_err() {
            self.proceed().await;
        }
        checked
    }

    /// Lets other tasks go first if this one has made many requests without a pause.
    pub(crate) fn proceed(&self) -> impl Future<Output = ()> {
        poll_fn(|context| self.poll_proceed(context))
    }

    pub(crate) fn poll_proceed(&self, context: &mut Context<'_>) -> Poll<()> {
        poll_proceed(&*self.executor, context)
    }

    /// Whether what is asked for here can be kept up: renewals need tasks and timers.
    pub(crate) fn check(&self) -> Result<(), AcquireError> {
        let missing =
            |sentence| AcquireError::Unsupported(StoreError::permanent(StoreErrorKind::Unsupported, sentence));
        self.executor.check().map_err(missing)
    }
}
