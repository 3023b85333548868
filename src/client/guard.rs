//! The guard of a held lease.

mod upgrade;

use alloc::{boxed::Box, string::String};
use core::{
    fmt,
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::client::error::AcquireError;
use crate::client::fate::{Fate, FateState, LeaseState, LeaseWatch, Until};
use crate::client::fence::GuardFence;
use crate::client::mapped::MappedLeaseGuard;
use crate::client::parts::LeaseParts;
use crate::client::wish::rounded_up_ms;
use crate::driver::{Driver, Response};
use crate::executor::Shared;
use crate::machine::{
    Input, InvalidOptions, LONGEST_LEASE_MS, LostReason, Mode, Refusal, ReleaseOutcome, Slot, StoreError,
    StoreErrorKind, Token, TurnId,
};
use crate::oneshot::Receiver;

/// A lease that is held. Dropping the guard releases it in the background; [`release`](Self::release) also returns the outcome. The key
/// stays held until every clone of the guard is released or dropped. Give the guard a name, such as `_guard`: `let _ = …` drops it at once.
///
/// In a browser a panic drops nothing, because wasm does not unwind: the page goes on, and the lease is still renewed. So let a panic hook
/// [suspend](crate::LeaseManager::suspend) the manager
/// ([how](https://github.com/leasehold/leasehold/blob/HEAD/docs/rust-in-the-browser.md)).
///
/// A guard does not prove that the lease is still held: if a holder is paused for longer than its lease, another context may take over.
/// [Fence](Self::fence) what two holders must never both write, or send the guard's [`token`](Self::token) with it to a server that refuses
/// smaller tokens.
#[must_use = "the lease is released when the guard is dropped"]
pub struct LeaseGuard {
    driver: Shared<Driver>,
    /// Its clones have it in common.
    fate: Shared<Fate>,
    /// The user's name for the key, if the store knows it by another.
    name: Option<String>,
    given_back: AtomicBool,
}

impl LeaseGuard {
    pub(crate) fn new(driver: Shared<Driver>, fate: Shared<Fate>, name: Option<String>) -> Self {
        Self { driver, fate, name, given_back: AtomicBool::new(false) }
    }

    /// Whether another context may hold the lease, because the store has not confirmed it for long, or because it is lost. Not once the
    /// guard was released.
    pub(crate) fn is_overdue(&self) -> bool {
        // In this order: the loss may be noted while this waits for the driver, which then knows of no lease that is overdue.
        let is_overdue = self.driver.is_overdue();
        match self.fate.state().summary() {
            LeaseState::Held | LeaseState::Suspect => is_overdue,
            LeaseState::Lost(_) => true,
            LeaseState::Released => false,
        }
    }

    /// Notes that the end of this lease also ends the work under it.
    pub(crate) fn end_work_with_lease(&self) {
        self.fate.ends_work.store(true, Ordering::Relaxed);
    }

    /// The key that is leased.
    pub fn key(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.fate.slot.key.as_str())
    }

    /// The fencing token, below 2^53: larger than that of every lease of this key that had ended when this lease was granted. Guards that
    /// share the key at the same time have different tokens, in no particular order. A guard that joins a lease that its context already
    /// shares gets a token of that lease. An [upgrade](Self::upgrade) brings a new token.
    pub fn token(&self) -> Token {
        self.fate.state().token
    }

    /// How the key is held.
    pub fn mode(&self) -> Mode {
        self.fate.state().mode
    }

    /// Whether the lease is held, by this context's own clock and with a margin. This does not ask the store.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the lease is certain to last unless it is renewed; zero if it is lost, released or in doubt.
    pub fn remaining(&self) -> Duration {
        if self.given_back.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        Duration::from_millis(self.driver.remaining_ms(self.fate.turn, &self.fate.slot))
    }

    /// Whether another context has held the key exclusively since this one did, so that a cache of what the key guards may be out of date.
    /// It stays true until [`clear_changed`](Self::clear_changed). For this context's first lease of the key it is usually false, even if
    /// another context held the key before: read the data then, too. A context that has used more than 256 keys says true for a key that it
    /// does not remember.
    pub fn changed_hands(&self) -> bool {
        self.driver.changed_hands(&self.fate.slot.key)
    }

    /// Sets [`changed_hands`](Self::changed_hands) to false. Call it when you have read the data again.
    pub fn clear_changed(&self) {
        self.driver.handle(Input::ClearChanged { key: self.fate.slot.key.clone() });
    }

    /// Asks the store whether the lease is still held, and renews it. Returns false if the lease is lost, or this guard was released.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer: then it is unknown whether the lease is held, and its state does not change, unless the
    /// store refuses the renewal for good. Then all leases of the manager are lost.
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
        self.driver.proceed().await;
        self.verdict(self.ask_to_verify(0)).await
    }

    /// Makes the lease last at least this long from now (in whole ms, rounded up), regardless of other renewals, but no longer than its
    /// [`max_hold`](crate::LeaseRequest::max_hold).
    ///
    /// # Errors
    /// [`AcquireError::Lost`] if the lease is lost, [`AcquireError::Released`] if this guard was released, [`InvalidOptions`] if the span
    /// is zero or more than a day, and the store's error if the outcome is unknown.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: a renewal under way goes on.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").acquire().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(30));
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, span: Duration) -> Result<(), AcquireError> {
        self.driver.proceed().await;
        self.kept(self.ask_to_extend(span)?).await.map_err(|refused| *refused)
    }

    /// Turns an exclusive lease into a shared one, at once. A shared lease stays as it is. In a native store, a fence that began before the
    /// downgrade and is checked after it is refused ([`FenceError::Misuse`](crate::FenceError::Misuse)). While a fenced transaction may be
    /// open, readers of the same manager get the lease only when the store has answered.
    ///
    /// # Errors
    /// [`AcquireError::Lost`] if the lease is lost, [`AcquireError::Released`] if this guard was released, and the store's error if the
    /// outcome is unknown.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop it.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, Mode, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").acquire().await?;
    /// guard.downgrade().await?;
    /// assert_eq!(guard.mode(), Mode::Shared);
    /// let reader = leases.lock("notes").shared().acquire().await?;
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(&self) -> Result<(), AcquireError> {
        // The request is under way before this task yields.
        let kept = self.kept(self.ask_to_downgrade());
        self.driver.proceed().await;
        kept.await.map_err(|refused| *refused)
    }

    /// Waits until the lease is lost, and returns the reason; pending for ever after a normal release.
    ///
    /// A context that cannot reach the store does not learn of a loss until it can. Before another context can be granted the
    /// lease, the guard is in doubt: [`is_valid`](Self::is_valid) turns false, and [`watch`](Self::watch) reports
    /// [`Suspect`](crate::LeaseState::Suspect). If the doubt lasts, [`run`](crate::LeaseRequest::run) with
    /// [`OnLoss::Abort`](crate::OnLoss::Abort) and [`elect`](crate::LeaseRequest::elect) drop the work, still before that grant.
    ///
    /// The executor's tasks notice the loss. If the manager's runtime has ended, this future stays pending;
    /// [`is_valid`](Self::is_valid) still turns false by the clock.
    ///
    /// # Cancel safety
    /// Cancel safe: every later call returns the loss, too.
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
        Until::new(&self.fate, |state: &FateState| state.lost)
    }

    /// Why the lease was lost, or `None` if it was released.
    #[allow(dead_code, reason = "only the JavaScript bindings ask")]
    pub(crate) fn ended(&self) -> impl Future<Output = Option<LostReason>> + use<> {
        Until::new(
            &self.fate,
            |state: &FateState| {
                if state.lost.is_some() || state.released.is_some() { Some(state.lost) } else { None }
            },
        )
    }

    /// Watches the state of the lease. Any number of watches may exist, and each may outlive the guard. Unlike a clone of the guard, a
    /// watch does not keep the lease, so it suits a health check, for example.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch::new(&self.fate)
    }

    /// Releases the lease, and says whether it was still held. A second call gives the same answer, unless clones of the guard live: the
    /// lease may be lost after this handle was released.
    ///
    /// The release begins at the call. It continues if the future is dropped, and waits for a renewal in flight. While clones of the guard
    /// live, only this handle is released, at once; the last clone releases the lease.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer within a lease and its margin. The error comes when the last attempt has ended, after a
    /// lease and two store time-outs at the latest. Then the lease expires by itself. A loss is no error.
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
        self.give_back();
        let others_hold = self.fate.guards.load(Ordering::Acquire) > 0;
        Until::new(&self.fate, move |state: &FateState| match (&state.released, state.lost) {
            (None, None) if others_hold => Some(Ok(ReleaseOutcome::Released)),
            (None, Some(_)) if others_hold => Some(Ok(ReleaseOutcome::Lost)),
            (released, _) => released.clone(),
        })
    }

    /// Turns the guard into one that carries the value that it protects. The value lives as long as the guard, even if the lease is lost
    /// earlier.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let mut notes = leases.lock("notes").acquire().await?.map(vec!["milk"]);
    /// notes.push("bread");
    /// assert_eq!(notes.len(), 2);
    /// # Ok(()) }
    /// ```
    pub fn map<T>(self, value: T) -> MappedLeaseGuard<T> {
        MappedLeaseGuard::new(self, value)
    }

    /// Takes the guard apart: the lease stays in the store without being renewed, until it is [resumed](crate::LeaseManager::resume) or
    /// expires.
    ///
    /// If clones of this guard live, or other requests share its lease, they keep the lease: this guard is released, and the parts hold no
    /// lease. Then `resume` fails with [`AcquireError::EmptyParts`].
    pub fn into_parts(self) -> LeaseParts {
        let Self { driver, fate, .. } = &self;
        let FateState { token, mode, .. } = *fate.state();
        let sole = !self.is_given_back() && fate.guards.load(Ordering::Acquire) == 1;
        let parcel = if sole { driver.detach(fate.turn, &fate.slot) } else { None };
        if parcel.is_some() {
            // There is nothing left to release.
            self.given_back.store(true, Ordering::Relaxed);
        }
        let mode = parcel.as_ref().map_or(mode, |parcel| parcel.mode);
        LeaseParts::new(self.key(), driver.session(), token, mode, parcel)
    }

    /// What a transaction must check for this guard; `None` if the guard was released or lost.
    pub(crate) fn begin_fence(&self, renew: bool) -> Option<GuardFence> {
        if self.is_given_back() {
            return None;
        }
        let Self { driver, fate, name, .. } = self;
        GuardFence::new(driver, fate.clone(), name.clone(), renew)
    }

    pub(crate) fn is_given_back(&self) -> bool {
        self.given_back.load(Ordering::Relaxed)
    }

    /// Whether the store says that the lease is held, and the lease is certain again.
    pub(crate) async fn is_confirmed(&self) -> bool {
        self.verify().await == Ok(true) && self.is_valid()
    }

    /// The same, or the store's error if it could not tell, for a caller whose future must not store the guard meanwhile.
    pub(crate) async fn confirmed(self) -> (Self, Result<bool, StoreError>) {
        let verdict = self.verify().await.map(|is_held| is_held && self.is_valid());
        (self, verdict)
    }

    /// Why this guard cannot be used any more.
    pub(crate) fn loss(&self) -> AcquireError {
        match self.told_loss() {
            None if self.is_given_back() => AcquireError::Released { key: self.key().into() },
            told => self.lost_by(told.unwrap_or(LostReason::Expired)),
        }
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The error that reports the loss of this guard's lease.
    pub(crate) fn lost_by(&self, reason: LostReason) -> AcquireError {
        AcquireError::Lost { key: self.key().into(), reason }
    }

    /// Why the lease was lost, if that was reported.
    pub(crate) fn told_loss(&self) -> Option<LostReason> {
        self.fate.state().lost
    }

    pub(crate) fn ask_to_extend(&self, span: Duration) -> Result<Option<Receiver<Response>>, InvalidOptions> {
        let span_ms = rounded_up_ms(span);
        if !(1..=LONGEST_LEASE_MS).contains(&span_ms) {
            return Err(InvalidOptions::Span { option: "extend", span_ms });
        }
        Ok(self.ask_to_verify(span_ms))
    }

    pub(crate) fn ask_to_downgrade(&self) -> Option<Receiver<Response>> {
        self.ask(|query, turn, slot| Input::Downgrade { query, turn, slot })
    }

    pub(crate) fn ask_to_verify(&self, span_ms: u64) -> Option<Receiver<Response>> {
        self.ask(|query, turn, slot| Input::Verify { query, turn, slot, span_ms })
    }

    /// Sends the machine a question about this lease, unless the guard was released.
    fn ask(&self, input: impl FnOnce(TurnId, TurnId, Slot) -> Input) -> Option<Receiver<Response>> {
        if self.is_given_back() {
            return None;
        }
        let (turn, slot) = (self.fate.turn, self.fate.slot.clone());
        Some(self.driver.ask(|query| input(query, turn, slot)).1)
    }

    /// The store's answer; false if the guard was lost or released since.
    pub(crate) async fn verdict(&self, answer: Option<Receiver<Response>>) -> Result<bool, StoreError> {
        let Some(answer) = answer else { return Ok(false) };
        match answer.await {
            Some(Response::Verified(held)) => Ok(held? && !self.is_given_back() && self.told_loss().is_none()),
            Some(Response::Failed(Refusal::Store(error))) => Err(error),
            _ => Err(StoreError::permanent(StoreErrorKind::Closed, "the lease manager was closed")),
        }
    }

    /// Waits for the outcome. It is an error if the lease is no longer held.
    pub(crate) async fn kept(&self, answer: Option<Receiver<Response>>) -> Result<(), Box<AcquireError>> {
        if self.verdict(answer).await.map_err(AcquireError::from)? { Ok(()) } else { Err(self.loss().into()) }
    }

    fn give_back(&self) {
        let first = !self.given_back.swap(true, Ordering::Relaxed);
        if first && self.fate.guards.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.begin_release();
        }
    }

    fn begin_release(&self) {
        if !core::mem::replace(&mut self.fate.state().releasing, true) {
            self.driver.begin_release(Input::Release { turn: self.fate.turn, slot: self.fate.slot.clone() });
        }
    }
}

impl Clone for LeaseGuard {
    /// Another handle to the same lease. A clone of a guard that was released counts as released, too.
    fn clone(&self) -> Self {
        let given_back = self.is_given_back() || !self.fate.join();
        let (driver, fate, name) = (self.driver.clone(), self.fate.clone(), self.name.clone());
        Self { driver, fate, name, given_back: AtomicBool::new(given_back) }
    }
}

/// The key, the token, the mode and the state, by this context's own clock.
impl fmt::Debug for LeaseGuard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, mode) = self.fate.lease();
        let state = match self.watch().state() {
            // Its clones may still hold the lease.
            LeaseState::Held | LeaseState::Suspect if self.is_given_back() => LeaseState::Released,
            LeaseState::Held if !self.is_valid() => LeaseState::Suspect,
            state => state,
        };
        let mut shown = out.debug_struct("LeaseGuard");
        shown.field("key", &self.key()).field("token", &token).field("mode", &mode).field("state", &state).finish()
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if !self.is_given_back() {
            self.give_back();
        }
    }
}
