//! Who takes leases in every way there is, and does with them what may be done.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures::future::{Either, select};
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, LeaseRequest, Mode, MultiRequest, ReleaseOutcome, executor::Executor,
};

use crate::support::{
    chaos::How,
    doubles::PausingExecutor,
    oracle::{Oracle, Place},
    vault::Vault,
    world::{Dice, ms},
};

/// How many work.
#[derive(Clone, Default)]
pub(crate) struct Crew(Arc<AtomicUsize>);

/// Somebody works as long as it lives.
pub(crate) struct Shift(Arc<AtomicUsize>);

impl Crew {
    pub(crate) fn begin_shift(&self) -> Shift {
        self.0.fetch_add(1, Ordering::Relaxed);
        Shift(self.0.clone())
    }

    pub(crate) fn working(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) struct Worker {
    pub(crate) leases: LeaseManager,
    pub(crate) executor: PausingExecutor,
    pub(crate) vault: Vault,
    pub(crate) oracle: Oracle,
    pub(crate) how: How,
    pub(crate) context: u64,
    pub(crate) shift: Shift,
}

/// A guard and where it is of.
struct Held {
    guard: Arc<LeaseGuard>,
    key: usize,
}

impl Worker {
    pub(crate) async fn work(self) {
        let _shift = &self.shift;
        while !self.oracle.is_over() {
            self.idle(2).await;
            match self.ask().await {
                Ok(held) => self.hold(held).await,
                Err(AcquireError::Closed) => return,
                Err(error) => self.told(&error),
            }
        }
    }

    fn dice(&self) -> Dice<'_> {
        Dice(&self.executor.sim)
    }

    fn count<T>(&self, what: &'static str, value: T) -> T {
        self.oracle.tally.count(what, value)
    }

    /// Up to this many units.
    fn span(&self, units: u64) -> std::time::Duration {
        ms(self.dice().below(self.how.unit_ms() * units + 1))
    }

    async fn idle(&self, units: u64) {
        self.executor.sleep(self.span(units)).await;
    }

    fn told(&self, error: &AcquireError) {
        match error {
            AcquireError::Timeout { .. } => self.count("a wait timed out", ()),
            AcquireError::Store(_) => self.count("a request was told that the store failed", ()),
            AcquireError::InstanceInUse { .. } => self.count("a twin was in the way", ()),
            AcquireError::Lost { .. } | AcquireError::NotResumable | AcquireError::EmptyParts => {
                self.count("a request lost its lease", ())
            }
            other => self.oracle.accuse(format!("a request failed: {other:?}")),
        }
    }

    async fn ask(&self) -> Result<Vec<Held>, AcquireError> {
        match self.dice().below(if self.how.locks { 10 } else { 16 }) {
            0 => self.ask_for_all().await,
            1 => self.take_over().await,
            _ => self.ask_for_one().await,
        }
    }

    fn welcome(&self, guard: LeaseGuard, key: usize, shares_in_process: bool) -> Held {
        let guard = Arc::new(guard);
        let (vault, executor, context) = (&self.vault, &self.executor, self.context);
        self.oracle.welcome(&guard, &Place { vault, executor, context, key, shares_in_process });
        Held { guard, key }
    }

    async fn ask_for_one(&self) -> Result<Vec<Held>, AcquireError> {
        let dice = self.dice();
        let key = dice.index(self.vault.keys().len());
        let mut request = self.leases.lock(self.vault.keys()[key].as_str());
        let shares = dice.one_in(3);
        let shares_in_process = dice.one_in(6);
        if shares {
            request = request.shared();
        }
        if shares_in_process {
            request = request.share_in_process();
        }
        let priority = if dice.one_in(5) { i32::try_from(dice.below(4)).unwrap() - 1 } else { 0 };
        if dice.one_in(4) {
            // A lease that lingers is not reused for it, unless it was asked for with the same.
            request = request.info("another");
        }
        if dice.one_in(10) {
            request = request.auto_renew(false);
        }
        if dice.one_in(10) {
            request = request.max_hold(self.span(4) + ms(1));
        }
        self.oracle.tell(|| format!("{} asks {request:?}", self.context));
        let granted = self.ask_somehow(request, shares, priority).await?;
        Ok(granted.into_iter().map(|guard| self.welcome(guard, key, shares_in_process)).collect())
    }

