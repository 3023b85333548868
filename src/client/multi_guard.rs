//! The leases of several keys in one hand.

use alloc::vec::Vec;
use core::future::Future;

use futures::future::{join_all, select_all};

use crate::client::guard::LeaseGuard;
use crate::machine::{LostReason, ReleaseOutcome, StoreError, Token};

/// The leases of several keys. Dropping it releases all of them.
#[derive(Debug)]
#[must_use = "the leases are released when the guard is dropped"]
pub struct MultiGuard {
    guards: Vec<LeaseGuard>,
}

impl MultiGuard {
    pub(super) fn new(guards: Vec<LeaseGuard>) -> Self {
        Self { guards }
    }

    /// The guards, by key.
    pub fn guards(&self) -> &[LeaseGuard] {
        &self.guards
    }

    /// Splits it into the guards, each on its own.
    pub fn into_guards(self) -> Vec<LeaseGuard> {
        self.guards
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.guards.iter().map(LeaseGuard::key)
    }

    /// The fencing token of a key, if it is one of these.
    pub fn token(&self, key: &str) -> Option<Token> {
        self.guards.iter().find(|guard| guard.key() == key).map(LeaseGuard::token)
    }

    /// Whether all leases are held, by this context's own clock and with a margin.
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(LeaseGuard::is_valid)
    }

    /// Asks the store whether all leases are still held, and renews them. Returns false if one of them is lost or released.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer for one of them: then it is unknown whether that one is held.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: renewals under way go on.
    pub async fn verify(&self) -> Result<bool, StoreError> {
        let verified: Result<Vec<_>, _> =
            join_all(self.guards.iter().map(LeaseGuard::verify)).await.into_iter().collect();
        Ok(verified?.into_iter().all(|held| held))
    }

    /// Waits until one of the leases is lost, and returns the reason; pending for ever after a normal release.
    ///
    /// # Cancel safety
    /// Cancel safe: every later call returns the loss, too.
    pub fn lost(&self) -> impl Future<Output = LostReason> + use<> {
        let lost: Vec<_> = self.guards.iter().map(LeaseGuard::lost).collect();
        async move { select_all(lost).await.0 }
    }

    /// Releases all leases. The outcome is [`Lost`](ReleaseOutcome::Lost) if one of them was lost.
    ///
    /// # Errors
    /// [`StoreError`] if the store did not answer for one of them; that one expires by itself.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release.
    pub fn release(&self) -> impl Future<Output = Result<ReleaseOutcome, StoreError>> + use<> {
        let releases: Vec<_> = self.guards.iter().map(LeaseGuard::release).collect();
        async move {
            let outcomes: Result<Vec<_>, _> = join_all(releases).await.into_iter().collect();
            let lost = outcomes?.contains(&ReleaseOutcome::Lost);
            Ok(if lost { ReleaseOutcome::Lost } else { ReleaseOutcome::Released })
        }
    }
}
