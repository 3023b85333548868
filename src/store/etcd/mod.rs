//! A store in an etcd cluster, which the processes of many machines share.

mod address;
mod failure;
mod fence;
mod rows;
mod servers;
mod signals;
mod transaction;

use core::{fmt, time::Duration};
use std::{
    format,
    string::String,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    vec::Vec,
};

use async_trait::async_trait;
use etcd_client::{GetOptions, SortOrder, SortTarget};
use tokio::{runtime::Handle, time::Instant};

use super::{Durability, Reach, Store};
use crate::executor::Shared;
use crate::machine::{Batch, Key, Now, Reply, Row, StoreError, StoreErrorKind, StoreNow};
use crate::signal::Signals;

use address::Address;
use failure::Load;
pub use fence::{EtcdCompare, EtcdFence};
use rows::{Memory, Names};
use servers::Servers;
use signals::EtcdSignals;
use transaction::Desk;

/// Leases in an [etcd](https://etcd.io) cluster, 3.4 or newer: for processes on many machines, and for leases that must survive the loss
/// of some of them.
///
/// * Each change is an etcd transaction that compares all rows it went by, so it is applied on the majority of the servers or not
///   at all. Reads are linearizable.
/// * Acquiring, and releasing, is one round trip each for whoever had the lease last, and up to three for the others.
/// * A release wakes the next waiter by a key that it watches ([`Store::signals`]). There are no beacons: a holder that dies is
///   replaced after a lease of silence.
/// * A heartbeat is a transaction, too: a third of a lease apart, one for each context that holds or waits.
/// * A transaction has a row for each key of its requests, and for each session at them. etcd takes 128 at once unless it was started
///   with a larger `--max-txn-ops`.
/// * It is always connected without TLS.
///
/// It must be connected within a tokio runtime, which must outlive it. Clone a [`LeaseManager`](crate::LeaseManager) rather than
/// connect again.
///
/// ```no_run
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::EtcdStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = EtcdStore::connect("etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379").await?;
/// let leases = LeaseManager::builder(store, TokioExecutor::new()).build()?;
/// let guard = leases.lock("nightly report").acquire().await?;
/// // … of all processes on this cluster, this one writes the report …
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub struct EtcdStore {
    servers: Arc<Servers>,
    names: Names,
    memory: Memory,
    runtime: Handle,
    closed: AtomicBool,
}

/// What keys begin with, unless somebody chooses.
const PREFIX: &str = "leasehold";
/// How long connecting, and listing, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many keys are listed at once.
const PAGE: i64 = 500;

impl EtcdStore {
    /// Connects to the servers of one cluster: `etcd://host:port`, or several with commas between, and `user:password@` before the
    /// first if etcd asks for a user. What is no letter or digit in a password is percent-encoded. The port is 2379 unless it is named.
    ///
    /// One server that answers is enough. The others are asked when it fails.
    ///
    /// # Errors
    /// [`StoreError`] if no server answers within 10 s, if what answers is no etcd, or if it refuses the user; and if this is
    /// called outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes what it opened. Nothing is written.
    pub async fn connect(servers: &str) -> Result<Self, StoreError> {
        Self::connect_with_prefix(servers, PREFIX).await
    }

    /// Connects, and keeps the leases below other keys: `<prefix>/store`, `<prefix>/record/…`, `<prefix>/session/…` and
    /// `<prefix>/message/…`. Each prefix is a store of its own.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); and if the prefix is not 1 to 200 visible ASCII characters, ends with a slash, or has one of
    /// the four names above between its slashes.
    ///
    /// # Cancel safety
    /// As for [`connect`](Self::connect).
    pub async fn connect_with_prefix(servers: &str, prefix: &str) -> Result<Self, StoreError> {
        address::check_prefix(prefix)?;
        let address = Address::parse(servers)?;
        let runtime = Handle::try_current().map_err(|_| {
            address::refused(
                "there is no tokio runtime here; connect to etcd inside the one that the leases are used in",
            )
        })?;
        let names = Names { prefix: prefix.into() };
        let servers = Servers::connect(address, names.of(&Row::Store), Instant::now() + PATIENCE).await?;
        let closed = AtomicBool::new(false);
        Ok(Self { servers: Arc::new(servers), names, memory: Memory::default(), runtime, closed })
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.closed.load(Relaxed) {
            return Err(StoreError::permanent(StoreErrorKind::Closed, "this connection to etcd was closed"));
        }
        Ok(())
    }

    fn desk(&self) -> Desk<'_> {
        Desk { servers: &self.servers, names: &self.names, memory: &self.memory }
    }

    /// Some keys from this name on, as they are now, and whether there are more.
    async fn page(&self, from: Vec<u8>, end: Vec<u8>, deadline: Instant) -> Result<(Vec<Vec<u8>>, bool), StoreError> {
        let options = GetOptions::new().with_range(end).with_keys_only().with_limit(PAGE);
        let options = options.with_sort(SortTarget::Key, SortOrder::Ascend);
        let asked = self
            .servers
            .ask(Load::default(), deadline, |client| async move { client.kv_client().get(from, Some(options)).await });
        let found = asked.await.map_err(|failure| failure.error)?;
        Ok((found.kvs().iter().map(|found| found.key().to_vec()).collect(), found.more()))
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("EtcdStore").field(&self.reach()).finish()
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.check()?;
        let now = StoreNow::new(self.clock(), now);
        self.desk().transact(&batch, now, Instant::now() + limit).await
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.check()?;
        let (mut keys, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        let mut from = self.names.record(prefix).into_bytes();
        let end = after_all(&from);
        loop {
            let (names, more) = self.page(from, end.clone(), deadline).await?;
            keys.extend(names.iter().filter_map(|name| self.names.key_of(name)));
            let Some(last) = names.into_iter().last().filter(|_| more) else { return Ok(keys) };
            from = last;
            from.push(0);
        }
    }

    fn signals(&self) -> Option<Shared<dyn Signals>> {
        Some(Shared::new(EtcdSignals::new(Arc::clone(&self.servers), self.names.clone(), self.runtime.clone())))
    }

    async fn close(&self) {
        self.closed.store(true, Relaxed);
        self.memory.forget();
    }

    fn durability(&self) -> Durability {
        Durability::Quorum
    }

    fn reach(&self) -> Reach {
        let (cluster, prefix): (_, &String) = (self.servers.cluster(), &self.names.prefix);
        Reach::Named(format!("etcd:{cluster:016x}/{prefix}"))
    }
}

/// The first key that is after all that begin like this one. A prefix has a byte that is not the last one.
fn after_all(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}
