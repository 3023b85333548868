//! The lease manager: it connects one context to a store.

use alloc::{borrow::ToOwned, boxed::Box, format, string::String, vec::Vec};
use core::{fmt, future::Future};

use crate::client::builder::{KeyCodec, LeaseManagerBuilder};
use crate::client::error::AcquireError;
use crate::client::guard::LeaseGuard;
use crate::client::look::{is_without_tasks, look_at_all};
use crate::client::parts::LeaseParts;
use crate::client::pending::Pending;
use crate::client::request::LeaseRequest;
use crate::client::status::{HolderStatus, LeaseStatus, unseen};
use crate::driver::Driver;
use crate::driver::{LeaseEvents, LeaseStats};
use crate::executor::{Executor, MaybeSend, Shared};
use crate::machine::{
    Input, InvalidKey, Key, LostReason, Mode, Options, SessionId, StoreError, Turn, TurnId, whole_ms,
};
use crate::store::Store;

/// Connects one context to the leases of a store. Clones are handles to the same context.
///
/// While a manager holds or waits, it has a *session* of its own: its leases belong to the session, and end with it. Two managers of one
/// process exclude each other. In a browser, managers and guards are not `Send`: use a `thread_local!`.
///
/// ```
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
/// let guard = leases.lock("notes").acquire().await?;
/// assert!(guard.is_valid());
/// guard.release().await?;
/// leases.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LeaseManager {
    door: Shared<Door>,
}

/// What all clones of a manager share. Its guards do not keep this alive.
struct Door {
    driver: Shared<Driver>,
    codec: Option<Shared<dyn KeyCodec>>,
    instance: Option<String>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.driver.tell_leaks();
    }
}

/// The session, and the place of the store, which says who shares it.
impl fmt::Debug for LeaseManager {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, reach) = (self.session(), (*self.driver().store).reach());
        out.debug_struct("LeaseManager").field("session", &session).field("store", &reach).finish()
    }
}

impl LeaseManager {
    pub(super) fn new(driver: Shared<Driver>, codec: Option<Shared<dyn KeyCodec>>, instance: Option<String>) -> Self {
        Self { door: Shared::new(Door { driver, codec, instance }) }
    }

    /// Starts building a manager.
    pub fn builder(store: impl Store, executor: impl Executor) -> LeaseManagerBuilder {
        LeaseManagerBuilder::new(Shared::new(store), Shared::new(executor), Options::default())
    }

    /// A request for the lease of this key: 1 to 1024 UTF-16 units. Keys that begin with `\0lock:` are reserved for `leases.locks` of the
    /// npm package. [`acquire`](LeaseRequest::acquire) reports an invalid key.
    pub fn lock(&self, key: &str) -> LeaseRequest {
        match self.encode(key) {
            Ok((key, name)) => LeaseRequest::new(self.driver().clone(), Ok(key), name),
            Err(invalid) => LeaseRequest::new(self.driver().clone(), Err(invalid), None),
        }
    }

    pub(crate) fn driver(&self) -> &Shared<Driver> {
        &self.door.driver
    }

    /// The name of this context, which is stable over restarts.
    pub(crate) fn instance(&self) -> Option<&str> {
        self.door.instance.as_deref()
    }

    /// The store's name for a key, and the user's if it is another.
    pub(crate) fn encode(&self, name: &str) -> Result<(Key, Option<String>), InvalidKey> {
        let (key, name) = match &self.door.codec {
            None => (self.driver().key(name)?, None),
            Some(codec) => (Key::new(name).and_then(|_| Key::new(&codec(name)))?, Some(name.to_owned())),
        };
        if key.is_of_lock() { Err(InvalidKey::Reserved) } else { Ok((key, name)) }
    }

    /// The id of this context's session, as [`status`](Self::status) shows it: of the open session, or of the next one.
    pub fn session(&self) -> SessionId {
        self.driver().session()
    }

    /// Reads which contexts hold a key, and which wait for it. See [`LeaseStatus`].
    ///
    /// This renews nothing. So it also works without a runtime if the store needs none, as in memory and in SQLite.
    ///
    /// # Errors
    /// [`AcquireError`] if the key is invalid, the record cannot be read, or the store failed.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes").info("tab 1").acquire().await?;
    /// let status = leases.status("notes").await?;
    /// assert_eq!(status.holders[0].info, "tab 1");
    /// # Ok(()) }
    /// ```
    pub async fn status(&self, key: &str) -> Result<LeaseStatus, AcquireError> {
        self.driver().proceed().await;
        self.look_at(key).await.map_err(|refused| *refused)
    }

