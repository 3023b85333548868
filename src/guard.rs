//! The guard of a held lease.

use alloc::vec::Vec;
use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Driver, Reaction};
use crate::executor::Shared;
use crate::machine::{Input, Key, LostReason, ReleaseOutcome, SortedMap, StoreError, StoreErrorKind, Token, TurnId};

/// A lease that is held. Dropping the guard releases it in the background; [`release`](Self::release) also tells how
/// that ended.
///
/// A guard is not proof: a holder that is paused for longer than its lease is overtaken. What must never be done by
/// two holders is written with the guard's [`token`](Self::token), to a place that refuses smaller tokens.
#[derive(Debug)]
#[must_use = "the lease is released when the guard is dropped"]
pub struct LeaseGuard {
    driver: Shared<Driver>,
    fate: Shared<Fate>,
    turn: TurnId,
    key: Key,
    token: Token,
}

impl LeaseGuard {
    pub(crate) fn new(driver: Shared<Driver>, turn: TurnId, key: Key, token: Token, fate: Shared<Fate>) -> Self {
        Self { driver, fate, turn, key, token }
    }

    /// The key that is leased.
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// The fencing token: larger than that of every earlier guard of this key, and below 2^53.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the lease is held, by this context's own clock and with a margin. Asks nobody.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the lease is certain to last unless it is renewed; zero if it is lost, released or in doubt.
    pub fn remaining(&self) -> Duration {
        Duration::from_millis(self.driver.remaining_ms(self.turn, &self.key))
    }

    /// Asks the store whether the lease is still held, and renews it.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer: then nobody knows, and the guard stays as it is.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: a renewal under way goes on.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").acquire().await?;
    /// assert!(guard.verify().await?);
    /// # Ok(()) }
    /// ```
    pub async fn verify(&self) -> Result<bool, StoreError> {
        let (turn, key) = (self.turn, self.key.clone());
        let (_, answer) = self.driver.ask(|query| Input::Verify { query, turn, key });
        match answer.await {
            Ok(Reaction::Verified(result)) => result,
            _ => Err(StoreError::permanent(StoreErrorKind::Closed, "the lease manager was closed")),
        }
    }

    /// Waits until the lease is lost, and says why; pending for ever after a normal release.
    ///
    /// # Cancel safety
    /// Cancel safe: the loss is told to every later call too.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").acquire().await?;
    /// let lost = guard.lost();
    /// leases.close().await;
    /// assert_eq!(lost.await, leasehold::LostReason::Closed);
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> impl Future<Output = LostReason> + use<> {
        Watch { fate: self.fate.clone(), place: None, look: |state: &FateState| state.lost }
    }

    /// Gives the lease back, and says whether it was still held. Calling it again gives the same answer.
    ///
    /// The release begins at the call. It goes on if the future is dropped, and waits for a renewal in flight.
    ///
    /// # Errors
    /// [`StoreError`] if the store did not answer within a lease; then the lease runs out by itself. A loss is no
    /// error.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").acquire().await?;
    /// assert_eq!(guard.release().await?, leasehold::ReleaseOutcome::Released);
    /// assert!(!guard.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn release(&self) -> impl Future<Output = Result<ReleaseOutcome, StoreError>> + use<> {
        self.begin_release();
        Watch { fate: self.fate.clone(), place: None, look: |state: &FateState| state.released.clone() }
    }

    fn begin_release(&self) {
        if !core::mem::replace(&mut self.fate.state().releasing, true) {
            self.driver.handle(Input::Release { turn: self.turn, key: self.key.clone() });
        }
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.begin_release();
    }
}

/// What became of a guard; outlives it, for whoever still waits to hear.
#[derive(Debug, Default)]
pub(crate) struct Fate(Mutex<FateState>);

#[derive(Debug, Default)]
struct FateState {
    releasing: bool,
    lost: Option<LostReason>,
    released: Option<Result<ReleaseOutcome, StoreError>>,
    wakers: SortedMap<u64, Waker>,
    last_place: u64,
}

impl Fate {
    /// Nothing panics under the lock, so a poisoned one guards a sound state.
    fn state(&self) -> MutexGuard<'_, FateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease is lost, once and for good; who waits is to be woken.
    pub(crate) fn lose(&self, reason: LostReason) -> Vec<Waker> {
        let mut state = self.state();
        state.lost.get_or_insert(reason);
        state.take_wakers()
    }

    /// The release ended; who waits is to be woken.
    pub(crate) fn release(&self, result: Result<ReleaseOutcome, StoreError>) -> Vec<Waker> {
        let mut state = self.state();
        state.released = Some(result);
        state.take_wakers()
    }
}

impl FateState {
    fn take_wakers(&mut self) -> Vec<Waker> {
        core::mem::take(&mut self.wakers).into_iter().map(|(_, waker)| waker).collect()
    }
}

/// Waits until something is known of a fate. Dropped, it leaves nothing behind.
struct Watch<L> {
    fate: Shared<Fate>,
    place: Option<u64>,
    look: L,
}

impl<T, L: Fn(&FateState) -> Option<T> + Unpin> Future for Watch<L> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let watch = &mut *self;
        let mut state = watch.fate.state();
        if let Some(known) = (watch.look)(&state) {
            return Poll::Ready(known);
        }
        let place = *watch.place.get_or_insert_with(|| {
            state.last_place += 1;
            state.last_place
        });
        state.wakers.insert(place, context.waker().clone());
        Poll::Pending
    }
}

impl<L> Drop for Watch<L> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.fate.state().wakers.remove(&place);
        }
    }
}
