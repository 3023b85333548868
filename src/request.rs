//! A request for a lease.

use alloc::string::String;
use core::time::Duration;

use futures::channel::oneshot;

use crate::driver::{Driver, Reaction};
use crate::error::AcquireError;
use crate::executor::Shared;
use crate::guard::LeaseGuard;
use crate::machine::{InvalidKey, Key, Monotonic, TurnId, whole_ms};

/// A request for the lease of one key, made by [`LeaseManager::lock`](crate::LeaseManager::lock). Nothing happens until
/// [`acquire`](Self::acquire) or [`try_acquire`](Self::try_acquire).
#[derive(Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LeaseRequest {
    driver: Shared<Driver>,
    key: Result<Key, InvalidKey>,
    timeout: Option<Duration>,
    info: String,
}

impl LeaseRequest {
    pub(crate) fn new(driver: Shared<Driver>, key: Result<Key, InvalidKey>) -> Self {
        Self { driver, key, timeout: None, info: String::new() }
    }

    /// Waits at most this long (whole ms, rounded up); zero tries once. Without it, waits for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// What the holder says of itself, for whoever looks at the [status](crate::LeaseManager::status).
    pub fn info(mut self, info: impl Into<String>) -> Self {
        self.info = info.into();
        self
    }

    /// Waits for the lease: first come, first served.
    ///
    /// # Errors
    /// [`AcquireError`]: the time-out passed, the manager was closed, the key is none, or the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue, or the lease if it was granted in that moment. A later
    /// request queues at the end.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").acquire().await?;
    /// println!("write with token {}", guard.token().as_u64());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(self) -> Result<LeaseGuard, AcquireError> {
        let once = self.timeout.is_some_and(|timeout| timeout.is_zero());
        let granted = if once { self.ask(false).await? } else { self.ask(true).await? };
        granted.ok_or(AcquireError::Timeout)
    }

    /// Tries once: `None` if the key is taken.
    ///
    /// # Errors
    /// [`AcquireError`]: the manager was closed, the key is none, or the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let held = leases.lock("notes").acquire().await?;
    /// assert!(leases.lock("notes").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(self) -> Result<Option<LeaseGuard>, AcquireError> {
        self.ask(false).await
    }

    async fn ask(self, wait: bool) -> Result<Option<LeaseGuard>, AcquireError> {
        let Self { driver, key, timeout, info } = self;
        let key = key?;
        let deadline = if wait { deadline(&driver, timeout) } else { None };
        loop {
            let granted = Pending::start(&driver, &key, wait, deadline, &info).settle().await?;
            let Some(guard) = granted else { return Ok(None) };
            // A context that was frozen between the grant and this moment learns of a loss before its code goes on.
            if guard.is_valid() || (guard.verify().await == Ok(true) && guard.is_valid()) {
                return Ok(Some(guard));
            }
        }
    }
}

fn deadline(driver: &Driver, timeout: Option<Duration>) -> Option<Monotonic> {
    // Rounded up: a wait of less than a millisecond is still a wait.
    let timeout_ms = whole_ms(timeout?.saturating_add(Duration::from_nanos(999_999)));
    Some(driver.executor.now().monotonic.plus(timeout_ms))
}

/// A request under way. Dropped before it is settled, it is abandoned.
struct Pending {
    driver: Shared<Driver>,
    turn: TurnId,
    key: Key,
    answer: oneshot::Receiver<Reaction>,
    settled: bool,
}

impl Pending {
    fn start(driver: &Shared<Driver>, key: &Key, wait: bool, deadline: Option<Monotonic>, info: &str) -> Self {
        let (turn, answer) = driver.request(key.clone(), wait, deadline, info.into());
        Self { driver: driver.clone(), turn, key: key.clone(), answer, settled: false }
    }

    async fn settle(mut self) -> Result<Option<LeaseGuard>, AcquireError> {
        let reaction = (&mut self.answer).await;
        self.settled = true;
        match reaction {
            Ok(Reaction::Granted(token, fate)) => {
                Ok(Some(LeaseGuard::new(self.driver.clone(), self.turn, self.key.clone(), token, fate)))
            }
            Ok(Reaction::Busy) => Ok(None),
            Ok(Reaction::Failed(refusal)) => Err(refusal.into()),
            // The machine answers every request; a dropped sender means that the manager is gone.
            Ok(Reaction::Verified(_) | Reaction::Status(_)) | Err(oneshot::Canceled) => Err(AcquireError::Closed),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.settled {
            self.driver.abandon(self.turn, self.key.clone());
        }
    }
}
