//! The lease manager: one context's door to a store.

use core::time::Duration;

use crate::driver::{Driver, Reaction};
use crate::error::AcquireError;
use crate::executor::{Executor, Shared};
use crate::machine::{Config, Incarnation, Input, InvalidOptions, Key, Options, Outcome, StoreErrorKind};
use crate::request::LeaseRequest;
use crate::signal::{self, Signals};
use crate::status::LeaseStatus;
use crate::store::Store;

/// One context's door to the leases of a store. Clones are the same context.
///
/// Each manager is an *incarnation*: its leases are its own, and end with it.
///
/// ```
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
/// let guard = leases.lock("notes").acquire().await?;
/// assert!(guard.is_valid());
/// guard.release().await?;
/// leases.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LeaseManager {
    driver: Shared<Driver>,
}

/// Builds a [`LeaseManager`]. What is not chosen follows from the lease.
#[derive(Debug)]
#[must_use = "nothing happens until it is built"]
pub struct LeaseManagerBuilder {
    store: Shared<dyn Store>,
    executor: Shared<dyn Executor>,
    signals: Option<Shared<dyn Signals>>,
    options: Options,
}

impl LeaseManager {
    /// Starts building a manager.
    pub fn builder(store: impl Store, executor: impl Executor) -> LeaseManagerBuilder {
        LeaseManagerBuilder {
            store: Shared::new(store),
            executor: Shared::new(executor),
            signals: None,
            options: Options::default(),
        }
    }

    /// A request for the lease of this key: 1 to 1024 UTF-16 units. A name that is no key is told by `acquire`.
    pub fn lock(&self, key: &str) -> LeaseRequest {
        LeaseRequest::new(self.driver.clone(), Key::new(key))
    }

    /// The name of this context's incarnation, as records show it.
    pub fn incarnation(&self) -> Incarnation {
        self.driver.incarnation()
    }

    /// Looks at a key: who holds it, who waits.
    ///
    /// # Errors
    /// [`AcquireError`] if the name is no key, the record cannot be read, or the store failed.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").info("tab 1").acquire().await?;
    /// let status = leases.status("notes").await?;
    /// assert_eq!(status.holders[0].info, "tab 1");
    /// # Ok(()) }
    /// ```
    pub async fn status(&self, key: &str) -> Result<LeaseStatus, AcquireError> {
        let key = Key::new(key)?;
        let (_, answer) = self.driver.ask(|query| Input::Inspect { query, key: key.clone() });
        match answer.await {
            Ok(Reaction::Status(Ok(Outcome::Status { last_token, grants, queue }))) => {
                Ok(LeaseStatus::new(self.incarnation(), key, last_token, grants, queue))
            }
            Ok(Reaction::Status(Ok(Outcome::Unreadable(unreadable)))) => Err(unreadable.into()),
            Ok(Reaction::Status(Err(error))) if error.kind != StoreErrorKind::Closed => Err(error.into()),
            _ => Err(AcquireError::Closed),
        }
    }

    /// Refuses new requests, withdraws the waiting ones, releases what is held, and lets go of the store. Guards that
    /// live on are [lost](crate::LeaseGuard::lost) with [`LostReason::Closed`](crate::LostReason::Closed).
    ///
    /// It ends within two store time-outs, whatever the store does. Closing twice is closing once.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the closing, but the store may stay open.
    pub async fn close(&self) {
        if let Some(closed) = self.driver.close() {
            // Either all is released, or the driver is gone, and its leases with it.
            let _ = closed.await;
            self.driver.store.close().await;
        }
    }
}

impl LeaseManagerBuilder {
    /// How long a lease lasts without renewal: 1 s to 24 h, 20 s unless chosen.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How often leases are renewed: at least 100 ms, a quarter of the lease unless chosen.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.options.heartbeat = Some(heartbeat);
        self
    }

    /// The time limit of one store operation: a quarter of the lease, at most 5 s, unless chosen.
    pub fn store_timeout(mut self, limit: Duration) -> Self {
        self.options.store_timeout = Some(limit);
        self
    }

    /// How often the context may hand a lease from one local request to the next while another context waits.
    pub fn max_local_handoffs(mut self, handoffs: u32) -> Self {
        self.options.max_local_handoffs = handoffs;
        self
    }

    /// How long the context may go on handing a lease on locally while another context waits.
    pub fn max_tenure(mut self, tenure: Duration) -> Self {
        self.options.max_tenure = tenure;
        self
    }

    /// Whether to keep up a sign of life where the platform has one. Without it a dead holder is replaced after a
    /// lease instead of at once.
    pub fn beacon(mut self, beacon: bool) -> Self {
        self.options.beacon = beacon;
        self
    }

    /// Other signals than the platform's own.
    pub fn signals(mut self, signals: impl Signals) -> Self {
        self.signals = Some(Shared::new(signals));
        self
    }

    /// Checks the options and builds the manager. Nothing is opened before the first request.
    ///
    /// # Errors
    /// [`InvalidOptions`] names the value that does not fit, and the remedy.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, InvalidOptions, executor::TokioExecutor, store::MemoryStore};
    /// # use std::time::Duration;
    /// let refused = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).lease(Duration::ZERO).build();
    /// assert_eq!(refused.unwrap_err(), InvalidOptions::Lease { lease_ms: 0 });
    /// ```
    pub fn build(self) -> Result<LeaseManager, InvalidOptions> {
        let config = Config::parse(&self.options)?;
        let signals = self.signals.unwrap_or_else(|| signal::for_reach(&self.store.reach()));
        Ok(LeaseManager { driver: Driver::new(self.store, signals, self.executor, config) })
    }
}
