//! Leases in Redis or Valkey: on a single server, under Sentinel, or in a cluster.

mod attempt;
mod cluster;
mod compare;
mod contest;
mod failure;
mod link;
mod listeners;
mod listing;
mod lua;
mod memory;
mod node;
mod outbox;
mod route;
mod script;
mod sentinel;
mod servers;
mod setup;
mod signals;
mod sweep;
mod tls;
mod url;

use core::{fmt, time::Duration};
use std::{
    format,
    string::String,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    vec::Vec,
};

use futures::FutureExt;
use tokio::time::Instant;

use super::{
    Durability, Reach, Store,
    inside::{inside, runtime_for},
};
use crate::executor::Shared;
use crate::machine::{Batch, Key, Now, Reply, StoreError, StoreId, StoreNow};
use crate::signal::Signals;

use attempt::{Place, View, peers_in};
use compare::{Outcome, ScriptInput};
use contest::{Contest, TRIES};
use failure::Stage;
use link::Link;
use signals::RedisSignals;

pub use script::RedisScript;
pub use servers::RedisServers;

/// A server that takes longer is not connected to.
const PATIENCE: Duration = Duration::from_secs(10);
/// The default prefix of the names of our keys and channels.
const PREFIX: &str = "leasehold";

/// Leases in Redis or Valkey, for programs on any machine that can reach it.
///
/// The leases are on a single server, on the master of a Sentinel group, or on a node of a cluster: see [`RedisServers`]. All managers that
/// use the same servers, database and prefix share their leases, and notify each other by PUBLISH and SUBSCRIBE. Build the manager with an
/// `Arc` of the store if you also need [`script`](Self::script), which fences a Lua script by a lease.
///
/// * A transaction reads rows, decides, and runs a script that writes only if those rows are unchanged. It takes one round trip if
///   this process knows the rows, else two, and one more for each time that another context changes them meanwhile. The message that
///   announces a grant brings the record along, and so does the one that tells a holder of a waiter, unless the record is longer than
///   4 KiB or the store is in a cluster.
/// * The rows are the fields of one hash, `{leasehold}:rows`. A sorted set, `{leasehold}:sessions`, has the ids of the sessions. Neither
///   has a time to live; nothing may delete or evict them. A server that may evict any key (`maxmemory-policy allkeys-…`) is refused,
///   and so are a read replica, and a server that would accept writes as a replica (`replica-read-only no`).
/// * **A lease survives what the server's data survives.** With `appendonly yes` and `appendfsync always` the data survives a crash of
///   the server, and [`durability`](Store::durability) is [`Durability::Local`]. Otherwise it is [`Durability::Ephemeral`].
/// * In a cluster the whole store is in one slot, because all its names have the prefix in braces, which is their hash tag. The prefix
///   itself must not contain braces. While the slot is migrated, requests fail as
///   [`StoreErrorKind::Unavailable`](crate::machine::StoreErrorKind), with nothing written, if one of the keys has moved and another has
///   not.
/// * **A failover to a replica may lose the latest writes**, whatever the durability and the cause, and with them the grant of a lease. Two
///   contexts may then believe that they hold it, until the first one has reconnected and learned of the loss, soon after its next
///   heartbeat at the latest. Once the second one has the lease, fenced [scripts](Self::script) run for it only.
/// * A transaction that others have overtaken three times reserves its records for its next try, for a second at most by the server's
///   clock. So a context that is far from the server acquires a key although near ones write its record all the time. A Redis user without
///   the right to `TIME` makes no reservations.
/// * It needs a tokio runtime. Each store has one connection for commands, and each context that holds or waits has another one for
///   messages.
/// * While a context subscribes, at first or after a lost connection, it receives nothing. A message that is meant for it is sent again for
///   about a second. Once it has subscribed again after a lost connection, it reads the store. What it misses at its first subscription, it
///   reads at its next heartbeat.
///
/// ```no_run
/// use leasehold::{LeaseManager, executor::TokioExecutor, store::RedisStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://:secret@redis.example.org:6379/0").await?;
/// let leases = LeaseManager::builder(store, TokioExecutor::new()).build()?;
/// let guard = leases.lock("nightly report").acquire().await?;
/// # drop(guard);
/// # Ok(()) }
/// ```
pub struct RedisStore {
    place: Arc<Place>,
    store: StoreId,
    durability: Durability,
}

