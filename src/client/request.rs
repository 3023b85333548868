//! A request for a lease.

use alloc::{boxed::Box, string::String};
use core::{future::Future, time::Duration};

use futures::FutureExt as _;

use crate::client::error::AcquireError;
use crate::client::guard::LeaseGuard;
use crate::client::pending::Pending;
use crate::client::wish::{Wish, unknown};
use crate::driver;
use crate::driver::{Driver, Origin};
use crate::executor::Shared;
use crate::machine::{Applied, Input, InvalidKey, Key, LostReason, Mode, StoreError};

/// A request for the lease of one key, made by [`LeaseManager::lock`](crate::LeaseManager::lock). Nothing happens until you call
/// [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire), [`run`](Self::run) or a similar method.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LeaseRequest {
    pub(crate) driver: Shared<Driver>,
    key: Result<Key, InvalidKey>,
    /// The user's name for the key, if the store uses another one.
    name: Option<String>,
    pub(crate) wish: Wish,
    pub(crate) on_loss: Option<OnLoss>,
}

/// What the loss of a lease does to the work of [`run`](LeaseRequest::run) and [`try_run`](LeaseRequest::try_run).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The work goes on. It can check its guard, and [`Ran::lost`](crate::Ran::lost) reports the loss afterwards.
    #[default]
    Notify,
    /// The work's future is dropped at once. It is also dropped if the lease is in doubt and the store does not answer within a twentieth
    /// of the lease (at least 50 ms); the error then reports the lease as lost, with the reason [`Expired`](crate::LostReason::Expired).
    /// So, as long as the store loses nothing, the work ends before another context is granted the lease, unless the lease is
    /// [stolen](LeaseRequest::steal), a connection that carries this context's beacon ends (PostgreSQL), or this context was frozen for
    /// longer than the lease. Then another may hold it first. After a freeze, the work is not polled again before the store has confirmed
    /// the lease.
    Abort,
}

impl LeaseRequest {
    pub(crate) fn new(driver: Shared<Driver>, key: Result<Key, InvalidKey>, name: Option<String>) -> Self {
        Self { driver, key, name, wish: Wish::default(), on_loss: None }
    }

    /// Warns that the election with this request goes on although the store fails.
    pub(crate) fn tell_of_outage(&self, cause: &str) {
        if let Ok(key) = &self.key {
            driver::tell_of_outage(key, self.driver.session(), cause);
        }
    }

    /// Holds the key together with others who share it, while nobody holds it exclusively.
    pub fn shared(self) -> Self {
        self.mode(Mode::Shared)
    }

