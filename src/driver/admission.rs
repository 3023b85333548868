//! What comes before a request.

use super::Driver;
use crate::client::error::AcquireError;
use crate::executor::proceed;
use crate::machine::{StoreError, StoreErrorKind};

impl Driver {
    /// Lets other tasks run, then checks that the executor can renew a lease. Call this before a request for one.
    pub(crate) async fn admit(&self) -> Result<(), AcquireError> {
        self.proceed().await;
        self.check()
    }

    /// Lets other tasks go first if this one has made many requests without a pause.
    pub(crate) fn proceed(&self) -> impl Future<Output = ()> {
        proceed(&*self.executor)
    }

    /// Whether what is asked for here can be kept up: renewals need tasks and timers.
    pub(crate) fn check(&self) -> Result<(), AcquireError> {
        let missing =
            |sentence| AcquireError::Unsupported(StoreError::permanent(StoreErrorKind::Unsupported, sentence));
        self.executor.check().map_err(missing)
    }
}
