//! The state of a guard. It outlives the guard, for tasks that still wait for the outcome.

use alloc::vec::Vec;
use core::{
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};
use std::sync::MutexGuard;

use crate::driver::Origin;
use crate::executor::{HAS_MANY_CONTEXTS, Mutex, Shared};
use crate::machine::{
    LostReason, Mode, Monotonic, ReleaseOutcome, SessionId, Slot, SortedMap, StoreError, Token, TurnId,
};

/// The state of a lease: see [`LeaseGuard::watch`](crate::LeaseGuard::watch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseState {
    /// The lease is held.
    Held,
    /// The lease may have expired: it is not valid until the store has confirmed it.
    Suspect,
    /// The lease is lost for good.
    Lost(LostReason),
    /// The guard was released.
    Released,
}

/// One guard, from its grant to its end.
#[derive(Debug)]
pub(crate) struct Fate {
    pub(crate) turn: TurnId,
    pub(crate) slot: Slot,
    /// The session that holds the lease: its context may have another one when the end is reported.
    pub(crate) holder: SessionId,
    pub(crate) since: Monotonic,
    /// Where the lease was requested.
    pub(crate) origin: Origin,
    /// How many guards of this lease, clones included, have not been given back.
    pub(crate) guards: AtomicUsize,
    /// Whether the end of the lease also ends the work under it, by `elect` or `OnLoss::Abort`.
    pub(crate) ends_work: AtomicBool,
    state: Mutex<FateState>,
}

#[derive(Debug)]
pub(crate) struct FateState {
    pub(crate) token: Token,
    pub(crate) mode: Mode,
    /// The calls of `upgrade` that made the lease exclusive or found it exclusive, while none of them has returned `Ok`. If all of them are
    /// dropped, the lease is downgraded.
    pub(crate) untold_upgrades: Vec<TurnId>,
    /// Set by whoever begins the release, so that it begins only once.
    pub(crate) releasing: bool,
    pub(crate) suspect: bool,
    pub(crate) lost: Option<LostReason>,
    pub(crate) released: Option<Result<ReleaseOutcome, StoreError>>,
    wakers: SortedMap<u64, Waker>,
    last_place: u64,
}

impl Fate {
    /// Whether this was the last call of `upgrade` that could still tell anybody that the lease is exclusive.
    pub(crate) fn forget_upgrade(&self, query: TurnId) -> bool {
        let untold = &mut self.state().untold_upgrades;
        let before = untold.len();
        untold.retain(|known| *known != query);
        before > 0 && untold.is_empty()
    }