    /// Only who waits has a priority.
    async fn ask_somehow(
        &self,
        request: LeaseRequest,
        shares: bool,
        priority: i32,
    ) -> Result<Option<LeaseGuard>, AcquireError> {
        let waiting = request.clone().priority(priority);
        match self.dice().below(40) {
            0 if !shares => self.count("a lease was stolen", request).steal().await.map(Some),
            0..10 => self.tried(request.try_acquire().await),
            10..20 => waiting.timeout(self.span(30)).acquire().await.map(Some),
            20..28 => self.dropped(waiting.acquire(), 8).await.transpose(),
            _ => waiting.acquire().await.map(Some),
        }
    }

    fn tried<T>(&self, answer: Result<Option<T>, AcquireError>) -> Result<Option<T>, AcquireError> {
        match answer {
            Ok(None) => self.count("a try found the key taken", Ok(None)),
            answer => answer,
        }
    }

    /// What a future gives, unless it is dropped before.
    async fn dropped<T>(&self, future: impl Future<Output = T>, units: u64) -> Option<T> {
        if self.how.locks && self.dice().one_in(2) {
            return self.dropped_after(future, self.dice().below(6)).await;
        }
        match select(pin!(future), self.executor.sleep(self.span(units))).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => self.count("a request was dropped", None),
        }
    }

    /// What a future gives, unless it is dropped first, after this many polls.
    async fn dropped_after<T>(&self, future: impl Future<Output = T>, polls: u64) -> Option<T> {
        let (mut future, mut left) = (pin!(future), polls);
        let answer = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        });
        match answer.await {
            Some(answer) => Some(answer),
            None => self.count("a request was dropped", None),
        }
    }

    async fn ask_for_all(&self) -> Result<Vec<Held>, AcquireError> {
        let dice = self.dice();
        let mode = |_| if dice.one_in(2) { Mode::Exclusive } else { Mode::Shared };
        let keys: Vec<_> = (0..self.vault.keys().len()).filter(|_| !dice.one_in(3)).take(5).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let request = self.leases.lock_all(keys.iter().map(|key| (self.vault.keys()[*key].as_str(), mode(*key))));
        let Some(guards) = self.ask_for_all_somehow(request).await? else { return Ok(Vec::new()) };
        self.count("several keys were granted", ());
        let key = |guard: &LeaseGuard| self.vault.keys().iter().position(|key| key.as_str() == guard.key()).unwrap();
        Ok(guards
            .into_iter()
            .map(|guard| (key(&guard), guard))
            .map(|(key, guard)| self.welcome(guard, key, false))
            .collect())
    }

    async fn ask_for_all_somehow(&self, request: MultiRequest) -> Result<Option<Vec<LeaseGuard>>, AcquireError> {
        let granted = match self.dice().below(8) {
            0..4 => self.tried(request.try_acquire().await)?,
            4 => self.dropped(request.try_acquire(), 1).await.transpose()?.flatten(),
            5 => self.dropped(request.acquire(), 8).await.transpose()?,
            6 => Some(request.timeout(self.span(30)).acquire().await?),
            _ => Some(request.acquire().await?),
        };
        Ok(granted.map(leasehold::MultiGuard::into_guards))
    }

    async fn take_over(&self) -> Result<Vec<Held>, AcquireError> {
        let Some(parts) = self.oracle.take_parcel() else { return Ok(Vec::new()) };
        let key = self.vault.keys().iter().position(|key| key.as_str() == parts.key()).unwrap();
        let token = parts.token();
        let guard = self.leases.resume(parts).await?;
        self.count("a lease was taken over", ());
        if guard.token() <= token {
            self.oracle.accuse(format!("{:?} comes after {token:?}", guard.token()));
        }
        Ok(vec![self.welcome(guard, key, false)])
    }

    async fn hold(&self, held: Vec<Held>) {
        for one in &held {
            for _ in 0..1 + self.dice().below(2) {
                self.idle(if self.dice().one_in(12) { 30 } else { 1 }).await;
                if !self.act(one, held.len() == 1).await {
                    break;
                }
            }
        }
        for one in held {
            self.end(one).await;
        }
    }

    /// Whether the guard is of use any longer.
    async fn act(&self, held: &Held, is_only: bool) -> bool {
        let Held { guard, .. } = held;
        let what = self.dice().below(24);
        self.oracle.tell(|| format!("{} does {what} with {:?} of k{}", self.context, guard.token(), held.key));
        match what {
            0..4 if self.how.locks && self.dice().one_in(4) => drop(self.dropped(guard.verify(), 2).await),
            0..4 => self.verify(guard).await,
            5 if self.how.locks && self.dice().one_in(2) => {
                self.oracle.downgrades(guard);
                drop(self.dropped(guard.downgrade(), 2).await);
            }
            4 => {
                let span = self.span(40) + ms(1);
                self.oracle.extends(self.context, span);
                drop(guard.extend(span).await);
            }
            5 | 6 => {
                self.oracle.downgrades(guard);
                let shared = guard.downgrade().await;
                drop(shared);
                self.count("a lease was downgraded", ());
            }
            // Who waits for one key while holding a later one may wait for ever.
            7..11 if is_only && guard.mode() == Mode::Shared => return self.upgrade(guard).await,
            11 => drop(LeaseGuard::clone(guard)),
            _ => self.write(held),
        }
        true
    }

    async fn verify(&self, guard: &LeaseGuard) {
        match guard.verify().await {
            Ok(true) => self.count("the store confirmed a guard", ()),
            Ok(false) => {
                self.count("the store denied a guard", ());
                if guard.is_valid() {
                    self.oracle.accuse(format!("{:?} is valid though the store denies it", guard.token()));
                }
            }
            Err(_) => {}
        }
    }

    async fn upgrade(&self, guard: &Arc<LeaseGuard>) -> bool {
        let answer =
            if self.dice().one_in(3) { self.dropped(guard.upgrade(), 6).await } else { Some(guard.upgrade().await) };
        self.oracle.upgraded(guard, &self.vault);
        match answer {
            Some(Ok(())) => self.count("a lease was upgraded", true),
            Some(Err(AcquireError::UpgradeConflict { .. })) => {
                self.count("an upgrade was in the way of another", false)
            }
            Some(Err(_)) => false,
            None => self.count("an upgrade was dropped", true),
        }
    }

    /// Whether the guard is valid is not asked: a write may come late, and the store knows.
    fn write(&self, held: &Held) {
        let (holder, now) = (self.leases.session(), self.executor.sim.now());
        if self.vault.write(held.key, holder, held.guard.token(), now) {
            self.count("a write was accepted", ());
        } else {
            self.count("a write was refused", ());
        }
    }

    async fn end(&self, held: Held) {
        let Held { guard, .. } = held;
        self.oracle.dismiss(&guard);
        let dice = self.dice();
        if dice.one_in(10) && !self.oracle.is_calm() {
            if let Some(guard) = Arc::into_inner(guard) {
                self.oracle.leave(guard.into_parts());
            }
            return;
        }
        let is_whole = dice.one_in(2);
        if !is_whole {
            return;
        }
        if self.how.locks && dice.one_in(3) {
            drop(self.dropped(guard.release(), 2).await);
            return;
        }
        let (first, again) = (guard.release().await, guard.release().await);
        if first != again {
            self.oracle.accuse(format!("a release was {first:?}, then {again:?}"));
        }
        if first == Ok(ReleaseOutcome::Lost) {
            self.count("a release came too late", ());
        }
    }
}
