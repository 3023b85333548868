//! Several keys under one request.

use alloc::{borrow::ToOwned, boxed::Box, string::String, vec::Vec};
use core::{future::poll_fn, task::Poll, time::Duration};

use crate::client::error::AcquireError;
use crate::client::guard::LeaseGuard;
use crate::client::manager::LeaseManager;
use crate::client::multi_guard::MultiGuard;
use crate::client::pending::Pending;
use crate::client::request::LeaseRequest;
use crate::client::status::{HolderStatus, LeaseStatus};
use crate::client::wish::Wish;
use crate::executor::MaybeSendFuture;
use crate::machine::{Input, InvalidOptions, LostReason, MOST_KEYS, Mode, Monotonic, Turn, check_info};

/// A request for the leases of several keys, made by [`LeaseManager::lock_all`].
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct MultiRequest {
    leases: LeaseManager,
    keys: Vec<(String, Mode)>,
    pub(crate) wish: Wish,
}

impl LeaseManager {
    /// A request for the leases of several keys, each in its own mode: 1 to 1,000 keys, each named once. `acquire` reports invalid ones.
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
        let keys = keys.into_iter().map(|(key, mode)| (key.as_ref().to_owned(), mode)).collect();
        MultiRequest::new(self, keys)
    }
}

impl MultiRequest {
    pub(crate) fn new(leases: &LeaseManager, mut keys: Vec<(String, Mode)>) -> Self {
        // Every request waits for its keys in this order, so two requests never wait for each other.
        keys.sort_unstable();
        Self { leases: leases.clone(), keys, wish: Wish::default() }
    }