    pub(crate) fn new(
        (turn, slot): (TurnId, Slot),
        (holder, token): (SessionId, Token),
        since: Monotonic,
        origin: Origin,
    ) -> Self {
        let state = FateState {
            token,
            mode: slot.mode,
            untold_upgrades: Vec::new(),
            releasing: false,
            suspect: false,
            lost: None,
            released: None,
            wakers: SortedMap::new(),
            last_place: 0,
        };
        Self {
            turn,
            slot,
            holder,
            since,
            origin,
            guards: AtomicUsize::new(1),
            ends_work: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, FateState> {
        self.state.lock()
    }

    /// Counts another guard. False if the last one was given back meanwhile, by another thread.
    pub(crate) fn join(&self) -> bool {
        self.guards.fetch_update(Relaxed, Relaxed, |guards| (guards > 0).then(|| guards + 1)).is_ok()
    }

    /// The current token and mode.
    pub(crate) fn lease(&self) -> (Token, Mode) {
        let state = self.state();
        (state.token, state.mode)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state().lost.is_some()
    }

    /// Changes the state, and returns the wakers of those who wait for it: the caller wakes them.
    pub(crate) fn change(&self, change: impl FnOnce(&mut FateState)) -> Vec<Waker> {
        let mut state = self.state();
        change(&mut state);
        // Usually nobody waits. The constant keeps this check out of the npm package, which is to be small.
        if HAS_MANY_CONTEXTS && state.wakers.is_empty() {
            return Vec::new();
        }
        core::mem::take(&mut state.wakers).into_values()
    }

    /// Notes that the lease is lost. The first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) -> Vec<Waker> {
        self.change(|state| _ = state.lost.get_or_insert(reason))
    }

    /// Notes the outcome of the release.
    pub(crate) fn release(&self, result: Result<ReleaseOutcome, StoreError>) -> Vec<Waker> {
        self.change(|state| _ = state.released.get_or_insert(result))
    }
}

impl FateState {
    /// The state of the lease; a loss is never forgotten.
    pub(crate) fn summary(&self) -> LeaseState {
        match self.lost {
            Some(reason) => LeaseState::Lost(reason),
            None if self.releasing || self.released.is_some() => LeaseState::Released,
            None if self.suspect => LeaseState::Suspect,
            None => LeaseState::Held,
        }
    }
}

/// Waits until the state answers a question. If this is dropped, it leaves nothing behind.
pub(crate) struct Until<L> {
    fate: Shared<Fate>,
    place: Option<u64>,
    look: L,
}

impl<L> Until<L> {
    pub(crate) fn new(fate: &Shared<Fate>, look: L) -> Self {
        Self { fate: fate.clone(), place: None, look }
    }
}

impl<T, L: Fn(&FateState) -> Option<T> + Unpin> Future for Until<L> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let until = &mut *self;
        if let Some(known) = (until.look)(&until.fate.state()) {
            return Poll::Ready(known);
        }
        // Cloning may run the user's code, so the mutex is not held meanwhile.
        let waker = context.waker().clone();
        let state = until.fate.state();
        if let Some(known) = (until.look)(&state) {
            return Poll::Ready(known);
        }
        wait(&mut until.place, waker, state);
        Poll::Pending
    }
}

/// Stores a waker, which each change of the state wakes. Rust drops the last parameter first, so the lock is released before
/// a waker is dropped.
fn wait(place: &mut Option<u64>, waker: Waker, mut state: MutexGuard<'_, FateState>) {
    if state.released.is_some() {
        // Nothing more will change. A stored waker would keep its task alive, and the task would keep this fate alive.
        return;
    }
    let place = *place.get_or_insert_with(|| {
        state.last_place += 1;
        state.last_place
    });
    let old = state.wakers.remove(&place);
    state.wakers.insert(place, waker);
    // The old waker is dropped after the lock is released: it may own something that takes the lock.
    drop(state);
    drop(old);
}

impl<L> Drop for Until<L> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        // Dropped after the lock is released: it may own something that takes the lock.
        let waker = self.fate.state().wakers.remove(&place);
        drop(waker);
    }
}

/// Reports the state of a lease and its changes: made by [`LeaseGuard::watch`](crate::LeaseGuard::watch).
///
/// It shows the current state, not every change: one that is undone between two calls is not seen. A loss is never undone. The watch may
/// outlive the guard.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    fate: Shared<Fate>,
    seen: LeaseState,
}

impl LeaseWatch {
    pub(crate) fn new(fate: &Shared<Fate>) -> Self {
        let seen = fate.state().summary();
        Self { fate: fate.clone(), seen }
    }

    /// The current state of the lease.
    pub fn state(&self) -> LeaseState {
        self.fate.state().summary()
    }

    /// Waits until the state differs from the one that this watch saw last, and returns it. Once it has returned a loss or
    /// a release, it is pending for ever.
    ///
    /// # Cancel safety
    /// Cancel safe: a change that was not returned yet is returned by the next call.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, LeaseState, LostReason, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").acquire().await?;
    /// let mut watch = guard.watch();
    /// assert_eq!(watch.state(), LeaseState::Held);
    /// let _thief = leases.lock("notes").steal().await?;
    /// assert_eq!(watch.changed().await, LeaseState::Lost(LostReason::Stolen));
    /// # Ok(()) }
    /// ```
    pub async fn changed(&mut self) -> LeaseState {
        let seen = self.seen;
        let look = move |state: &FateState| Some(state.summary()).filter(|now| *now != seen);
        self.seen = Until::new(&self.fate, look).await;
        self.seen
    }
}
