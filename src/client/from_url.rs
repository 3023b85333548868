//! A manager by the URL of its store.

use crate::client::error::AcquireError;
use crate::client::manager::LeaseManager;
use crate::executor::Executor;
use crate::store;

impl LeaseManager {
    /// Opens the store that a URL names, such as `memory:` or `sqlite:leases.db`, and builds a manager with the defaults of
    /// [`builder`](Self::builder). [`store::from_url`] lists all URLs; use it with a builder to set options.
    ///
    /// # Errors
    /// [`AcquireError::Unsupported`] if there is no store for the URL, or its feature is off; and what opening the store reports.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays open. The store's file or tables may have been created, with SQLite even a moment later.
    ///
    /// ```
    /// use leasehold::{LeaseManager, executor::TokioExecutor};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let leases = LeaseManager::from_url("memory:", TokioExecutor::new()).await?;
    /// let guard = leases.lock("notes").acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn from_url(url: &str, executor: impl Executor) -> Result<Self, AcquireError> {
        Ok(Self::builder(store::from_url(url).await?, executor).build()?)
    }
}
