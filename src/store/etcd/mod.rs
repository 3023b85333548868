//! A store in an etcd cluster that processes on many machines share.

mod address;
mod failure;
mod fence;
mod listing;
mod look;
mod reservation;
mod rows;
mod servers;
mod signals;
mod sweep;
mod tls;
mod transaction;
mod url;
mod witness;

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
use futures::FutureExt;
use tokio::{runtime::Handle, time::Instant};

use super::{
    Durability, Reach, Store,
    idle::is_idle,
    inside::{inside, runtime_for},
    sweep::PAGE,
    under_way::UnderWay,
};
use crate::executor::Shared;
use crate::machine::{Batch, Key, Now, Reply, Row, StoreError, StoreErrorKind, StoreNow};
use crate::signal::Signals;

use address::Address;
pub use fence::{EtcdCompare, EtcdFence};
use listing::page;
use reservation::Sightings;
use rows::{Memory, Names};
use servers::Servers;
use signals::{Bin, EtcdSignals};
use transaction::Desk;
use witness::Witness;

/// Leases in an [etcd](https://etcd.io) cluster, 3.4 or newer: for processes on many machines, where the leases must survive the loss of
/// a minority of etcd's servers.
///
/// * Each change is an etcd transaction that compares all rows that the decision rests on. It is committed by a majority of the servers
///   or not at all. Reads are linearizable.
/// * To acquire or to release takes one round trip for the context that had the lease last, and up to three for the others, if nobody
///   else changes the rows meanwhile.
/// * A release notifies the next waiter through a key that the waiter watches ([`Store::signals`]). There are no beacons: a holder that
///   dies is replaced after a lease of silence.
/// * Each context that holds or waits sends a heartbeat, which is a transaction, every quarter of a lease.
/// * A transaction has a row for each key that it concerns, and for each session that holds or waits there. etcd allows 128 in one
///   transaction, unless it was started with a larger `--max-txn-ops`. Requests made at one moment are divided accordingly, except for
///   a single [`lock_all`](crate::LeaseManager::lock_all). `status` of a longer queue reads it in several transactions, all at one
///   revision.
/// * Connections are encrypted if the address begins with `etcds://` or `https://` and the feature `store-etcd-tls` is on: see
///   [`connect`](Self::connect).
///
/// Connect it within a tokio runtime, which must outlive it. Clone the [`LeaseManager`](crate::LeaseManager) rather than connect again.
///
/// ```no_run
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::EtcdStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = EtcdStore::connect("etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379").await?;
/// let leases = LeaseManager::builder(store, TokioExecutor::new()).build()?;
/// let guard = leases.lock("nightly report").acquire().await?;
/// // … of all processes that use this cluster, only this one writes the report …
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub struct EtcdStore {
    servers: Arc<Servers>,
    names: Names,
    memory: Memory,
    sightings: Sightings,
    bin: Bin,
    under_way: UnderWay,
    runtime: Handle,
    witness: Witness,
    closed: Arc<AtomicBool>,
    has_swept: AtomicBool,
}

/// What keys begin with, unless somebody chooses.
const PREFIX: &str = "leasehold";
/// How long connecting, and listing, may take.
const PATIENCE: Duration = Duration::from_secs(10);

impl EtcdStore {
    /// Connects to the servers of one cluster: `etcd://host:port`, or several hosts separated by commas, with `user:password@` before
    /// the first if etcd requires a user. Percent-encode special characters in the password. The default port is 2379.
    ///
    /// One server that answers is enough. If it fails, the others are asked. If all of them belong to a new cluster, the store uses it, and
    /// reports the leases of the old one as lost.
    ///
    /// With `etcds://` or `https://`, connections are encrypted, which needs the feature `store-etcd-tls`. The server's certificate must be
    /// signed by an authority that the system trusts, or by the CA in a file that the address names, and must name the host as the address
    /// does. The files are PEM. They are read again after a connection failed, so you may replace them while the program runs.
    /// Percent-encode special characters.
    ///
    /// | parameter | names |
    /// | --- | --- |
    /// | `ca` | the file with the certificates of one or more CAs; no other is trusted then |
    /// | `cert`, `key` | the files with this program's own certificate and its key, for an etcd with `--client-cert-auth` |
    /// | `server_name` | the name in the servers' certificates, if it is not the host's |
    ///
    /// `etcds://one:2379,two:2379?ca=/etc/app/ca.pem&cert=/etc/app/app.pem&key=/etc/app/app.key`
    ///
    /// # Errors
    /// [`StoreError`] if no server answers (each may take 2 s, and all of them 10 s together), if what answers is not etcd, if it
    /// refuses the user or the certificate, if its own certificate is not trusted, if a file cannot be read, or if this is called
    /// outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes what it opened. Nothing is written.
    pub async fn connect(servers: &str) -> Result<Self, StoreError> {
        Self::connect_with_prefix(servers, PREFIX).await
    }