    pub(crate) async fn look_at(&self, key: &str) -> Result<LeaseStatus, Box<AcquireError>> {
        let (key, _) = self.encode(key).map_err(AcquireError::from)?;
        let without_tasks = is_without_tasks(self.driver())?;
        let mut looks = look_at_all(self.driver(), Vec::from([key]), without_tasks).await?;
        looks.pop().ok_or_else(|| Box::new(AcquireError::Closed))
    }

    /// Reads all keys with this prefix that are held or waited for, in order. With a [key codec](LeaseManagerBuilder::key_codec) the prefix
    /// is compared with the store's names for the keys. Like [`status`](Self::status), it needs no runtime if the store needs none.
    ///
    /// # Errors
    /// [`AcquireError`] if a record cannot be read, or the store failed.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let guard = leases.lock("notes/1").acquire().await?;
    /// let held = leases.list("notes/").await?;
    /// assert_eq!(held[0].key.as_str(), "notes/1");
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, prefix: &str) -> Result<Vec<LeaseStatus>, AcquireError> {
        self.driver().proceed().await;
        self.in_use(prefix, false).await.map_err(|refused| *refused)
    }

    /// The state, at one moment, of all keys with this prefix that are held or waited for, after everything that this context requested
    /// before: only the keys of `leases.locks`, or only all others.
    pub(crate) async fn in_use(&self, prefix: &str, locks: bool) -> Result<Vec<LeaseStatus>, Box<AcquireError>> {
        let without_tasks = is_without_tasks(self.driver())?;
        let own = self.driver().keys_under(prefix);
        let stored = stored_keys(self.driver(), prefix).await?;
        let mut keys = Vec::with_capacity(stored.len());
        for key in stored.into_iter().chain(own) {
            if key.is_of_lock() == locks
                && let Err(at) = keys.binary_search(&key)
            {
                keys.insert(at, key);
            }
        }
        let mut listed = look_at_all(self.driver(), keys, without_tasks).await?;
        listed.retain(|status| !status.is_idle());
        Ok(listed)
    }

    /// Reads who leads: the exclusive holder of the key, or `None` if there is none. See [`elect`](Self::elect).
    ///
    /// # Errors
    /// As for [`status`](Self::status).
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn leader(&self, key: &str) -> Result<Option<HolderStatus>, AcquireError> {
        let holders = self.status(key).await?.holders;
        Ok(holders.into_iter().find(|holder| holder.mode == Mode::Exclusive))
    }

    /// What this manager has done since it was built.
    pub fn stats(&self) -> LeaseStats {
        self.driver().stats()
    }

    /// A stream of what happens to the leases of this manager from now on, in order. It ends when the manager has [closed](Self::close), or
    /// was dropped together with its guards. Events cost nothing while no stream exists.
    ///
    /// ```
    /// # use leasehold::{LeaseEventKind, LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let mut events = leases.events();
    /// leases.lock("notes").acquire().await?.release().await?;
    /// leases.close().await;
    /// let mut told = Vec::new();
    /// while let Some(event) = events.next().await {
    ///     told.push(event.kind.name());
    /// }
    /// assert_eq!(told, ["granted", "released"]);
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> LeaseEvents {
        self.driver().events()
    }

    /// Makes a guard from the [parts](LeaseGuard::into_parts) of another one, of this or another context with the same store. The new guard
    /// has a larger token than the old one.
    ///
    /// # Errors
    /// [`AcquireError::NotResumable`] if this store does not have the lease: it expired, was taken over or resumed in the meantime, or
    /// belongs to another store. [`AcquireError::EmptyParts`] if the parts hold no lease because clones of the guard lived, or other
    /// requests shared its lease. Otherwise as for [`acquire`](LeaseRequest::acquire).
    ///
    /// # Cancel safety
    /// Dropping the future releases the lease, or leaves it as it was before the call, for example if the future was never polled. Then you
    /// can resume a clone of the parts. Without a clone, the key is free only when the lease expires.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let parts = leases.lock("notes").acquire().await?.into_parts();
    /// let token = parts.token();
    /// let guard = leases.resume(parts).await?;
    /// assert!(guard.is_valid() && guard.token() > token);
    /// # Ok(()) }
    /// ```
    pub async fn resume(&self, parts: LeaseParts) -> Result<LeaseGuard, AcquireError> {
        let (key, name) = self.encode(parts.key())?;
        self.driver().admit().await?;
        let parcel = parts.parcel().cloned().ok_or(AcquireError::EmptyParts)?;
        let turn = Turn { mode: parts.mode(), wait: false, alone: true, ..Turn::new(TurnId::default(), key) };
        let mut pending = Pending::start(self.driver().clone(), turn, |turn| Input::Resume { turn, parcel });
        let response = (&mut pending).await;
        match pending.guard(response, parts.key(), name) {
            // If the store does not have a lease, it cannot tell what became of it.
            Ok(None) | Err(AcquireError::Lost { reason: LostReason::Expired, .. }) => Err(AcquireError::NotResumable),
            Ok(Some(guard)) => Ok(guard),
            Err(error) => Err(error),
        }
    }

    /// Call this when the platform is about to stop this context. All leases are lost at once, as [`Suspended`](LostReason::Suspended), and
    /// the context's beacon, its sign of life, is removed. Requests wait until the context [wakes](Self::wake).
    pub fn suspend(&self) {
        self.driver().suspend();
    }

    /// Call this when the context runs again. It gets a new [session](Self::session), and its waiting requests queue again,
    /// within their time-outs.
    pub fn wake(&self) {
        self.driver().wake_up();
    }

    /// [Closes](Self::close) the manager when this future ends. The future may, for example, wait for a signal to the process.
    ///
    /// Await [`close`](Self::close) as well before the program ends: work and requests fail as soon as the closing begins, and the end of
    /// the runtime would interrupt it. Work that makes no requests meanwhile does not notice the closing: stop it by the same signal, or
    /// when [`events`](Self::events) ends. After `TokioExecutor::shutdown_signal()`, Ctrl-C and SIGTERM no longer end the process: the
    /// program has to end by itself, for example at a second signal, as the documentation of that function shows.
    ///
    /// The future is kept until it ends, even if the manager was closed or dropped long before. So a program that builds one manager after
    /// another should not call this for each.
    ///
    /// If you call this outside a tokio runtime before the first request, nothing polls the future until that request is made. From then
    /// on, the runtime of that request polls it.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// leases.close_when(TokioExecutor::shutdown_signal());    // SIGTERM, SIGINT
    /// # Ok(()) }
    /// ```
    pub fn close_when(&self, end: impl Future<Output = ()> + MaybeSend + 'static) {
        let driver = Shared::downgrade(self.driver());
        self.driver().executor.spawn(Box::pin(async move {
            end.await;
            // Without a manager and guards, everything was released before.
            if let Some(driver) = driver.upgrade() {
                driver.close().await;
            }
        }));
    }

    /// Refuses new requests, withdraws the waiting ones, releases all leases, and closes the store, also for any other manager that was
    /// built over the same `Arc`. Guards that still exist are [lost](crate::LeaseGuard::lost) with [`LostReason::Closed`]. It ends within
    /// two store time-outs, whatever the store does. If the manager's runtime has ended, it ends at once. A second call also waits until
    /// the store is closed, within the same limit.
    ///
    /// You may also call it on a thread without a runtime, or in a runtime without timers. Then the manager's own runtime does the work,
    /// and must run meanwhile: a current-thread runtime runs only while a thread is inside its `block_on`.
    ///
    /// # Cancel safety
    /// The closing begins when the future is first polled. Dropping it after that does not stop the closing, but the store may stay open
    /// until `close` is called again.
    pub async fn close(&self) {
        self.driver().close().await;
    }

    /// Whether [`close`](Self::close) has begun, in any clone, or by [`close_when`](Self::close_when). From then on all requests are
    /// refused as [`AcquireError::Closed`]. Some leases may not be released yet: `close` waits for that.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// leases.close().await;
    /// assert!(leases.is_closed());
    /// # Ok(()) }
    /// ```
    pub fn is_closed(&self) -> bool {
        self.driver().is_closed()
    }
}

/// The store's keys, within the time limit of a store operation.
async fn stored_keys(driver: &Driver, prefix: &str) -> Result<Vec<Key>, Box<AcquireError>> {
    driver.check_process().map_err(AcquireError::from)?;
    let limit = driver.store_timeout;
    let listed = driver.within(limit, (*driver.store).keys(prefix)).await;
    let late = || StoreError::transient(format!("the store did not list its keys within {} ms", whole_ms(limit)));
    listed.unwrap_or_else(|| Err(late())).map_err(|error| Box::new(unseen(driver, error)))
}