    /// Waits at most this long for all of them (whole ms, rounded up); zero tries once. Without it, the wait for holders
    /// has no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.wish.timeout = Some(timeout);
        self
    }

    /// Queues the request at each key ahead of all with a smaller priority. The default is 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.wish.priority = priority;
        self
    }

    /// A description of the holder that the [status](LeaseManager::status) of each key shows: at most 4096 bytes.
    pub fn info(mut self, info: impl Into<String>) -> Self {
        self.wish.info = info.into();
        self
    }

    /// Waits for all leases. When all keys are free they are granted in one transaction. Otherwise this waits for one key after the other,
    /// in sorted order, and after each it tries all remaining keys at once. Leases that are held meanwhile show in the status of their
    /// keys, and are released on failure, time-out or loss.
    ///
    /// # Errors
    /// As for [`LeaseRequest::acquire`](crate::LeaseRequest::acquire); [`InvalidOptions`] if it names no key, too many
    /// keys, or one key twice; and [`AcquireError::Lost`] if a lease was lost before the last one was granted.
    ///
    /// # Cancel safety
    /// Dropping the future releases what is held, and gives up the place in the queue.
    pub async fn acquire(self) -> Result<MultiGuard, AcquireError> {
        let leases = self.leases.clone();
        let acquired = self.acquire_or_tell_where().await;
        lets_others_go_on(&leases, &acquired).await;
        acquired.map_err(|refused| refused.error)
    }

    /// Waits as [`acquire`](Self::acquire) does; a failure names the key that it concerns.
    pub(crate) async fn acquire_or_tell_where(self) -> Result<MultiGuard, Box<Refused>> {
        self.check()?;
        if self.wish.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return self.try_checked().await?.ok_or_else(|| self.taken().into());
        }
        let driver = self.leases.driver();
        let (since, deadline) = (driver.executor.now().monotonic, self.wish.deadline(driver));
        let mut holds = Holds::default();
        while holds.guards.len() < self.keys.len() {
            let rest = &self.keys[holds.guards.len()..];
            match holds.wait_for(Box::pin(self.all_of_or_wait(rest, deadline))).await {
                Ok(granted) => granted.into_iter().for_each(|guard| holds.add(guard)),
                Err(mut refused) => {
                    // Each single request counts `waited` from its own start, not from the start of this call.
                    if let AcquireError::Timeout { waited, .. } = &mut refused.error {
                        *waited = Duration::from_millis(driver.executor.now().monotonic.since(since));
                    }
                    return Err(refused);
                }
            }
        }
        Ok(MultiGuard::new(holds.guards))
    }

    /// All of these at once, or else the first of them, whenever that comes.
    async fn all_of_or_wait(
        &self,
        keys: &[(String, Mode)],
        deadline: Option<Monotonic>,
    ) -> Result<Vec<LeaseGuard>, Box<Refused>> {
        let at_once = match keys {
            [_] => None,
            // A suspended context tries nothing, but may wait until it goes on.
            keys => match self.all_of(keys, true, deadline).await {
                Err(refused) if matches!(refused.error, AcquireError::Lost { .. }) => None,
                tried => tried?,
            },
        };
        if let Some(all) = at_once {
            return Ok(all);
        }
        let mut guards = Vec::new();
        if let Some((name, mode)) = keys.first() {
            let granted = self.one(name, *mode, deadline).acquire().await;
            guards.push(granted.map_err(|error| Refused::at(name, error))?);
        }
        Ok(guards)
    }

    /// Tries once: acquires all leases in one transaction, or returns `None` if any key is taken, and leaves nothing behind. A holder that
    /// has a beacon or the same instance name may be dead. If such a holder has a key, this tries that key alone, as
    /// [`LeaseRequest::try_acquire`] does, and if that succeeds, tries all keys once more.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); [`InvalidOptions`] for a request with a [`timeout`](Self::timeout) or a
    /// [`priority`](Self::priority).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn try_acquire(self) -> Result<Option<MultiGuard>, AcquireError> {
        self.wish.check_try()?;
        let tried = match self.check() {
            Ok(()) => self.try_checked().await,
            Err(error) => Err(error.into()),
        };
        lets_others_go_on(&self.leases, &tried).await;
        tried.map_err(|refused| refused.error)
    }

    fn check(&self) -> Result<(), AcquireError> {
        let count = self.keys.len();
        if !(1..=MOST_KEYS).contains(&count) {
            return Err(InvalidOptions::KeyCount { count }.into());
        }
        if let Some(pair) = self.keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(InvalidOptions::SameKeyTwice { key: pair[0].0.clone() }.into());
        }
        check_info(&self.wish.info)?;
        self.leases.driver().check()
    }

    /// The refusal of a request that did not wait.
    fn taken(&self) -> AcquireError {
        let names: Vec<_> = self.keys.iter().map(|(name, _)| name.as_str()).collect();
        let holds = |name: &&str| self.leases.encode(name).is_ok_and(|(key, _)| self.leases.driver().holds(&key));
        AcquireError::taken(names.join(", "), names.iter().any(holds))
    }

    async fn try_checked(&self) -> Result<Option<MultiGuard>, Box<Refused>> {
        let mut is_first = true;
        loop {
            let granted = self.all_of(&self.keys, false, None).await?;
            // It tries again only once. A living holder that shares the key does not block a try for that key alone, so it would try for
            // ever.
            if granted.is_some() || !core::mem::take(&mut is_first) || !self.outlives_holders().await? {
                return Ok(granted.map(MultiGuard::new));
            }
        }
    }

    /// All of these keys in one transaction, or `None` if any is taken. The answer comes sooner for a caller that then waits for one of
    /// them.
    async fn all_of(
        &self,
        keys: &[(String, Mode)],
        waits_next: bool,
        deadline: Option<Monotonic>,
    ) -> Result<Option<Vec<LeaseGuard>>, Box<Refused>> {
        let driver = self.leases.driver();
        let (mut turns, mut names) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        for (name, mode) in keys {
            let (key, name) = self.leases.encode(name).map_err(AcquireError::from)?;
            turns.push(Turn { mode: *mode, alone: true, ..self.wish.turn(key, waits_next, deadline) });
            names.push(name);
        }
        let mut pending = Vec::with_capacity(names.len());
        for asked in driver.request_all(turns) {
            pending.push(Pending::new(driver.clone(), asked));
        }
        // They are answered together. If the request failed in part, its guards are dropped, and so released.
        let (mut guards, mut is_taken) = (Vec::with_capacity(pending.len()), false);
        for ((pending, name), (key, _)) in pending.iter_mut().zip(names).zip(keys) {
            let response = (&mut *pending).await;
            let guard = pending.guard(response, key, name).map_err(|error| Refused::at(key, error))?;
            is_taken |= guard.is_none();
            guards.extend(guard);
        }
        for guard in &guards {
            // A context that was frozen between the grant and this moment learns of a loss before its code goes on.
            is_taken = is_taken || !(guard.is_valid() || guard.is_confirmed().await);
        }
        Ok(Some(guards).filter(|_| !is_taken))
    }

    /// Whether some keys were held by dead contexts, such as an earlier incarnation of this
    /// [instance](crate::LeaseManagerBuilder::instance), and all of these are free now. Only a request for a single key finds out whether
    /// its holder is alive. Such requests wait side by side, after a look at one key after the other.
    // Protocol: docs/protocol.md#s9.
    async fn outlives_holders(&self) -> Result<bool, Box<Refused>> {
        let (instance, mut suspects) = (self.leases.instance(), Vec::new());
        for (name, mode) in &self.keys {
            let at_key = |error| Refused::at(name, error);
            let LeaseStatus { key, holders, queue, .. } =
                self.leases.look_at(name).await.map_err(|refused| at_key(*refused))?;
            let may_be_dead = |holder: &HolderStatus| {
                !holder.own && (holder.beacon || instance.is_some_and(|own| holder.instance == own))
            };
            // The holders may share the key. Then only waiters are in the way.
            let waits_dead = *mode == Mode::Shared && queue.iter().any(|waiter| !waiter.own && waiter.beacon);
            if waits_dead || holders.iter().any(may_be_dead) {
                suspects.push((name, *mode, key));
            }
        }
        // All keys have been inspected before the first one is tried, so none of them is held meanwhile.
        let mut tries = Vec::new();
        for (name, mode, key) in suspects {
            let turn = Turn { mode, ..self.wish.turn(key, false, None) };
            tries.push((name, Pending::start(self.leases.driver().clone(), turn, Input::Acquire)));
        }
        for (name, pending) in &mut tries {
            let response = (&mut *pending).await;
            if pending.guard(response, name, None).map_err(|error| Refused::at(name, error))?.is_none() {
                return Ok(false);
            }
        }
        Ok(!tries.is_empty())
    }

    /// One of the keys, within the time that is left for all of them.
    fn one(&self, name: &str, mode: Mode, deadline: Option<Monotonic>) -> LeaseRequest {
        let Self { leases, wish, .. } = self;
        let now = leases.driver().executor.now().monotonic;
        let mut request = leases.lock(name);
        request.wish = Wish { mode, ..wish.clone() };
        request.wish.timeout = deadline.map(|deadline| Duration::from_millis(deadline.since(now)));
        request
    }
}