/// The prefix is the hash tag of all names.
fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    if !prefix.is_empty() && !prefix.contains(['{', '}']) {
        return Ok(());
    }
    Err(failure::unsupported(format!(
        "{prefix:?} cannot be the prefix of a RedisStore, because all names begin with it in braces, as the hash tag of \
         a cluster; choose one that is not empty and has no brace"
    )))
}

impl RedisStore {
    /// Connects to the server at a URL such as `redis://user:password@host:6379/0` or `unix:///run/redis.sock`, with the
    /// prefix `leasehold`. It waits 10 s at most. [`RedisServers`] lists the URLs of Sentinel groups and clusters.
    ///
    /// `rediss://` encrypts the connections, with the feature `store-redis-tls`; see [`RedisServers`] for the files with certificates that
    /// the URL may name. For another TLS library, enable a feature of the crate `redis` such as `tokio-native-tls-comp`. If you also have
    /// certificates of your own, make a client by `redis::Client::build_with_tls`, and use [`from_client`](Self::from_client).
    ///
    /// # Errors
    /// [`StoreError`], with a remedy, if the URL is invalid; or if the server cannot be reached, refuses the password, is a read
    /// replica, may evict any key, has no memory left, or keeps something else under the name of our hash; if no Sentinel knows the master,
    /// or if no node of the cluster has the slot.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most the store's own row behind, which the next connection uses.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with_prefix(url, PREFIX).await
    }

    /// As [`connect`](Self::connect), with a client of the crate `redis` that you made, for example with TLS; or with several of them, as
    /// [`RedisServers`].
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// As for [`connect`](Self::connect).
    pub async fn from_client(servers: impl Into<RedisServers>) -> Result<Self, StoreError> {
        Self::with_prefix(servers, PREFIX).await
    }

    /// As [`connect`](Self::connect), with a prefix of your own: programs with different prefixes share no leases.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); and if the prefix is empty or contains a brace.
    ///
    /// # Cancel safety
    /// As for [`connect`](Self::connect).
    pub async fn connect_with_prefix(url: &str, prefix: &str) -> Result<Self, StoreError> {
        Self::with_prefix(url.parse::<RedisServers>()?, prefix).await
    }

    /// As [`from_client`](Self::from_client), with a prefix of your own: programs with different prefixes share no leases.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); and if the prefix is empty or contains a brace.
    ///
    /// # Cancel safety
    /// As for [`connect`](Self::connect).
    ///
    /// ```no_run
    /// use leasehold::store::{RedisServers, RedisStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1/")?;
    /// let store = RedisStore::with_prefix(client, "billing").await?;
    /// # drop(store);
    /// let nodes = [redis::Client::open("redis://10.0.0.1/")?, redis::Client::open("redis://10.0.0.2/")?];
    /// let store = RedisStore::with_prefix(RedisServers::cluster(nodes), "billing").await?;
    /// # drop(store);
    /// # Ok(()) }
    /// ```
    pub async fn with_prefix(servers: impl Into<RedisServers>, prefix: &str) -> Result<Self, StoreError> {
        check_prefix(prefix)?;
        let runtime = runtime_for("Redis")?;
        let place = Place::new(Link::new(&servers.into(), prefix)?, runtime, prefix);
        let nothing_to_lose = AtomicBool::new(false);
        let look = setup::look(&place.link, &place.rows);
        // Boxed, because an application's futures contain this one, and the compiler refuses futures that nest too deeply.
        let found = place.link.within(PATIENCE, &nothing_to_lose, look).boxed().await?;
        place.listeners.heed(place.link.opened());
        Ok(Self { place: Arc::new(place), store: found.store, durability: found.durability })
    }

    /// A Lua script that [`LeaseGuard::fence`](crate::LeaseGuard::fence) runs only while a lease of this store is current. See
    /// [`RedisScript`] for what it may do, and for an example.
    pub fn script(&self, text: &str) -> RedisScript {
        RedisScript::new(Arc::clone(&self.place), self.store, text)
    }

    /// Decides on rows as they were read or are guessed, until they still stand when the decision is written.
    async fn apply(
        &self,
        batch: &Batch,
        now: StoreNow,
        writing: &AtomicBool,
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        let Place { link, memory, plain, pace, .. } = &*self.place;
        let (keys, fresh) = (batch.keys(), setup::fresh_id()?);
        let mut view = View::new(memory);
        let mut contest = Contest::of(batch, pace);
        while !contest.is_hopeless() {
            let mut attempt = view.load(&keys, fresh, |records| records.sessions_of(batch))?;
            let mut reply = batch.apply(&mut attempt.records, now);
            let is_certain = attempt.is_certain;
            let mut comparison = attempt.into_comparison();
            comparison.letters = signals::letters(&self.place, batch.session, &reply);
            comparison.told = (batch.peers() > 0).then(|| (batch.session, batch.peers()));
            let writes = !comparison.writes.is_empty();
            let stage = if writes { Stage::Writing(writing) } else { Stage::Reading };
            if !writes {
                self.withdraw(&mut contest).await;
            }
            if !writes && is_certain {
                // All of it was read at one moment, and that is what the answer tells.
                return Ok(reply);
            }
            comparison.reservation = contest.reservation().filter(|_| writes);
            match comparison.run(link, plain, self.place.keys(), &ScriptInput::NONE, stage).await? {
                Ok(Outcome::Done { said, heard, trip }) => {
                    pace.note_trip(trip);
                    view.wrote(&comparison);
                    signals::note_heard(&mut reply, heard);
                    let peers = if comparison.told.is_some() { peers_in(said, batch, now) } else { Vec::new() };
                    return Ok(Reply { peers, ..reply });
                }
                Ok(Outcome::Stale { snapshot, is_free, trip }) => {
                    view.found(snapshot);
                    pace.note_trip(trip);
                    if !contest.lost(trip, (is_free, writes), deadline).await {
                        return Err(failure::of_contention_until_limit());
                    }
                }
                Err(refusal) => return Err(link.refused(&refusal, stage)),
            }
        }
        Err(failure::of_contention(TRIES))
    }

    /// After the first transaction, it looks once whether there are too many idle records.
    fn sweep(&self, batch: &Batch, now: StoreNow) {
        if !self.place.has_swept.swap(true, Ordering::Relaxed) {
            let store = Self { place: Arc::clone(&self.place), store: self.store, durability: self.durability };
            let records = sweep::Records { store, now };
            self.place.runtime.spawn(super::sweep::sweep(records, batch.session, batch.keys().pop()));
        }
    }

    /// Takes back reservations that are of no use any more, so that nobody waits for their end.
    async fn withdraw(&self, contest: &mut Contest) {
        if let Some(withdrawal) = contest.withdrawal() {
            let Place { link, plain, .. } = &*self.place;
            // If it fails, the reservation ends by the server's clock.
            drop(withdrawal.run(link, plain, self.place.keys(), &ScriptInput::NONE, Stage::Reading).await);
        }
    }
}