    /// As [`connect`](Self::connect), with a prefix of your own for the keys: `<prefix>/store`, `<prefix>/record/…`,
    /// `<prefix>/session/…`, `<prefix>/message/…` and `<prefix>/reserved/…`. Each prefix is a store of its own.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); and if the prefix is not 1 to 200 visible ASCII characters, ends with a slash, or has one of
    /// the five names above between its slashes.
    ///
    /// # Cancel safety
    /// As for [`connect`](Self::connect).
    pub async fn connect_with_prefix(servers: &str, prefix: &str) -> Result<Self, StoreError> {
        address::check_prefix(prefix)?;
        let address = Address::parse(servers)?;
        let runtime = runtime_for("etcd")?;
        let names = Names { prefix: prefix.into() };
        // Boxed, because an application's futures contain this one, and the compiler refuses futures that nest too deeply.
        let servers = Servers::connect(address, names.of(&Row::Store), Instant::now() + PATIENCE).boxed().await?;
        let (closed, has_swept) = (Arc::default(), AtomicBool::new(false));
        Ok(Self {
            servers: Arc::new(servers),
            names,
            memory: Memory::default(),
            sightings: Sightings::default(),
            bin: Bin::default(),
            under_way: UnderWay::new(),
            witness: Witness::new(&runtime),
            runtime,
            closed,
            has_swept,
        })
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.closed.load(Relaxed) {
            return Err(StoreError::permanent(
                StoreErrorKind::Closed,
                "this EtcdStore was closed; connect another one",
            ));
        }
        self.witness.check()
    }

    fn desk(&self) -> Desk<'_> {
        let Self { servers, names, memory, sightings, bin, .. } = self;
        Desk { servers, names, memory, sightings, bin: Some(bin) }
    }

    /// After the first transaction, it looks once whether there are too many idle records.
    fn sweep(&self, batch: &Batch, now: StoreNow) {
        if !self.has_swept.swap(true, Relaxed) {
            let (servers, closed) = (Arc::clone(&self.servers), Arc::clone(&self.closed));
            let records = sweep::Records { servers, names: self.names.clone(), closed, now };
            self.runtime.spawn(super::sweep::sweep(records, batch.session, batch.keys().pop()));
        }
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("EtcdStore").field(&self.reach()).finish()
    }
}

/// The keys whose records have names with this prefix, without those of idle records.
async fn used_keys(servers: Arc<Servers>, names: Names, prefix: String) -> Result<Vec<Key>, StoreError> {
    let (mut keys, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    let mut next = Some(prefix.clone().into_bytes());
    while let Some(from) = next {
        let (found, after) = page(&servers, &prefix, from, PAGE, deadline).await?;
        let used = found.iter().filter(|(_, text)| !core::str::from_utf8(text).is_ok_and(is_idle));
        keys.extend(used.filter_map(|(name, _)| names.key_of(name)));
        next = after;
    }
    Ok(keys)
}

#[async_trait]
impl Store for EtcdStore {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.check()?;
        let now = StoreNow::new(self.clock(), now);
        let reply = self.desk().transact(&batch, now, Instant::now() + limit).await?;
        self.sweep(&batch, now);
        Ok(reply)
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        self.check()?;
        let (servers, names, prefix) = (Arc::clone(&self.servers), self.names.clone(), self.names.record(prefix));
        inside(&self.runtime, used_keys(servers, names, prefix)).await?
    }

    fn signals(&self) -> Option<Shared<dyn Signals>> {
        let (servers, names, bin) = (Arc::clone(&self.servers), self.names.clone(), self.bin.clone());
        Some(Shared::new(EtcdSignals::new(servers, names, bin, self.under_way.clone(), self.runtime.clone())))
    }

    async fn close(&self) {
        self.closed.store(true, Relaxed);
        self.memory.forget();
        // If a message were lost here, a waiter that was granted the lease would learn of it only at its next heartbeat.
        self.under_way.settle(&self.runtime).await;
        self.servers.close();
    }

    fn durability(&self) -> Durability {
        Durability::Quorum
    }

    fn reach(&self) -> Reach {
        let (cluster, prefix): (_, &String) = (self.servers.cluster(), &self.names.prefix);
        Reach::Named(format!("etcd:{cluster:016x}/{prefix}"))
    }
}
