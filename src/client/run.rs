//! Work under a lease, as a closure.

use alloc::{string::String, vec::Vec};
use core::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use crate::client::error::AcquireError;
use crate::client::fate::LeaseState;
use crate::client::guard::LeaseGuard;
use crate::client::request::{LeaseRequest, OnLoss};
use crate::client::wish::unknown;
use crate::machine::{LostReason, Mode, ReleaseOutcome, StoreError};

/// The outcome of work under a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran<T> {
    /// What the work returned.
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
    /// As for [`acquire`](Self::acquire); and [`AcquireError::Lost`] if the lease was lost and the request chose [`OnLoss::Abort`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lease.
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

    /// Like [`run`](Self::run), but tries once. If the key is taken, it returns `None` and does not begin the work.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lease.
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
        OnLoss::Abort => while_held(guard, work).await?,
    };
    let lost = match guard.release().await {
        Ok(ReleaseOutcome::Released) => None,
        // A release that got no answer does not tell whether the lease was held before.
        outcome => guard.told_loss().or_else(|| outcome.is_ok().then_some(LostReason::Expired)),
    };
    Ok(Ran { value, lost })
}

/// Polls the work, and drops it when the lease is lost or has been in doubt for too long. After a freeze, the work is not polled before the
/// store has confirmed the lease, because another context may hold the lease by then.
pub(crate) async fn while_held<T>(guard: &LeaseGuard, work: impl Future<Output = T>) -> Result<T, AcquireError> {
    guard.end_work_with_lease();
    let (mut end, mut work) = (pin!(end(guard)), pin!(work));
    poll_fn(|context| {
        if let Poll::Ready(reason) = end.as_mut().poll(context) {
            return Poll::Ready(Err(guard.lost_by(reason)));
        }
        // `end` wakes this task when the doubt ends.
        if guard.is_overdue() { Poll::Pending } else { work.as_mut().poll(context).map(Ok) }
    })
    .await
}

/// How often to look at a released lease. Its state no longer ends the work.
const LONG: Duration = Duration::from_secs(3_600);

/// Why the work has to end. A holder that cannot reach the store does not learn of a loss, so a doubt that lasts counts as a loss.
async fn end(guard: &LeaseGuard) -> LostReason {
    let mut watch = guard.watch();
    let mut state = watch.state();
    loop {
        let limit = match state {
            LeaseState::Lost(reason) => return reason,
            LeaseState::Suspect => guard.driver().longest_doubt(),
            LeaseState::Held => guard.remaining(),
            LeaseState::Released => LONG,
        };
        state = match guard.driver().within(limit, watch.changed()).await {
            Some(state) => state,
            None if state == LeaseState::Released => state,
            None if !guard.remaining().is_zero() => LeaseState::Held,
            None if state == LeaseState::Suspect => return LostReason::Expired,
            // The guard may not know of the loss: the runtime that renewed the lease may have ended.
            None => LeaseState::Suspect,
        };
    }
}

/// Waits until the store has answered. Until then, a campaign would fail.
async fn settled(guard: &LeaseGuard) -> Result<(), AcquireError> {
    let mut watch = guard.watch();
    let mut state = watch.state();
    while state == LeaseState::Suspect {
        state = watch.changed().await;
    }
    if state == LeaseState::Lost(LostReason::Closed) { Err(AcquireError::Closed) } else { Ok(()) }
}

impl LeaseRequest {
    /// Campaigns for the key with the options of this request, leads as long as the lease is held, and after a loss campaigns again, for a
    /// new guard with a larger token. The work is dropped when the lead is lost, and starts again with the next lead. When the work ends,
    /// `elect` releases the lead and returns what the work returned. But a clone of the guard that escapes the work keeps the key, which is
    /// free when the last clone is released or dropped.
    ///
    /// A leader that cannot reach the store does not learn of a loss. So the work is also dropped if the lease is in doubt and the store
    /// does not answer within a twentieth of the lease (at least 50 ms). As long as the store loses nothing, no other context leads before
    /// the work is dropped, unless the lead is [stolen](LeaseRequest::steal), a connection that carries this context's beacon ends
    /// (PostgreSQL), or this context was frozen for longer than the lease. After a freeze, the work is not polled again before the store
    /// has confirmed the lease. `elect` campaigns again as soon as the store answers.
    ///
    /// The future can be spawned. The work may borrow from the scope of the call, as `async |lease| …` does. If the work must own what it
    /// captures, clone that for each lead: `move |lease| { let job = job.clone(); async move { … } }`.
    ///
    /// If the store fails but trying again may help, `elect` continues to campaign, provided that the store has answered this manager
    /// before and the request has no [`timeout`](Self::timeout). With the feature `tracing`, a warning names each cause once before each
    /// lead. The work owns its guard, since each lead has another one, while [`run`](Self::run) lends its guard.
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
        let mut causes = Causes::default();
        loop {
            let Some(guard) = self.campaign(&mut causes).await? else { continue };
            causes = Causes::default();
            match while_held(&guard, work(guard.clone())).await {
                Ok(value) => {
                    // However the release ends, the work is done.
                    let _ = guard.release().await;
                    return Ok(value);
                }
                Err(_) => settled(&guard).await?,
            }
            // After a loss, the lead has to be won again. A lease that was only in doubt goes to the next waiter.
        }
    }

    /// One campaign; `None` if it failed because of the store, and `elect` is to campaign again.
    async fn campaign(&self, causes: &mut Causes) -> Result<Option<LeaseGuard>, AcquireError> {
        let campaigned = self.clone().acquire().await;
        let waits = self.wish.timeout.is_none() && self.driver.has_heard_of_store();
        match campaigned {
            Err(AcquireError::Store(error)) if error.retry && waits => {
                if causes.note(&error) {
                    self.tell_of_outage(&error.message);
                }
                Ok(None)
            }
            campaigned => campaigned.map(Some),
        }
    }
}

/// The causes of failed campaigns since the last lead. The store may refuse for hours, and a log should name each cause once, not for each
/// attempt.
#[derive(Default)]
struct Causes(Vec<String>);

impl Causes {
    /// No more than this are reported: a message with a number in it may differ at each attempt.
    const MOST: usize = 8;

    /// Remembers a cause. Returns whether to warn of it.
    fn note(&mut self, error: &StoreError) -> bool {
        let is_new = self.0.len() < Self::MOST && !self.0.contains(&error.message);
        if is_new {
            self.0.push(error.message.clone());
        }
        is_new
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