    /// How to hold the key: by default exclusively.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.wish.mode = mode;
        self
    }

    /// Queues the request ahead of all with a smaller priority, even if they came earlier. The default is 0. Between contexts, the largest
    /// priority among the waiting requests of a context counts for all of them.
    pub fn priority(mut self, priority: i32) -> Self {
        self.wish.priority = priority;
        self
    }

    /// [Waits](Self::acquire) at most this long (whole ms, rounded up); zero tries once. Without it, the wait for holders
    /// has no limit.
    ///
    /// The limit also covers the wait for a store that is silent or fails temporarily, such as a server that is being restarted. For such a
    /// store, a request without a limit does not wait for ever: it fails with [`AcquireError::Store`] once the store has been silent or
    /// busy for one to two leases, or has refused a new request three times.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.wish.timeout = Some(timeout);
        self
    }

    /// Holds the key together with other requests of this manager that also set this and have the same mode. Such a request joins the
    /// others at once, even if somebody waits, because the work under one of these guards may have made it. The key is free when the last
    /// of their guards is released or dropped, so others wait for as long as such guards overlap. Such guards may write at the same time,
    /// also under fences: a fence keeps out only those who do not share the lease.
    pub fn share_in_process(mut self) -> Self {
        self.wish.share = true;
        self
    }

    /// Whether the lease is renewed in the background: by default true. With false, it is lost as [`Expired`](crate::LostReason::Expired)
    /// unless [`extend`](LeaseGuard::extend) or [`verify`](LeaseGuard::verify) renew it in time.
    pub fn auto_renew(mut self, renew: bool) -> Self {
        self.wish.auto_renew = renew;
        self
    }

    /// Holds the key at most this long (whole ms, rounded up), up to a day; after that the lease is released, and the guard is
    /// lost as [`Expired`](crate::LostReason::Expired). [Parts](LeaseGuard::into_parts) of the guard do not keep the limit.
    pub fn max_hold(mut self, hold: Duration) -> Self {
        self.wish.max_hold = Some(hold);
        self
    }

    /// What the loss of the lease does to the work of [`run`](Self::run) and [`try_run`](Self::try_run): by default nothing.
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.on_loss = Some(on_loss);
        self
    }

    /// A description of the holder that the [status](crate::LeaseManager::status) shows: at most 4096 bytes. A lease that lingers is not
    /// reused for a request with another `info`. But if a context passes the lease from one of its requests to the next, or steals a key
    /// for which it already waits (for example in [`elect`](crate::LeaseManager::elect)), the status still shows the `info` of the earlier
    /// request.
    pub fn info(mut self, info: impl Into<String>) -> Self {
        self.wish.info = info.into();
        self
    }

    /// Waits for the lease: by priority, then first come, first served.
    ///
    /// All requests of this manager for one key and mode share one position in the queue. While other contexts wait, the manager may pass
    /// the lease to its own next request for at most [50 ms](crate::LeaseManagerBuilder::max_tenure) after the grant, and at most [32
    /// times](crate::LeaseManagerBuilder::max_local_handoffs). Then its requests that still wait move to the end of the queue together,
    /// however long they have waited.
    ///
    /// # Errors
    /// [`AcquireError`]: the time-out passed, the manager was closed, the key or an option is invalid, or the store failed; and
    /// [`AcquireError::Lost`] if the [`max_hold`](Self::max_hold) was over before this task ran again.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue, or the lease if it was granted at that moment. A later request queues at the
    /// end.
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
    pub fn acquire(self) -> impl Future<Output = Result<LeaseGuard, AcquireError>> {
        let waits = self.wish.steal || self.wish.timeout.is_none_or(|timeout| !timeout.is_zero());
        // A request that insists is granted or fails.
        self.ask(waits, true).map(|granted| granted?.ok_or(AcquireError::Closed))
    }

    /// Tries once, and returns `None` if the key is taken. A holder that uses the key answers at once. If none answers, this takes 30 ms,
    /// or up to 280 ms if the holder has a beacon: the end of the beacon shows its death.
    ///
    /// # Errors
    /// [`AcquireError`]: the manager was closed, the key is invalid, or the store failed; [`InvalidOptions`](crate::InvalidOptions) for a
    /// request with a [`timeout`](Self::timeout) or a [`priority`](Self::priority).
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
    pub fn try_acquire(self) -> impl Future<Output = Result<Option<LeaseGuard>, AcquireError>> {
        self.ask(false, false)
    }

    /// Takes the lease from its holder, ahead of everybody who waits. The old holder's guard is lost as
    /// [`Stolen`](crate::LostReason::Stolen): at once if the holder is reachable, else at its next heartbeat. Until then it considers its
    /// lease valid: two contexts may act at the same time. Tokens still grow, and fences still refuse the old holder's writes.
    ///
    /// # Errors
    /// [`AcquireError`]: as for [`acquire`](Self::acquire); if the attempt that opened this manager's session got no answer, it fails as
    /// [`AcquireError::Store`] and is not repeated: the old holder may have lost its lease; [`AcquireError::Lost`] if the lease was stolen
    /// or the session ended before this task ran again; [`InvalidOptions`](crate::InvalidOptions) for a request that is shared, or has a
    /// [`timeout`](Self::timeout) or a [`priority`](Self::priority).
    ///
    /// # Cancel safety
    /// Dropping the future releases the lease; the old holder does not get it back.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, LostReason, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let robbed = leases.lock("notes").acquire().await?;
    /// let guard = leases.lock("notes").steal().await?;
    /// assert_eq!(robbed.lost().await, LostReason::Stolen);
    /// assert!(guard.token() > robbed.token());
    /// # Ok(()) }
    /// ```
    pub async fn steal(mut self) -> Result<LeaseGuard, AcquireError> {
        self.wish.steal = true;
        self.acquire().await
    }

    /// With `insists`, a key that is taken is an error. Nothing happens until the future is polled. Thousands may wait, so rare parts are
    /// boxed to keep the future small.
    // Protocol: docs/protocol.md#k.
    fn ask(self, wait: bool, insists: bool) -> impl Future<Output = Result<Option<LeaseGuard>, AcquireError>> {
        let origin = Origin::of_request(self.key.as_ref().map_or("", Key::as_str), self.wish.mode);
        // Taken apart outside the block: otherwise its future would store twice what it moves out of `self`.
        let Self { mut driver, key, name, wish, on_loss } = self;
        async move {
            if on_loss.is_some() {
                return Err(unknown("on_loss", "use `run` or `try_run`").into());
            }
            wish.check(insists)?;
            let key = key.as_ref().map_err(Clone::clone)?;
            driver.admit().await?;
            let deadline = if wait { wish.deadline(&driver) } else { None };
            loop {
                let turn = wish.turn(key.clone(), wait, deadline);
                let mut pending = {
                    let _entered = origin.enter();
                    Pending::start(driver, turn, Input::Acquire)
                };
                let confirmed = {
                    let response = (&mut pending).await;
                    // A theft is not repeated: it would rob a later thief. Nor is a request that an executor without tasks refused at once.
                    let may_repeat = !wish.steal && pending.polls > 1;
                    if may_repeat && pending.driver.can_go_on_after(response.as_ref()) {
                        pending.settled = true;
                        driver = pending.driver.clone();
                        continue;
                    }
                    let Some(guard) = pending.guard(response, key.as_str(), name.clone())? else {
                        return if insists { Err(pending.driver.taken(key, name)) } else { Ok(None) };
                    };
                    // A context that was frozen between the grant and this moment learns of a loss before its code goes on.
                    if pending.polls == 1 || guard.is_valid() {
                        return Ok(Some(guard));
                    }
                    Box::pin(guard.confirmed())
                };
                let (guard, verdict) = confirmed.await;
                if verdict == Ok(true) {
                    return Ok(Some(guard));
                }
                match guard.told_loss() {
                    // Its time was over before its task ran again. The next one may fare no better.
                    Some(LostReason::Expired) if wish.max_hold.is_some() => return Err(guard.loss()),
                    // A second theft would rob whoever was granted the key since. If no loss is known, the caller gets the store's error.
                    told if wish.steal => {
                        let failure = verdict.err().filter(|_| told.is_none());
                        // The theft was applied, whatever became of the verification.
                        let failure = failure.map(|error| StoreError { applied: Applied::Unknown, ..error });
                        return Err(failure.map_or_else(|| guard.loss(), AcquireError::from));
                    }
                    _ => {}
                }
                driver = pending.driver.clone();
            }
        }
    }
}