/// The same for all who open one database of one server with one prefix, by whatever name they call the server; and after
/// its restart, unless it was wiped.
fn reach_of(place: &Place, store: StoreId) -> Reach {
    Reach::Named(format!("redis:{store}:{}:{}", place.link.database(), place.prefix))
}

/// Closes the connection when it is dropped: after the last messages, or when the caller of `close` stops waiting for them.
struct Closing<'a>(&'a Link);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[async_trait::async_trait]
impl Store for RedisStore {
    async fn transact(&self, batch: Batch, now: Now, limit: Duration) -> Result<Reply, StoreError> {
        self.place.link.check()?;
        self.place.link.note_limit(limit);
        let (now, writing) = (StoreNow::new(self.clock(), now), AtomicBool::new(false));
        let deadline = Instant::now() + limit;
        let reply = self.place.link.within(limit, &writing, self.apply(&batch, now, &writing, deadline)).await;
        self.place.pace.note_end(&batch, reply.is_err());
        let reply = reply?;
        self.place.listeners.heed(self.place.link.opened());
        self.sweep(&batch, now);
        Ok(reply)
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let (place, prefix) = (Arc::clone(&self.place), String::from(prefix));
        let asked = async move {
            let nothing_to_lose = AtomicBool::new(false);
            place.link.within(PATIENCE, &nothing_to_lose, listing::keys(&place, &prefix)).await
        };
        inside(&self.place.runtime, asked).await?
    }

    fn signals(&self) -> Option<Shared<dyn Signals>> {
        Some(Shared::new(RedisSignals::new(Arc::clone(&self.place))))
    }

    async fn close(&self) {
        let _closing = Closing(&self.place.link);
        // A waiter that was granted the lease before it subscribed would otherwise learn of it only at its next heartbeat.
        self.place.under_way.settle(&self.place.runtime).await;
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    /// Replication is asynchronous.
    fn loses_writes_in_failover(&self) -> bool {
        true
    }

    fn reach(&self) -> Reach {
        reach_of(&self.place, self.store)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RedisStore({}, {})", self.place.link.address(), self.place.rows)
    }
}
