//! Work under a lease, as a closure.

use core::pin::pin;

use futures::future::{Either, select};

use crate::client::error::AcquireError;
use crate::client::guard::LeaseGuard;
use crate::client::request::{LeaseRequest, OnLoss, unknown};
use crate::machine::{LostReason, Mode, ReleaseOutcome};

/// What became of work under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran<T> {
    /// What the work gave.
    pub value: T,
    /// Why the lease was lost before the work ended, if it was.
    pub lost: Option<LostReason>,
}

impl LeaseRequest {
    /// Waits for the lease, does the work, releases the lease. The work is polled in place: never boxed, never spawned.
    ///
    /// A clone of the guard that escapes the work keeps the key: it is free when the last clone is released or dropped.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); and [`AcquireError::Lost`] if the lease was lost and the request said
    /// [`OnLoss::Abort`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives the lease back.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let ran = leases.lock("notes").run(async |lease| lease.token()).await?;
    /// assert!(ran.value.as_u64() > 0 && ran.lost.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(mut self, work: impl AsyncFnOnce(&LeaseGuard) -> T) -> Result<Ran<T>, AcquireError> {
        let on_loss = self.on_loss.take().unwrap_or_default();
        let guard = self.acquire().await?;
        ran(&guard, on_loss, work(&guard)).await
    }

    /// Like [`run`](Self::run), but tries once: `None` if the key is taken, and the work is not begun.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and gives the lease back.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let held = leases.lock("notes").acquire().await?;
    /// assert!(leases.lock("notes").try_run(async |_| ()).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_run<T>(
        mut self,
        work: impl AsyncFnOnce(&LeaseGuard) -> T,
    ) -> Result<Option<Ran<T>>, AcquireError> {
        let on_loss = self.on_loss.take().unwrap_or_default();
        let Some(guard) = self.try_acquire().await? else { return Ok(None) };
        ran(&guard, on_loss, work(&guard)).await.map(Some)
    }
}

async fn ran<T>(guard: &LeaseGuard, on_loss: OnLoss, work: impl Future<Output = T>) -> Result<Ran<T>, AcquireError> {
    let value = match on_loss {
        OnLoss::Notify => work.await,
        OnLoss::Abort => unless_lost(guard, work).await?,
    };
    let lost = match guard.release().await {
        Ok(ReleaseOutcome::Released) => None,
        // A release that got no answer says nothing of the time before it.
        outcome => guard.told_loss().or_else(|| outcome.is_ok().then_some(LostReason::Expired)),
    };
    Ok(Ran { value, lost })
}

/// Polls the work until the lease is lost: then it is dropped.
pub(crate) async fn unless_lost<T>(guard: &LeaseGuard, work: impl Future<Output = T>) -> Result<T, AcquireError> {
    match select(pin!(guard.lost()), pin!(work)).await {
        Either::Left((reason, _)) => Err(guard.lost_by(reason)),
        Either::Right((value, _)) => Ok(value),
    }
}

impl LeaseRequest {
    /// Campaigns for the key as this request asks for it, leads as long as the lease is held, and campaigns anew after a
    /// loss, with a new guard and a larger token. The work is dropped when the lead is lost, and begun again with the next
    /// one. When the work ends, `elect` releases the lead and returns what the work returned. A clone of the guard that escapes
    /// the work keeps the key, though: it is free when the last clone is released or dropped.
    ///
    /// The future can be spawned. The work may borrow what lives around the call, as `async |lease| …` does. If the work is
    /// to own what it captures, it clones that for each lead: `move |lease| { let job = job.clone(); async move { … } }`.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); a [`timeout`](Self::timeout) limits each campaign, not the lead.
    /// [`InvalidOptions`](crate::InvalidOptions) for a request that is [`shared`](Self::shared), or has an
    /// [`on_loss`](Self::on_loss).
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lease.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let campaign = leases.lock("leader").info("node 7").elect(async |lease| lease.token());
    /// assert!(campaign.await?.as_u64() > 0);
    /// # Ok(()) }
    /// ```
    pub async fn elect<T, F>(self, mut work: impl FnMut(LeaseGuard) -> F) -> Result<T, AcquireError>
    where
        F: Future<Output = T>,
    {
        if self.on_loss.is_some() {
            return Err(unknown("on_loss", "leave it out: `elect` drops the work of a lost lead").into());
        }
        if self.wish.mode == Mode::Shared {
            return Err(unknown("shared", "leave it out: one context leads").into());
        }
        loop {
            let guard = self.clone().acquire().await?;
            match unless_lost(&guard, work(guard.clone())).await {
                Ok(value) => {
                    // However the release ends, the work is done.
                    let _ = guard.release().await;
                    return Ok(value);
                }
                Err(AcquireError::Lost { reason: LostReason::Closed, .. }) => return Err(AcquireError::Closed),
                // A lost lead is won anew, never revived.
                Err(_) => {}
            }
        }
    }
}

impl crate::LeaseManager {
    /// Campaigns for a key, and leads while its lease is held: as [`LeaseRequest::elect`], with no other option chosen.
    ///
    /// # Errors
    /// [`AcquireError`]: the manager was closed, the key is invalid, or the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lease.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let term = leases.elect("leader", async |lease| lease.token()).await?;
    /// # assert!(term.as_u64() > 0);
    /// # Ok(()) }
    /// ```
    pub async fn elect<T, F>(&self, key: &str, work: impl FnMut(LeaseGuard) -> F) -> Result<T, AcquireError>
    where
        F: Future<Output = T>,
    {
        self.lock(key).elect(work).await
    }
}
