//! How a manager is to work: its options, and its world.

use alloc::string::String;
use core::{fmt, time::Duration};

use crate::client::manager::LeaseManager;
use crate::driver::Driver;
use crate::executor::{Executor, MaybeSendSync, Shared};
use crate::machine::{Config, InvalidOptions, Key, Options};
use crate::signal::{self, Signals};
use crate::store::Store;

/// Maps a key to its name in the store: see [`LeaseManagerBuilder::key_codec`].
pub(crate) trait KeyCodec: Fn(&str) -> String + MaybeSendSync {}
impl<F: Fn(&str) -> String + MaybeSendSync> KeyCodec for F {}

impl fmt::Debug for dyn KeyCodec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KeyCodec")
    }
}

/// Builds a [`LeaseManager`]. Times that are not set follow from the length of the lease. The heartbeat, two store time-outs and the margin
/// (a tenth of the lease, at least 100 ms) must together be shorter than the lease.
#[derive(Debug)]
#[must_use = "nothing happens until it is built"]
pub struct LeaseManagerBuilder {
    store: Shared<dyn Store>,
    executor: Shared<dyn Executor>,
    signals: Option<Shared<dyn Signals>>,
    codec: Option<Shared<dyn KeyCodec>>,
    long_wait: Duration,
    /// How JavaScript is warned; in Rust `tracing` does it.
    pub(crate) warn_of_own_wait: fn(&Key),
    pub(crate) linger_is_chosen: bool,
    options: Options,
}

/// A longer wait is worth a warning.
const LONG_WAIT: Duration = Duration::from_secs(60);

impl LeaseManagerBuilder {
    pub(crate) fn new(store: Shared<dyn Store>, executor: Shared<dyn Executor>, options: Options) -> Self {
        Self {
            store,
            executor,
            signals: None,
            codec: None,
            long_wait: LONG_WAIT,
            warn_of_own_wait: |_| {},
            linger_is_chosen: false,
            options,
        }
    }

    /// How long a lease lasts without renewal: 1 s to 24 h, by default 20 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How often leases are renewed: at least 100 ms, by default a quarter of the lease.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.options.heartbeat = Some(heartbeat);
        self
    }

    /// The time limit of one store operation. The default is a quarter of the lease or 5 s, whichever is shorter.
    pub fn store_timeout(mut self, limit: Duration) -> Self {
        self.options.store_timeout = Some(limit);
        self
    }

    /// How often the context may pass a lease from one of its requests to the next while another context waits: at least once, and by
    /// default 32 times. Then its requests that still wait move to the end of the queue together.
    pub fn max_local_handoffs(mut self, handoffs: u32) -> Self {
        self.options.max_local_handoffs = handoffs;
        self
    }

    /// While another context waits, the context may pass a lease to its own next request only for this long after the store granted it: by
    /// default 50 ms. If a request holds the lease for longer, the other context is next. With zero, the context passes nothing on while
    /// others wait.
    pub fn max_tenure(mut self, tenure: Duration) -> Self {
        self.options.max_tenure = tenure;
        self
    }

    /// How long the context keeps an unused lease that nobody else wants, so that its next request with the same
    /// [`info`](crate::LeaseRequest::info) costs no transaction. Zero releases it at once; more than a day is refused.
    ///
    /// The default is 100 ms where a context that ends leaves nothing behind: in a page, which is notified of its end, and over a store
    /// that ends with the process. Elsewhere it is zero: a process that ended while a lease lingered would leave it in the store, and its
    /// successor would wait until the lease has expired. Choose a linger there only for a process that [closes](LeaseManager::close) its
    /// manager before it ends.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.options.linger = linger;
        self.linger_is_chosen = true;
        self
    }

    /// A name of this context that is stable over restarts, such as `worker-1`: at most 1024 bytes. After a restart, the new context takes
    /// over the leases of the dead one as soon as its death is detected. Without beacons this takes a lease and its margin, as with any
    /// other dead holder.
    ///
    /// If the earlier context is alive, a request for one of its keys fails as [`InstanceInUse`](crate::AcquireError::InstanceInUse): with
    /// beacons after 250 ms, and without them or over PostgreSQL once this context has seen a heartbeat of the earlier one,
    /// which takes up to two heartbeats. A [`try_acquire`](crate::LeaseRequest::try_acquire) does not wait for that heartbeat: it returns `None`.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.options.instance = Some(name.into());
        self
    }

    /// A wait that is longer than this, by default a minute, is logged as a `tracing` warning; without the feature `tracing` nothing is
    /// reported.
    pub fn long_wait(mut self, wait: Duration) -> Self {
        self.long_wait = wait;
        self
    }

    /// Replaces the name of each key in the store, so that the store does not reveal the keys. The function must return the
    /// same name each time, and a different one for each key. All contexts must use the same function.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new());
    /// let leases = builder.key_codec(|key| format!("app/{key}")).build()?;
    /// let guard = leases.lock("notes").acquire().await?;
    /// assert_eq!(guard.key(), "notes");
    /// assert_eq!(leases.list("").await?[0].key.as_str(), "app/notes");
    /// # Ok(()) }
    /// ```
    pub fn key_codec(mut self, codec: impl Fn(&str) -> String + MaybeSendSync + 'static) -> Self {
        self.codec = Some(Shared::new(codec));
        self
    }

    /// Whether to use a beacon, a sign of life, where the platform has one. Without it, a dead holder is replaced when it has been silent
    /// for its lease and a tenth, instead of at once.
    pub fn beacon(mut self, beacon: bool) -> Self {
        self.options.beacon = beacon;
        self
    }

    /// Replaces the platform's own signals. The manager uses their beacons only if all contexts that share the store can see them. It
    /// compares [`Signals::beacons`] with [`Store::reach`] to find out, and takes `Beacons::All` at its word. If either answer is wrong,
    /// living holders may be evicted.
    pub fn signals(mut self, signals: impl Signals) -> Self {
        self.signals = Some(Shared::new(signals));
        self
    }

    /// Checks the options and builds the manager. Nothing is opened before the first request.
    ///
    /// # Errors
    /// [`InvalidOptions`] names the invalid value, and the remedy.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, InvalidOptions, executor::TokioExecutor, store::MemoryStore};
    /// # use std::time::Duration;
    /// let refused = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).lease(Duration::ZERO).build();
    /// assert_eq!(refused.unwrap_err(), InvalidOptions::Lease { lease_ms: 0 });
    /// ```
    pub fn build(self) -> Result<LeaseManager, InvalidOptions> {
        let config = Config::parse(&self.options)?;
        let own = || (*self.store).signals().unwrap_or_else(|| signal::for_reach(&(*self.store).reach()));
        let signals = self.signals.unwrap_or_else(own);
        let long_wait = (self.long_wait, self.warn_of_own_wait);
        let driver = Driver::new(self.store, signals, self.executor, config, self.linger_is_chosen, long_wait);
        Ok(LeaseManager::new(driver, self.codec, self.options.instance))
    }
}
