//! Several keys under one request.

use alloc::{borrow::ToOwned, string::String, vec::Vec};
use core::{future::Future, time::Duration};

use futures::future::{Either, join_all, select, select_all};

use crate::error::AcquireError;
use crate::guard::LeaseGuard;
use crate::machine::{
    InvalidOptions, Key, LostReason, MOST_KEYS, Mode, Monotonic, ReleaseOutcome, StoreError, Token, Turn,
};
use crate::manager::LeaseManager;
use crate::request::{Pending, Wish};

/// A request for the leases of several keys, made by [`LeaseManager::lock_all`].
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct MultiRequest {
    leases: LeaseManager,
    keys: Vec<(String, Mode)>,
    wish: Wish,
}

impl LeaseManager {
    /// A request for the leases of several keys, each in its own mode: 1 to 1,000 keys, each named once. What is wrong
    /// with them is told by `acquire`.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, Mode, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let both = leases.lock_all([("from", Mode::Exclusive), ("rates", Mode::Shared)]).acquire().await?;
    /// assert!(both.is_valid() && both.token("from").is_some());
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn lock_all<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = (K, Mode)>) -> MultiRequest {
        let mut keys: Vec<_> = keys.into_iter().map(|(key, mode)| (key.as_ref().to_owned(), mode)).collect();
        // In this order they are waited for, by everybody: so two requests never wait for each other.
        keys.sort();
        MultiRequest { leases: self.clone(), keys, wish: Wish::default() }
    }
}

impl MultiRequest {
    /// Waits at most this long for all of them (whole ms, rounded up); zero tries once. Without it, waits for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.wish.timeout = Some(timeout);
        self
    }

    /// Goes before requests of a smaller priority at each key: 0 unless chosen.
    pub fn priority(mut self, priority: i32) -> Self {
        self.wish.priority = priority;
        self
    }

    /// What the holder says of itself, for whoever looks at the [status](LeaseManager::status) of one of the keys.
    pub fn info(mut self, info: impl Into<String>) -> Self {
        self.wish.info = info.into();
        self
    }

    /// Waits for all leases, key by key in sorted order. What is held meanwhile shows in the status of its key, and is
    /// given back on failure, time-out or loss.
    ///
    /// # Errors
    /// As for [`LeaseRequest::acquire`](crate::LeaseRequest::acquire); [`InvalidOptions`] if no key is named, too many,
    /// or one twice; and [`AcquireError::Lost`] if a lease was lost before the last one was granted.
    ///
    /// # Cancel safety
    /// Dropping the future gives back what is held, and gives up the place in the queue.
    pub async fn acquire(self) -> Result<MultiGuard, AcquireError> {
        self.check()?;
        if self.wish.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return self.try_checked().await?.ok_or(AcquireError::Timeout);
        }
        let Self { leases, keys, wish } = self;
        let deadline = wish.deadline(leases.driver());
        let mut guards = Vec::with_capacity(keys.len());
        for (name, mode) in keys {
            let waiting = one(&leases, &name, mode, &wish, deadline);
            guards.push(while_held(&guards, waiting).await?);
        }
        Ok(MultiGuard { guards })
    }

    /// Tries once: all leases in one transaction, or `None` if any key is taken, and nothing is left behind.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn try_acquire(self) -> Result<Option<MultiGuard>, AcquireError> {
        self.check()?;
        self.try_checked().await
    }

    fn check(&self) -> Result<(), InvalidOptions> {
        let count = self.keys.len();
        if !(1..=MOST_KEYS).contains(&count) {
            return Err(InvalidOptions::KeyCount { count });
        }
        match self.keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(InvalidOptions::SameKeyTwice { key: pair[0].0.clone() }),
            None => Ok(()),
        }
    }

    async fn try_checked(self) -> Result<Option<MultiGuard>, AcquireError> {
        let Self { leases, keys, wish } = self;
        let driver = leases.driver();
        let named: Result<Vec<_>, _> =
            (keys.iter()).map(|(name, mode)| leases.encode(name).map(|(key, name)| (key, name, *mode))).collect();
        let named = named?;
        let turn = |(key, _, mode): &(Key, _, Mode)| {
            let turn = wish.turn(key.clone(), false, None);
            Turn { mode: *mode, alone: true, ..turn }
        };
        let asked = driver.request_all(named.iter().map(turn).collect());
        let mut pending: Vec<_> = asked.into_iter().map(|asked| Pending::new(driver, asked)).collect();
        // They are answered together. Guards of a request that failed in part are dropped, and so given back.
        let reactions = join_all(&mut pending).await;
        let answers = pending.iter_mut().zip(reactions).zip(named);
        let guards: Result<Vec<_>, _> =
            answers.map(|((pending, reaction), (_, name, _))| pending.guard(reaction, name)).collect();
        let guards: Option<Vec<_>> = guards?.into_iter().collect();
        let Some(guards) = guards.map(|guards| MultiGuard { guards }) else { return Ok(None) };
        // A context that was frozen between the grant and this moment learns of a loss before its code goes on.
        let held = guards.is_valid() || (guards.verify().await == Ok(true) && guards.is_valid());
        Ok(Some(guards).filter(|_| held))
    }
}

/// One of the keys, inside the time that is left for all of them.
async fn one(
    leases: &LeaseManager,
    name: &str,
    mode: Mode,
    wish: &Wish,
    deadline: Option<Monotonic>,
) -> Result<LeaseGuard, AcquireError> {
    let now = leases.driver().executor.now().monotonic;
    let mut request = leases.lock(name).mode(mode).priority(wish.priority).info(wish.info.clone());
    if let Some(deadline) = deadline {
        request = request.timeout(Duration::from_millis(deadline.since(now)));
    }
    request.acquire().await
}

/// Waits as long as all that is held already is held.
async fn while_held(
    guards: &[LeaseGuard],
    waiting: impl Future<Output = Result<LeaseGuard, AcquireError>>,
) -> Result<LeaseGuard, AcquireError> {
    if guards.is_empty() {
        return waiting.await;
    }
    let lost = select_all(guards.iter().map(LeaseGuard::lost));
    match select(core::pin::pin!(waiting), lost).await {
        Either::Left((granted, _)) => granted,
        Either::Right(((reason, ..), _)) => Err(AcquireError::Lost(reason)),
    }
}

/// The leases of several keys. Dropping it gives all of them back.
#[derive(Debug)]
#[must_use = "the leases are released when the guard is dropped"]
pub struct MultiGuard {
    guards: Vec<LeaseGuard>,
}

impl MultiGuard {
    /// The guards, by key.
    pub fn guards(&self) -> &[LeaseGuard] {
        &self.guards
    }

    /// Each guard for itself.
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

    /// Asks the store whether all leases are still held, and renews them.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer for one of them: then nobody knows.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn verify(&self) -> Result<bool, StoreError> {
        let verified: Result<Vec<_>, _> =
            join_all(self.guards.iter().map(LeaseGuard::verify)).await.into_iter().collect();
        Ok(verified?.into_iter().all(|held| held))
    }

    /// Waits until one of the leases is lost, and says why; pending for ever after a normal release.
    ///
    /// # Cancel safety
    /// Cancel safe: the loss is told to every later call too.
    pub fn lost(&self) -> impl Future<Output = LostReason> + use<> {
        let lost: Vec<_> = self.guards.iter().map(LeaseGuard::lost).collect();
        async move { select_all(lost).await.0 }
    }

    /// Gives all leases back. It has been [`Lost`](ReleaseOutcome::Lost) if one of them was.
    ///
    /// # Errors
    /// [`StoreError`] if the store did not answer for one of them; that one runs out by itself.
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