/// Lets other tasks run after a refusal that came before any request was polled. A request that was polled has done so itself.
async fn lets_others_go_on<T>(leases: &LeaseManager, asked: &Result<T, Box<Refused>>) {
    if asked.is_err() {
        leases.driver().proceed().await;
    }
}

/// The wait for a lease while others are held.
type Waiting<'a> = MaybeSendFuture<'a, Result<Vec<LeaseGuard>, Box<Refused>>>;

/// Why several leases were not granted.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The key that could not be acquired, if it was one.
    #[allow(dead_code, reason = "only the JavaScript bindings tell it")]
    pub(crate) key: Option<String>,
    pub(crate) error: AcquireError,
}

impl Refused {
    fn at(key: &str, error: AcquireError) -> Box<Self> {
        Box::new(Self { key: Some(key.to_owned()), error })
    }
}

impl From<AcquireError> for Box<Refused> {
    fn from(error: AcquireError) -> Self {
        Self::new(Refused { key: None, error })
    }
}

/// The leases that are held while others are waited for.
#[derive(Default)]
struct Holds {
    guards: Vec<LeaseGuard>,
    lost: Vec<MaybeSendFuture<'static, LostReason>>,
}

impl Holds {
    fn add(&mut self, guard: LeaseGuard) {
        self.lost.push(Box::pin(guard.lost()));
        self.guards.push(guard);
    }

    /// Waits as long as all of them are held. This polls by hand, because a `select` would enlarge the wasm.
    async fn wait_for(&mut self, mut waiting: Waiting<'_>) -> Result<Vec<LeaseGuard>, Box<Refused>> {
        poll_fn(|context| {
            let granted = waiting.as_mut().poll(context);
            if let Poll::Ready(Err(_)) = granted {
                return granted;
            }
            // What was held may have been lost before the last one was granted.
            for (lost, guard) in self.lost.iter_mut().zip(&self.guards) {
                if let Poll::Ready(reason) = lost.as_mut().poll(context) {
                    return Poll::Ready(Err(Refused::at(guard.key(), guard.lost_by(reason))));
                }
            }
            granted
        })
        .await
    }
}
