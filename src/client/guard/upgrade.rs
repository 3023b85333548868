//! How a shared lease becomes an exclusive one.

use alloc::boxed::Box;

use super::LeaseGuard;
use crate::client::error::AcquireError;
use crate::driver::Response;
use crate::machine::{Input, Refusal, TurnId};

impl LeaseGuard {
    /// Turns a shared lease into an exclusive one: waits until all others who share the key have released it, ahead of everybody in the
    /// queue. Meanwhile the lease stays shared. Then it gets a new, larger token. If the lease was requested with
    /// [`share_in_process`](crate::LeaseRequest::share_in_process), later shared requests of this manager that also set it join the lease
    /// even after the upgrade. If the lease is already exclusive, and no other guard of this manager has joined it, the call returns at once.
    /// It does not wait for fenced transactions of guards that had joined it before.
    ///
    /// # Errors
    /// [`AcquireError::UpgradeConflict`] if another holder that shares the key is already upgrading: both would wait for ever. Release the
    /// guard, so that the other holder can continue. The error is the same if the lease is already exclusive and other guards of this
    /// manager have joined it, or if an earlier upgrade of this guard or of a clone is under way. [`AcquireError::Lost`] if the lease is
    /// lost, [`AcquireError::Released`] if this guard was released, and the store's error if the store fails.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lease shared.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, Mode, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").shared().acquire().await?;
    /// let shared = guard.token();
    /// guard.upgrade().await?;
    /// assert!(guard.mode() == Mode::Exclusive && guard.token() > shared);
    /// # Ok(()) }
    /// ```
    pub async fn upgrade(&self) -> Result<(), AcquireError> {
        self.driver.proceed().await;
        self.upgraded().await.map_err(|refused| *refused)
    }

    pub(crate) async fn upgraded(&self) -> Result<(), Box<AcquireError>> {
        if self.is_given_back() {
            return Err(self.loss().into());
        }
        let (turn, slot) = (self.fate.turn, self.fate.slot.clone());
        let mut upgrading = Upgrading { guard: self, query: None };
        let (_, answer) = self.driver.ask(|query| {
            upgrading.query = Some(query);
            Input::Upgrade { query, turn, slot }
        });
        let response = answer.await;
        let told = matches!(response, Some(Response::Upgraded));
        // As with a new guard: success is reported only if the lease is valid at this moment.
        let held = if told && !self.is_valid() { self.verify().await.map_err(AcquireError::from)? } else { true };
        // Otherwise the lease is shared again, for clones of a guard that was released meanwhile.
        if held {
            upgrading.query = None;
        }
        match response {
            Some(Response::Upgraded) if held => {
                self.fate.state().untold_upgrades.clear();
                Ok(())
            }
            Some(Response::Upgraded) => Err(self.loss().into()),
            // The machine does not know why it no longer has a lease.
            Some(Response::Failed(refusal)) if matches!(refusal, Refusal::Lost(_)) || self.told_loss().is_some() => {
                Err(self.loss().into())
            }
            Some(Response::Failed(refusal)) => Err(AcquireError::refused(refusal, self.key()).into()),
            _ => Err(AcquireError::Closed.into()),
        }
    }
}

/// An upgrade under way. If this is dropped before it is settled, the upgrade is given up.
struct Upgrading<'a> {
    guard: &'a LeaseGuard,
    /// `None` once it is settled.
    query: Option<TurnId>,
}

impl Drop for Upgrading<'_> {
    fn drop(&mut self) {
        if let Some(query) = self.query {
            self.guard.driver.abandon_upgrade(query, &self.guard.fate);
        }
    }
}
